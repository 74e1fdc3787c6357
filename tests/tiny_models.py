"""Tiny GGUF models with random weights: the real llama.cpp in fast tests, without a download.

One Llama layer, a few hundred kilobytes, a vocabulary of each kind that matters: SentencePiece (words begin with their space,
bytes as fallback) and byte-level BPE. The text that such a model writes means nothing; the same seed gives the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
from gguf import TokenType

WORDS = (
    *("the", "a", "an", "of", "to", "and", "in", "is", "was", "yes", "no", "true", "false", "null", "name", "age", "type"),
    *("he", "hello", "world", "cat", "dog", "one", "two", "ten", "red", "blue", "green", "value", "key", "object", "list"),
)
"""What both vocabularies know besides single characters; with and without a space before."""

PIECES = (
    '{"',
    '":',
    '",',
    '"}',
    "[]",
    "{}",
    "], [",
    "00",
    "19",
    "20",
    "12",
    "Zürich",
    "héllo",
    "日本",
    "😀",
    "\n\n",
    "  ",
    ": ",
)
"""Longer tokens of punctuation, digits and characters of several bytes."""


@dataclass(frozen=True, slots=True)
class TinyModel:
    """What to make. `controls` become control tokens, `user_defined` tokens that count as text.

    without_bytes: bytes that the vocabulary can't spell alone.
    """

    vocabulary: Literal["sentencepiece", "bpe"] = "bpe"
    controls: tuple[str, ...] = ("<|im_start|>", "<|im_end|>")
    user_defined: tuple[str, ...] = ()
    without_bytes: tuple[int, ...] = ()
    words: tuple[str, ...] = WORDS
    pieces: tuple[str, ...] = PIECES
    n_ctx_train: int = 2048
    n_embd: int = 64
    n_layers: int = 1
    chat_template: str | None = None
    add_bos: bool | None = None
    seed: int = 1


@dataclass(frozen=True, slots=True)
class _Tokens:
    texts: list[bytes]
    types: list[int]
    scores: list[float]
    merges: list[str]

    def add(self, text: str | bytes, kind: TokenType, score: float = 0.0) -> int:
        """The new token's id; a text that is there already keeps its token."""
        data = text if isinstance(text, bytes) else text.encode()
        if data in self.texts:
            return self.texts.index(data)
        self.texts.append(data)
        self.types.append(int(kind))
        self.scores.append(score)
        return len(self.texts) - 1


