"""Log-probabilities of a row of raw logits, computed only where a request asks for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from server.engine.messages import TokenLogprob, TokenLogprobs


def score_row(row: NDArray[np.float32], token: int, n_top: int, piece: Callable[[int], bytes]) -> TokenLogprobs:
    """`token` and the `n_top` likeliest tokens, best first, under the softmax of `row` (natural logarithms)."""
    largest = float(row.max())
    log_total = largest + float(np.log(np.exp(row - largest, dtype=np.float64).sum()))

    def scored(chosen: int) -> TokenLogprob:
        return TokenLogprob(chosen, piece(chosen), float(row[chosen]) - log_total)

    return TokenLogprobs(scored(token), tuple(scored(chosen) for chosen in _best(row, n_top)))


def _best(row: NDArray[np.float32], n_top: int) -> list[int]:
    """The `n_top` largest entries, best first, ties by token id."""
    n_top = min(n_top, len(row))
    if n_top <= 0:
        return []
    best = np.argpartition(row, len(row) - n_top)[len(row) - n_top :]
    return [int(token) for token in best[np.lexsort((best, -row[best]))]]
