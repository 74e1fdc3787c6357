"""llama.cpp as the draft model: a context of its own, whose slots follow the target's. The bindings are handed in by `llama`,
their only importer.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from server.engine.backend import BackendError, Batch
from server.engine.governor import ThreadGovernor
from server.engine.llama_batch import NativeBatch
from server.engine.llama_vocabulary import LlamaVocabulary

_MOST_PADDING = 128  # tokens at the end of a vocabulary that only fill it up


def vocabulary_difference(lib: Any, target: LlamaVocabulary, draft: LlamaVocabulary) -> str | None:
    """Why a token of the one model isn't the same token of the other; None where it is.

    One of them may have some more tokens at its end, as models of one family that are padded differently do.
    """
    kinds = [int(lib.llama_vocab_type(vocabulary.handle)) for vocabulary in (target, draft)]
    if kinds[0] != kinds[1]:
        return "their tokenizers are of different kinds"
    sizes = target.n_tokens, draft.n_tokens
    if abs(sizes[0] - sizes[1]) > _MOST_PADDING:
        return f"they have {sizes[0]} and {sizes[1]} tokens"
    text, attribute = lib.llama_vocab_get_text, lib.llama_vocab_get_attr
    for token in range(min(sizes)):
        if text(target.handle, token) != text(draft.handle, token):
            return f"token {token} is {target.piece(token)!r} and {draft.piece(token)!r}"
        if attribute(target.handle, token) != attribute(draft.handle, token):
            return f"token {token}, {target.piece(token)!r}, is of another kind"
    return None


class NativeDraft:
    """`backend.DraftModel` over a loaded model. Raises BackendError."""

    def __init__(
        self,
        lib: Any,
        model: Any,
        params: Any,
        vocabulary: LlamaVocabulary,
        n_tokens: int,
        share: float,
        governor: ThreadGovernor,
    ) -> None:
        """`params`: of the target's context, taken as they are; `n_tokens`: of the target's vocabulary."""
        self._lib = lib
        self.share = share
        self.n_batch = int(params.n_batch)
        self._n_vocab = vocabulary.n_tokens
        self._n_common = min(n_tokens, vocabulary.n_tokens)
        self._governor = governor
        self._context = lib.llama_init_from_model(model, params)
        if not self._context:
            raise BackendError(f"llama.cpp can't make a context of {params.n_ctx} tokens for the draft model")
        self._memory = lib.llama_get_memory(self._context)
        self._batch = NativeBatch(lib, self.n_batch)

    def n_held(self, seq_id: int) -> int:
        return int(self._lib.llama_memory_seq_pos_max(self._memory, seq_id)) + 1

    def decode(self, batch: Batch) -> None:
        n_threads = self._governor.choose(len(batch))
        self._lib.llama_set_n_threads(self._context, n_threads, n_threads)
        code = self._lib.llama_decode(self._context, self._batch.filled(batch))
        if code != 0:
            raise BackendError(f"llama_decode failed with code {code}")

    def likeliest(self, index: int) -> tuple[int, float]:
        address = ctypes.cast(self._lib.llama_get_logits_ith(self._context, index), ctypes.c_void_p).value
        if not address:
            raise BackendError(f"no logits for token {index} of the batch")
        memory: Any = (ctypes.c_float * self._n_vocab).from_address(address)
        row = np.frombuffer(memory, dtype=np.float32)[: self._n_common]
        token = int(row.argmax())
        return token, float(1 / np.exp(row - row[token]).sum())

    def rewind(self, seq_id: int, n_tokens: int) -> None:
        if not self._lib.llama_memory_seq_rm(self._memory, seq_id, n_tokens, -1):
            raise BackendError("tokens can't be taken back out of the draft model's KV cache")

    def clear(self, seq_id: int) -> None:
        self._lib.llama_memory_seq_rm(self._memory, seq_id, -1, -1)

    # -- what is done to the target's slots

    def truncate(self, seq_id: int, n_tokens: int) -> None:
        """Keep the slot's first tokens at most, or nothing of it."""
        has_lost_beginning = self._lib.llama_memory_seq_pos_min(self._memory, seq_id) > 0
        if has_lost_beginning or not self._lib.llama_memory_seq_rm(self._memory, seq_id, n_tokens, -1):
            self.clear(seq_id)

    def save(self, seq_id: int) -> Any:
        """A copy of the slot's cells; None where it has none, or they can't be copied."""
        size = self._lib.llama_state_seq_get_size(self._context, seq_id)
        saved = (ctypes.c_uint8 * size)()
        is_done = self.n_held(seq_id) and self._lib.llama_state_seq_get_data(self._context, saved, size, seq_id) == size
        return saved if is_done else None

    def load(self, seq_id: int, saved: Any) -> None:
        """Fill the empty slot with saved cells; it stays empty where that can't be."""
        if saved is not None and self._lib.llama_state_seq_set_data(self._context, saved, len(saved), seq_id) != len(saved):
            self.clear(seq_id)