def write_tiny_model(path: Path, model: TinyModel | None = None) -> Path:
    """Write a model to `path`, which is returned."""
    model = model or TinyModel()
    writer = gguf.GGUFWriter(path, "llama")
    _add_parameters(writer, model)
    tokens = _Tokens([], [], [], [])
    (_add_sentencepiece if model.vocabulary == "sentencepiece" else _add_bpe)(writer, model, tokens)
    writer.add_token_list(tokens.texts)
    writer.add_token_types(tokens.types)
    writer.add_vocab_size(len(tokens.texts))
    _add_weights(writer, model, len(tokens.texts))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_parameters(writer: gguf.GGUFWriter, model: TinyModel) -> None:
    writer.add_name(f"tiny {model.vocabulary}")
    writer.add_context_length(model.n_ctx_train)
    writer.add_embedding_length(model.n_embd)
    writer.add_block_count(model.n_layers)
    writer.add_feed_forward_length(2 * model.n_embd)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(model.n_embd // 4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(0)
    if model.chat_template is not None:
        writer.add_chat_template(model.chat_template)
    if model.add_bos is not None:
        writer.add_add_bos_token(model.add_bos)


def _add_sentencepiece(writer: gguf.GGUFWriter, model: TinyModel, tokens: _Tokens) -> None:
    """As Llama 2 has it: unk, bos, eos, 256 bytes, then pieces whose spaces are U+2581, likelier ones with higher scores."""
    unk = tokens.add("<unk>", TokenType.UNKNOWN)
    bos, eos = tokens.add("<s>", TokenType.CONTROL), tokens.add("</s>", TokenType.CONTROL)
    for byte in range(256):
        if byte not in model.without_bytes:
            tokens.add(f"<0x{byte:02X}>", TokenType.BYTE)
    texts = [form for word in model.words for form in (f" {word}", word)] + list(model.pieces)
    prefixes = {text[:size] for text in texts for size in range(1, len(text) + 1)}
    printable = {chr(code) for code in range(32, 127)} - {chr(byte) for byte in model.without_bytes}
    for rank, text in enumerate(sorted(prefixes | printable, key=lambda text: (-len(text), text))):
        tokens.add(text.replace(" ", "▁"), TokenType.NORMAL, -float(rank))
    _add_special(model, tokens)
    writer.add_tokenizer_model("llama")
    writer.add_token_scores(tokens.scores)
    writer.add_unk_token_id(unk)
    writer.add_bos_token_id(bos)
    writer.add_eos_token_id(_end(model, tokens, eos))


def _add_bpe(writer: gguf.GGUFWriter, model: TinyModel, tokens: _Tokens) -> None:
    """As GPT-2 has it: every byte as a visible character, and merges from left to right."""
    alphabet = _byte_characters()
    for byte in range(256):
        if byte not in model.without_bytes:
            tokens.add(alphabet[byte], TokenType.NORMAL)
    for text in [form for word in model.words for form in (f" {word}", word)] + list(model.pieces):
        _add_merges("".join(alphabet[byte] for byte in text.encode()), tokens)
    end = tokens.add("<|endoftext|>", TokenType.CONTROL)
    _add_special(model, tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_merges(tokens.merges)
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(_end(model, tokens, end))


def _add_merges(text: str, tokens: _Tokens) -> None:
    for size in range(2, len(text) + 1):
        merge = f"{text[: size - 1]} {text[size - 1]}"
        if merge not in tokens.merges:
            tokens.merges.append(merge)
        tokens.add(text[:size], TokenType.NORMAL)


def _add_special(model: TinyModel, tokens: _Tokens) -> None:
    for text in model.controls:
        tokens.add(text, TokenType.CONTROL)
    for text in model.user_defined:
        tokens.add(text, TokenType.USER_DEFINED)


def _end(model: TinyModel, tokens: _Tokens, fallback: int) -> int:
    return tokens.texts.index(b"<|im_end|>") if "<|im_end|>" in model.controls else fallback


def _byte_characters() -> dict[int, str]:
    """GPT-2's visible character for each byte: itself where it is printable Latin-1, else one from U+0100 on."""
    visible = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def _add_weights(writer: gguf.GGUFWriter, model: TinyModel, n_vocab: int) -> None:
    random = np.random.default_rng(model.seed)
    n_embd, n_kv, n_ff = model.n_embd, model.n_embd // 2, 2 * model.n_embd

    def add(name: str, *shape: int) -> None:
        scale = 3.0 / np.sqrt(shape[-1])
        writer.add_tensor(name, (random.standard_normal(shape) * scale).astype(np.float32))

    def add_norm(name: str) -> None:
        writer.add_tensor(name, np.ones(n_embd, dtype=np.float32))

    add("token_embd.weight", n_vocab, n_embd)
    add("output.weight", n_vocab, n_embd)
    add_norm("output_norm.weight")
    for layer in range(model.n_layers):
        add_norm(f"blk.{layer}.attn_norm.weight")
        add_norm(f"blk.{layer}.ffn_norm.weight")
        add(f"blk.{layer}.attn_q.weight", n_embd, n_embd)
        add(f"blk.{layer}.attn_k.weight", n_kv, n_embd)
        add(f"blk.{layer}.attn_v.weight", n_kv, n_embd)
        add(f"blk.{layer}.attn_output.weight", n_embd, n_embd)
        add(f"blk.{layer}.ffn_gate.weight", n_ff, n_embd)
        add(f"blk.{layer}.ffn_up.weight", n_ff, n_embd)
        add(f"blk.{layer}.ffn_down.weight", n_embd, n_ff)
