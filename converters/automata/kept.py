"""Automata that a process keeps between compiles: the same bounds, patterns and lists come back in schema after schema."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from converters.automata.dfa import Dfa


@dataclass(slots=True)
class KeptAutomata:
    """Automata by their sources, the longest unused dropped first. `max_states` bounds the sum of their states.

    One that has more than a tenth of that is never kept. Values only: two threads that make the same one do no harm.
    """

    max_states: int
    n_states: int = 0
    _kept: OrderedDict[Hashable, Dfa] = field(default_factory=OrderedDict)

    def get(self, source: Hashable, make: Callable[[], Dfa]) -> Dfa:
        """The automaton of `source`, made where it isn't kept. Raises what `make` raises."""
        found = self._kept.pop(source, None)
        if found is None:
            found = make()
            if found.n_states > self.max_states // 10:
                return found
            self.n_states += found.n_states
        self._kept[source] = found
        while self.n_states > self.max_states:
            self.n_states -= self._kept.popitem(last=False)[1].n_states
        return found
