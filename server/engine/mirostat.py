"""Mirostat 1 and 2 (Basu et al., 2020, arXiv:2007.14966), which choose the truncation by how surprising the text has been.

llama.cpp's own samplers draw and learn in one call, so a draw that the grammar refuses would count; here the truncation
and the learning are apart, and only the token that is taken counts. The draw is the sequence's own seeded one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.engine.sampling import Candidates

_N_SLOPE = 100  # how many of the likeliest tokens Mirostat 1 estimates the Zipf exponent from
_LIMIT = 1e-9


@dataclass(slots=True)
class Mirostat:
    """A `Stage` after the temperature. `tau` is the surprise aimed at in bits, `eta` the learning rate."""

    version: int
    tau: float
    eta: float
    mu: float = 0.0
    _ids: NDArray[np.int32] | None = None
    _surprises: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        self.mu = 2 * self.tau

    def apply(self, candidates: Candidates) -> None:
        """Keep the candidates that are not too surprising, likeliest first."""
        probabilities = _softmax(candidates.logits)
        if self.version == 2:
            with np.errstate(over="ignore"):
                kept = np.flatnonzero(probabilities >= np.exp2(-self.mu))
            kept = kept if len(kept) else np.array([np.argmax(probabilities)])
        else:
            kept = _likeliest(probabilities, self._n_by_slope(probabilities))
        kept = kept[np.argsort(-probabilities[kept], kind="stable")]
        candidates.keep(kept)
        self._ids = candidates.ids.copy()
        self._surprises = -np.log2(probabilities[kept] / probabilities[kept].sum())

    def accept(self, token: int) -> None:
        """Learn from the token that was taken; one that was forced was no surprise of the model's and teaches nothing."""
        if self._ids is None or self._surprises is None:
            return
        found = np.flatnonzero(self._ids == token)
        if len(found):
            self.mu -= self.eta * (float(self._surprises[found[0]]) - self.tau)
        self._ids = self._surprises = None

    def free(self) -> None:
        """Nothing native here."""

    def _n_by_slope(self, probabilities: NDArray[np.float64]) -> int:
        """Mirostat 1: top-k, with k from the Zipf exponent of the likeliest tokens."""
        n_slope = min(_N_SLOPE, len(probabilities))
        if n_slope < 2:
            return 1
        ranks = np.log(np.arange(2, n_slope + 1) / np.arange(1, n_slope))
        head = np.sort(probabilities[_likeliest(probabilities, n_slope)])[::-1]
        head = np.maximum(head, np.finfo(np.float64).tiny)
        exponent = float(ranks @ np.log(head[:-1] / head[1:]) / (ranks @ ranks))
        epsilon = exponent - 1
        if abs(epsilon) < _LIMIT or exponent < _LIMIT:
            return len(probabilities)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            k = np.power(epsilon * np.exp2(self.mu) / (1 - np.power(float(len(probabilities)), -epsilon)), 1 / exponent)
        return len(probabilities) if not np.isfinite(k) else min(max(int(k), 1), len(probabilities))


def _likeliest(probabilities: NDArray[np.float64], n_kept: int) -> NDArray[np.intp]:
    """The positions of the `n_kept` largest, in any order."""
    n_dropped = len(probabilities) - n_kept
    return np.argpartition(probabilities, n_dropped)[n_dropped:] if n_dropped > 0 else np.arange(len(probabilities))


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    return np.asarray(weights / weights.sum())
