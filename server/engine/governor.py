"""Chooses between all threads and one fewer by what steps cost with either.

ggml's workers spin while they wait for each other: on a quiet machine all threads are best, beside one busy neighbour one
fewer can be five times faster. A step whose threads had the processor all the time had no such neighbour, so one fewer is
only tried where they hadn't. The number of threads doesn't change any result, so it may change at any step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_BLEND = 0.3  # weight of the newest step in an average
_N_CROWDED_STEPS, _CROWDED_S = 3, 0.25  # crowded ones in a row, or seconds of them, that are enough to act on
_N_TRIAL_STEPS = 3  # how long the other choice is tried
_LEAST_PATIENCE, _MOST_PATIENCE = 12, 96  # steps for which one fewer is kept before all are tried: twice as long each time
_CHEAP_S = 0.5  # what a trial of all threads may cost; beside a neighbour one step of them can take seconds,
_TRIALS_SHARE = 0.1  # and what is above that is to be such a share of the time
_MARGIN = 1.1  # how much dearer all threads must be before one is given up
_CROWDED_SHARE = 0.8  # of the time that all threads of a step took, which they had the processor for


@dataclass(slots=True)
class _Record:
    """What is known for batches of one size: seconds a token with all threads, and with one fewer."""

    full_s: float | None = None
    less_s: float | None = None
    uses_less: bool = False
    n_crowded: int = 0  # steps with all threads, one after another
    crowded_s: float = 0.0  # what they took
    n_tried: int = 0  # steps with the choice that isn't in use
    n_kept: int = 0  # steps with one fewer
    kept_s: float = 0.0
    patience: int = _LEAST_PATIENCE
    patience_s: float = 0.0

    def is_trying(self) -> bool:
        """Whether this step measures the choice that isn't in use."""
        if self.uses_less:
            return self.n_kept >= self.patience and self.kept_s >= self.patience_s
        return self._is_crowded() and self.n_tried < _N_TRIAL_STEPS

    def learn(self, with_less: bool, elapsed_s: float, n_tokens: int, is_crowded: bool) -> None:
        """Take a step's time, and choose."""
        if self.is_trying():
            if self.uses_less and self.n_tried == 0:
                self.full_s = None  # what all threads cost long ago says nothing about now
            self.n_tried += 1
        elif self.uses_less:
            self.n_kept += 1
            self.kept_s += elapsed_s
        self._blend(with_less, elapsed_s / n_tokens)
        if not with_less:
            self.n_crowded, self.crowded_s = (self.n_crowded + 1, self.crowded_s + elapsed_s) if is_crowded else (0, 0.0)
        if self.uses_less:
            self._choose_among_less()
        elif self._is_crowded() and self.n_tried >= _N_TRIAL_STEPS and self._is_less_better():
            self._keep_less()

    def _is_crowded(self) -> bool:
        return self.n_crowded >= _N_CROWDED_STEPS or self.crowded_s >= _CROWDED_S

    def _blend(self, with_less: bool, s_per_token: float) -> None:
        old = self.less_s if with_less else self.full_s
        new = s_per_token if old is None else old + _BLEND * (s_per_token - old)
        if with_less:
            self.less_s = new
        else:
            self.full_s = new

    def _choose_among_less(self) -> None:
        """All threads again, where a trial of them is over or nobody was in its way; else one fewer for longer."""
        if self.n_tried == 0:
            return
        is_quiet = self.n_crowded == 0
        if self.n_tried < _N_TRIAL_STEPS and not is_quiet and self.crowded_s < _CROWDED_S:
            return
        if is_quiet or not self._is_less_better():
            self.uses_less, self.patience, self.n_tried = False, _LEAST_PATIENCE, _N_TRIAL_STEPS
            self.n_crowded, self.crowded_s = 0, 0.0
        else:
            self.patience = min(2 * self.patience, _MOST_PATIENCE)
            self._keep_less()

    def _keep_less(self) -> None:
        """One fewer from now on, for so long that dear steps with all threads are a small part of the time."""
        self.uses_less, self.patience_s = True, max(0.0, self.crowded_s - _CHEAP_S) / _TRIALS_SHARE
        self.n_kept, self.kept_s, self.n_tried = 0, 0.0, 0
        self.n_crowded, self.crowded_s = 0, 0.0

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
            self._record(n_tokens).learn(n_threads < self.n_threads, elapsed_s, n_tokens, is_crowded)

    def _record(self, n_tokens: int) -> _Record:
        return self._records.setdefault(n_tokens.bit_length(), _Record())
