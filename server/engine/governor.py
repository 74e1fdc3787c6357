"""Chooses between all threads and one fewer by what steps cost with either.

ggml's workers spin while they wait for each other: on a quiet machine all threads are best, beside one busy neighbour one
fewer can be five times faster. The number of threads doesn't change any result, so it may change at any step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_BLEND = 0.3  # weight of the newest step in an average
_N_TRIAL_STEPS = 3  # how long the other choice is tried
_N_PATIENCE_STEPS = 48  # how long one fewer is kept before all are tried again
_MARGIN = 1.1  # how much dearer all threads must be before one is given up


@dataclass(slots=True)
class _Record:
    """What is known for batches of one size: seconds a step with all threads, and with one fewer."""

    full_s: float | None = None
    less_s: float | None = None
    uses_less: bool = False
    is_new: bool = True
    n_steps: int = 0  # since the choice was made

    def is_trying(self) -> bool:
        """Whether this step measures the choice that isn't in use."""
        if not self.uses_less:
            return _N_TRIAL_STEPS <= self.n_steps < 2 * _N_TRIAL_STEPS and self.is_new
        return _N_PATIENCE_STEPS <= self.n_steps < _N_PATIENCE_STEPS + _N_TRIAL_STEPS

    def learn(self, with_less: bool, elapsed_s: float) -> None:
        """Take a step's time, and choose."""
        if self.uses_less and self.n_steps == _N_PATIENCE_STEPS:
            self.full_s = None  # what all threads cost long ago says nothing about now
        old = self.less_s if with_less else self.full_s
        new = elapsed_s if old is None else old + _BLEND * (elapsed_s - old)
        if with_less:
            self.less_s = new
        else:
            self.full_s = new
        self.n_steps += 1
        if not self.is_trying():
            self._choose()

    def _choose(self) -> None:
        if self.full_s is None or self.less_s is None:
            return
        if not self.uses_less and self.full_s > _MARGIN * self.less_s:
            self.uses_less, self.n_steps, self.is_new = True, 0, False
        elif self.uses_less and self.n_steps >= _N_PATIENCE_STEPS + _N_TRIAL_STEPS:
            self.uses_less, self.n_steps = self.full_s > self.less_s, 0


@dataclass(slots=True)
class ThreadGovernor:
    """`n_threads` is the most. `is_busy` is set while the server itself needs a core: then one fewer, without measuring."""

    n_threads: int
    is_busy: bool = False
    _records: dict[int, _Record] = field(default_factory=dict)

    def choose(self, n_tokens: int) -> int:
        """Threads for a batch of so many tokens."""
        if self.n_threads == 1:
            return 1
        record = self._record(n_tokens)
        wants_less = self.is_busy or record.uses_less != record.is_trying()
        return self.n_threads - 1 if wants_less else self.n_threads

    def learn(self, n_tokens: int, n_threads: int, elapsed_s: float) -> None:
        """A batch of so many tokens took `elapsed_s` with so many threads."""
        if self.n_threads > 1 and not self.is_busy:
            self._record(n_tokens).learn(n_threads < self.n_threads, elapsed_s / n_tokens)

    def _record(self, n_tokens: int) -> _Record:
        return self._records.setdefault(n_tokens.bit_length(), _Record())
