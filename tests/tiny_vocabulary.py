"""A vocabulary without a model: a GGUF file of a few kilobytes that llama.cpp loads with `vocab_only`.

Every byte is a token, so every text can be spelled; some tokens are longer, so that grammars meet pieces of several
characters; some are special.
"""

from __future__ import annotations

import string
from pathlib import Path

import gguf

UNKNOWN, BOS, EOS = 0, 1, 2
SPECIAL = ("<think>", "</think>", "<|im_start|>", "<|im_end|>")
FIRST_BYTE = 3 + len(SPECIAL)
PIECES = (
    *(string.ascii_letters + string.digits + string.punctuation + " \n\t"),
    *("ab", "aa", "aaa", "aaaa", "bb", "abc", "the", "th", "he", "in", " a", " the", "00", "000", "12", "19", "20", "10"),
    *('{"', '":', '": ', '",', '", "', '"}', "[]", "{}", "},", "],", "true", "false", "null"),
    *('"a"', "\\n", '\\"', "\\u00", "\\u"),
    *("é", "ß", "ä", "ö", "ü", "中", "文", "中文", "日本", "—", "…", "😀", "aé", "é中", "\r\n", "  ", "    ", "\n\n"),
)  # fmt: skip


def token_texts() -> list[str]:
    """The text of each token, by id. Byte tokens are `<0xHH>`."""
    return ["<unk>", "<s>", "</s>", *SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]


def write_tiny_vocabulary(path: Path) -> Path:
    """Write the GGUF file to `path`."""
    texts = token_texts()
    kinds = [gguf.TokenType.NORMAL] * len(texts)
    kinds[UNKNOWN] = gguf.TokenType.UNKNOWN
    for token in (BOS, EOS, *range(3, 3 + len(SPECIAL))):
        kinds[token] = gguf.TokenType.CONTROL
    for token in range(FIRST_BYTE, FIRST_BYTE + 256):
        kinds[token] = gguf.TokenType.BYTE
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text.replace(" ", "▁") for text in texts])
    writer.add_token_scores([-float(len(texts) - i) for i in range(len(texts))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(UNKNOWN)
    writer.add_add_space_prefix(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
