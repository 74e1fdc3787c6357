"""What the server counts while it works: plain numbers, added to on the event loop. How they are told is `api/native`'s affair.

One `Metrics` value is made with the server and passed to those who count, as `Settings` is. Nothing heavy is imported here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of buckets for compile times, in seconds."""

LONG_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of buckets for what a client waits, in seconds."""


@dataclass(slots=True)
class Histogram:
    """How often values fell into buckets. `counts` has one number per bound, and a last one for what is above all bounds."""

    bounds: tuple[float, ...]
    total: float = 0.0
    counts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count one value; a bound belongs to the bucket below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class ModelTotals:
    """Sums over all requests that one model has had since the server started. Times are in seconds."""

    n_requests: int = 0
    n_prompt_tokens: int = 0
    n_cached_tokens: int = 0
    n_completion_tokens: int = 0
    n_reasoning_tokens: int = 0
    n_forced_tokens: int = 0
    n_rejected_tokens: int = 0
    n_drafted_tokens: int = 0
    n_accepted_tokens: int = 0
    n_embedded_tokens: int = 0
    prompt_s: float = 0.0
    decode_s: float = 0.0
    n_loads: int = 0
    n_lost_requests: int = 0
    first_token_s: Histogram = field(default_factory=lambda: Histogram(LONG_S))


@dataclass(slots=True)
class Metrics:
    """Everything that is counted. http: by route, method and status. cache: "hit" and "miss" of compiled constraints."""

    http: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    http_s: dict[str, Histogram] = field(default_factory=dict)
    models: dict[str, ModelTotals] = field(default_factory=dict)
    compile_s: Histogram = field(default_factory=lambda: Histogram(SHORT_S))
    cache: Counter[str] = field(default_factory=Counter)
    n_rejected_constraints: int = 0

    def model(self, alias: str) -> ModelTotals:
        """The sums of a model, from zero on at first."""
        return self.models.setdefault(alias, ModelTotals())

    def add_answer(self, route: str, method: str, status: int, elapsed_s: float) -> None:
        """A request was answered; `elapsed_s` until its headers went out."""
        self.http[route, method, status] += 1
        self.http_s.setdefault(route, Histogram(LONG_S)).add(elapsed_s)
