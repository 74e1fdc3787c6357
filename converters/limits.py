"""The compiler's own bounds, and the budget that one compile spends against them.

Limits of a *request's* texts (spec section 9, first rows) are not here: `server/constraints.py` has them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from converters.errors import LimitExceeded

BYTES_PER_STATE = 8
BYTES_PER_TRANSITION = 12


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one compile, all inclusive (spec section 9, last three rows)."""

    automaton_bytes: int = 256 * 1024
    regex_grammar_bytes: int = 256 * 1024
    grammar_bytes: int = 2 * 1024 * 1024
    compile_s: float = 2.0


@dataclass(slots=True)
class Budget:
    """What is left of the limits for one compile. Loops that may run long call `tick`.

    `n_states` is the size of the largest automaton seen, for the report.
    """

    limits: Limits = field(default_factory=Limits)
    deadline_s: float = field(init=False)
    n_states: int = field(init=False, default=0)
    _ticks: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.deadline_s = time.monotonic() + self.limits.compile_s

    def tick(self) -> None:
        """Cheap enough for inner loops; looks at the clock every 256th time. Raises LimitExceeded past the deadline."""
        self._ticks += 1
        if self._ticks & 255 == 0:
            self.check_deadline()

    def check_deadline(self) -> None:
        """Raise LimitExceeded when the compile has run longer than `compile_s`."""
        if time.monotonic() > self.deadline_s:
            limit = self.limits.compile_s
            raise LimitExceeded(f"compiling takes longer than {limit:g} s", limit="compile_s", value=limit)

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
