"""Grammars whose texts have many readings, rewritten until llama.cpp can walk them; else refused.

Brings together `grammar.match.probe`, which looks for such texts, and `automata.network`, which rewrites.
"""

from __future__ import annotations

from collections.abc import Iterator

from converters.automata.network import determinized
from converters.grammar.expr import Grammar
from converters.grammar.match.probe import GOOD, Reach, TooAmbiguous, reach_of
from converters.grammar.passes import prepare, printable
from converters.limits import Budget


def with_few_readings(prepared: Grammar, text_form: Grammar, budget: Budget) -> tuple[Grammar, Grammar]:
    """The grammar and its printable form: the first way to write it of which every text found has few readings, or else the
    best. Raises LimitExceeded (TooAmbiguous) when no way is tolerable."""
    found: list[tuple[Reach, Grammar, Grammar]] = []
    failure: TooAmbiguous | None = None
    for candidate in _rewritings(prepared, budget):
        form = text_form if candidate is prepared else printable(candidate, budget)
        reach = _reach(form, budget)
        if isinstance(reach, TooAmbiguous):
            failure = failure or reach
            continue
        found.append((reach, candidate, form))
        if reach <= GOOD:
            break
    if failure is not None and not found:
        raise failure
    _, prepared, text_form = min(found, key=lambda item: (not item[0] <= GOOD, item[0].ways, item[0].stacks))
    return prepared, text_form


def _rewritings(prepared: Grammar, budget: Budget) -> Iterator[Grammar]:
    """The grammar itself, then with ever less that can be read in several ways."""
    yield prepared
    for splits_calls in (False, True):
        rewritten = determinized(prepared, splits_calls, budget)
        budget.check_deadline()
        if rewritten is not None:
            yield prepare(rewritten, budget)


def _reach(form: Grammar, budget: Budget) -> Reach | TooAmbiguous:
    try:
        return reach_of(form, budget)
    except TooAmbiguous as error:
        return error
