"""logit_bias as a `sampling.Stage`. llama.cpp's own searches all candidates for every biased token, which can take seconds."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from server.engine.sampling import Candidates

_N_REMEMBERED = 4  # the choices of a request share theirs


class LogitBias:
    """Adds to the logits of some tokens; `biases` are pairs of token and number."""

    def __init__(self, biases: tuple[tuple[int, float], ...], n_vocab: int) -> None:
        self._added = _dense(biases, n_vocab)

    def apply(self, candidates: Candidates) -> None:
        """To be the first of the stages, while the candidates have no order yet."""
        candidates.logits[:] += self._added[candidates.ids]

    def accept(self, token: int) -> None:
        """Nothing to note."""

    def free(self) -> None:
        """Nothing native here."""


@lru_cache(_N_REMEMBERED)
def _dense(biases: tuple[tuple[int, float], ...], n_vocab: int) -> NDArray[np.float32]:
    added = np.zeros(n_vocab, dtype=np.float32)
    for token, bias in biases:
        added[token] += bias
    return added
