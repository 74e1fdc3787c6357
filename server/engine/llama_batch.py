"""llama.cpp's batch, filled again and again. The bindings are handed in by `llama`, their only importer."""

from __future__ import annotations

from typing import Any

from server.engine.backend import Batch


class NativeBatch:
    """Room for `n_most` tokens, each of one sequence."""

    def __init__(self, lib: Any, n_most: int) -> None:
        self._lib = lib
        self._native = lib.llama_batch_init(n_most, 0, 1)
        for place in range(n_most):
            self._native.n_seq_id[place] = 1

    def filled(self, batch: Batch) -> Any:
        """What llama_decode takes, with the tokens of `batch`; until the next one is filled in."""
        native = self._native
        native.n_tokens = len(batch)
        rows = zip(batch.tokens, batch.positions, batch.seq_ids, batch.outputs, strict=True)
        for place, (token, position, seq_id, output) in enumerate(rows):
            native.token[place] = token
            native.pos[place] = position
            native.seq_id[place][0] = seq_id
            native.logits[place] = output
        return native

    def free(self) -> None:
        """Give the native memory back."""
        self._lib.llama_batch_free(self._native)
