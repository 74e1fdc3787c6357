"""The compiler's own bounds, and the budget that one compile spends against them.

Limits of a *request's* texts (spec section 9, first rows) are not here: `server/constraints.py` has them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from converters.errors import ConversionError, LimitExceeded

BYTES_PER_STATE = 8
BYTES_PER_TRANSITION = 12
_WORK_SHARE = 0.9  # of `compile_s`


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one compile, all inclusive (spec section 9, last three rows).

    `compile_s` counts the seconds that the compile itself computes: what else the machine does refuses no request. Nine tenths
    of it are for working, the rest for giving back what a compile that is cut off has built.
    """

    automaton_bytes: int = 256 * 1024
    regex_grammar_bytes: int = 256 * 1024
    grammar_bytes: int = 2 * 1024 * 1024
    compile_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Relaxation:
    """Something the grammar does not hold: `path` is a JSON pointer, `reason` says what and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Budget:
    """What is left of the limits for one compile, in one thread. Loops that may run long call `tick`.

    For the report: `n_states` is the size of the largest automaton seen, `relaxed` what a lenient compile has left out.
    """

    limits: Limits = field(default_factory=Limits)
    deadline_s: float = field(init=False)
    _next_look_s: float = field(init=False)
    n_states: int = field(init=False, default=0)
    relaxed: list[Relaxation] = field(init=False, default_factory=list)
    _ticks: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        work_s = self.limits.compile_s * _WORK_SHARE
        self.deadline_s = time.thread_time() + work_s
        self._next_look_s = time.monotonic() + work_s

    def tick(self) -> None:
        """Cheap enough for inner loops; looks at the clock every 256th time. Raises LimitExceeded past the deadline."""
        self._ticks += 1
        if self._ticks & 255 == 0:
            self.check_deadline()

    def check_deadline(self) -> None:
        """Raise LimitExceeded when the compile can't be over within `compile_s`.

        A thread never works longer than time passes, and the clock of its work is a slow system call: it is only asked when
        the other one has come to where the deadline may be.
        """
        if time.monotonic() < self._next_look_s:
            return
        left = self.deadline_s - time.thread_time()
        if left < 0:
            limit = self.limits.compile_s
            raise LimitExceeded(f"compiling takes longer than {limit:g} s", limit="compile_s", value=limit)
        self._next_look_s = time.monotonic() + left

    @contextmanager
    def inside(self, prefix: str) -> Iterator[None]:
        """Errors from here, and what is relaxed here, get the JSON pointer `prefix` before their own paths."""
        n_before = len(self.relaxed)
        try:
            yield
        except ConversionError as error:
            error.path = prefix + (error.path or "")
            raise
        self.relaxed[n_before:] = [replace(entry, path=prefix + entry.path) for entry in self.relaxed[n_before:]]

    def check_automaton(self, n_states: int, n_transitions: int, what: str) -> None:
        """Raise LimitExceeded when an automaton of this size passes `automaton_bytes`. `what` names its source."""
        self.n_states = max(self.n_states, n_states)
        size = BYTES_PER_STATE * n_states + BYTES_PER_TRANSITION * n_transitions
        if size > self.limits.automaton_bytes:
            limit = self.limits.automaton_bytes
            raise LimitExceeded(
                f"the automaton of {what} needs more than {limit} bytes ({limit // 1024} KiB) of working memory",
                limit="automaton_bytes",
                value=limit,
            )
