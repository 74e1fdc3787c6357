"""Chooses between all threads and one fewer by what steps cost with either.

ggml's workers spin while they wait for each other: on a quiet machine all threads are best, beside one busy neighbour one
fewer can be five times faster. A step whose threads had the processor all the time had no such neighbour, so one fewer is
only tried where they hadn't. The number of threads doesn't change any result, so it may change at any step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_BLEND = 0.3  # weight of the newest step in an average
_N_TRIAL_STEPS = 3  # crowded ones before one thread fewer is tried, and how long the other choice is tried
_LEAST_PATIENCE, _MOST_PATIENCE = (
    12,
    96,
)  # steps for which one fewer is kept before all are tried again: twice as long each time
_MARGIN = 1.1  # how much dearer all threads must be before one is given up
_CROWDED_SHARE = 0.8  # of the time that all threads of a step took, which they had the processor for


@dataclass(slots=True)
class _Record:
    """What is known for batches of one size: seconds a step with all threads, and with one fewer."""

    full_s: float | None = None
    less_s: float | None = None
    uses_less: bool = False
    n_crowded: int = 0  # steps with all threads, one after another
    n_tried: int = 0  # steps with the choice that isn't in use
    n_kept: int = 0  # steps with one fewer
    patience: int = _LEAST_PATIENCE

    def is_trying(self) -> bool:
        """Whether this step measures the choice that isn't in use."""
        if self.uses_less:
            return self.n_kept >= self.patience
        return self.n_crowded >= _N_TRIAL_STEPS and self.n_tried < _N_TRIAL_STEPS

    def learn(self, with_less: bool, elapsed_s: float, is_crowded: bool) -> None:
        """Take a step's time, and choose."""
        if self.is_trying():
            if self.uses_less and self.n_tried == 0:
                self.full_s = None  # what all threads cost long ago says nothing about now
            self.n_tried += 1
        elif self.uses_less:
            self.n_kept += 1
        self._blend(with_less, elapsed_s)
        if not with_less:
            self.n_crowded = self.n_crowded + 1 if is_crowded else 0
        if self.uses_less:
            self._choose_among_less()
        elif self.n_crowded >= _N_TRIAL_STEPS and self.n_tried >= _N_TRIAL_STEPS and self._is_less_better():
            self.uses_less, self.n_kept, self.n_tried = True, 0, 0

    def _blend(self, with_less: bool, elapsed_s: float) -> None:
        old = self.less_s if with_less else self.full_s
        new = elapsed_s if old is None else old + _BLEND * (elapsed_s - old)
        if with_less:
            self.less_s = new
        else:
            self.full_s = new

    def _choose_among_less(self) -> None:
        """All threads again, where a trial of them is over or nobody was in its way; else one fewer for longer."""
        is_quiet = self.n_tried > 0 and self.n_crowded == 0
        if self.n_tried < _N_TRIAL_STEPS and not is_quiet:
            return
        if is_quiet or not self._is_less_better():
            self.uses_less, self.patience = False, _LEAST_PATIENCE
        else:
            self.patience = min(2 * self.patience, _MOST_PATIENCE)
        self.n_kept, self.n_crowded = 0, 0
        self.n_tried = 0 if self.uses_less else _N_TRIAL_STEPS

    def _is_less_better(self) -> bool:
        return self.full_s is not None and self.less_s is not None and self.full_s > _MARGIN * self.less_s


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

    def learn(self, n_tokens: int, n_threads: int, elapsed_s: float, cpu_s: float) -> None:
        """A batch of so many tokens took `elapsed_s` with so many threads, of which they had the processor for `cpu_s`."""
        if self.n_threads > 1 and not self.is_busy:
            is_crowded = cpu_s < _CROWDED_SHARE * n_threads * elapsed_s
            self._record(n_tokens).learn(n_threads < self.n_threads, elapsed_s / n_tokens, is_crowded)

    def _record(self, n_tokens: int) -> _Record:
        return self._records.setdefault(n_tokens.bit_length(), _Record())
