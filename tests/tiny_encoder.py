"""A tiny BERT in GGUF with random weights: embeddings of a model that writes no text, and ranks, with the real llama.cpp."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf import PoolingType

WORDS = ("the", "cat", "dog", "sat", "on", "mat", "a", "red", "blue", "hello", "world", "##s", "##ed", ".", ",", "?")
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_N_EMBD = 32


def write_tiny_encoder(path: Path, pooling: PoolingType = PoolingType.MEAN, n_ctx: int = 64, seed: int = 1) -> Path:
    """Write the model to `path`, which is returned. With RANK pooling it has a head that scores pairs."""
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("tiny encoder")
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(_N_EMBD)
    writer.add_block_count(1)
    writer.add_feed_forward_length(2 * _N_EMBD)
    writer.add_head_count(4)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    writer.add_file_type(0)
    tokens = _tokens()
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(_SPECIAL) + [1] * (len(tokens) - len(_SPECIAL)))
    writer.add_token_type_count(2)
    writer.add_vocab_size(len(tokens))
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_eos_token_id(3)
    writer.add_mask_token_id(4)
    _add_weights(writer, len(tokens), n_ctx, seed, has_head=pooling is PoolingType.RANK)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tokens() -> list[bytes]:
    """As llama.cpp has WordPiece: words begin with U+2581, what continues a word has no mark."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = [*WORDS, *letters, *(f"##{letter}" for letter in letters)]
    known = dict.fromkeys(word[2:] if word.startswith("##") else f"▁{word}" for word in words)
    return [token.encode() for token in (*_SPECIAL, *known)]


def _add_weights(writer: gguf.GGUFWriter, n_vocab: int, n_ctx: int, seed: int, *, has_head: bool) -> None:
    random = np.random.default_rng(seed)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))

    def add_with_bias(name: str, n_out: int, n_in: int) -> None:
        add(name, n_out, n_in)
        writer.add_tensor(f"{name}.bias", (random.standard_normal(n_out) * 0.1).astype(np.float32))

    def add_norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(_N_EMBD, dtype=np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(_N_EMBD, dtype=np.float32))

    add("token_embd", n_vocab, _N_EMBD)
    add("token_types", 2, _N_EMBD)
    add("position_embd", n_ctx, _N_EMBD)
    add_norm("token_embd_norm")
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        add_with_bias(f"blk.0.{name}", _N_EMBD, _N_EMBD)
    add_norm("blk.0.attn_output_norm")
    add_with_bias("blk.0.ffn_up", 2 * _N_EMBD, _N_EMBD)
    add_with_bias("blk.0.ffn_down", _N_EMBD, 2 * _N_EMBD)
    add_norm("blk.0.layer_output_norm")
    if has_head:
        add_with_bias("cls", _N_EMBD, _N_EMBD)
        add_with_bias("cls.output", 1, _N_EMBD)
