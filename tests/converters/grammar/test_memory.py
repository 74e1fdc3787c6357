"""Many matchers in one room: the sum of what they remember stays bounded, and nobody notices."""

from __future__ import annotations

from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher, build_tables
from converters.grammar.match.memory import Memory
from converters.grammar.match.program import Program
from converters.grammar.passes import prepare
from converters.limits import Budget

NESTED = 'root ::= "(" root ")" | "[" root "]" | "x"'


def matcher(memory: Memory) -> Matcher:
    return Matcher(Program.from_bytes(build_tables(prepare(parse_gbnf(NESTED), Budget()))), memory=memory)


def walk(rules: Matcher, depth: int) -> None:
    state = rules.advance(rules.start, "([" * depth)
    assert state is not None
    assert rules.least_length(state) == 2 * depth + 1
    assert rules.advance(state, "x" + "])" * depth) is not None


def test_those_asked_longest_ago_forget_first() -> None:
    memory = Memory(max_entries=3000)
    matchers = [matcher(memory) for _ in range(6)]
    for rules in matchers:
        walk(rules, 150)
    sizes = [rules.n_remembered for rules in matchers]
    assert sum(sizes) <= 3000 * 1.1
    assert sizes[0] < sizes[-1]
    for rules in matchers:
        walk(rules, 40)


def test_states_stay_good_when_others_need_the_room() -> None:
    memory = Memory(max_entries=500)
    first, second = matcher(memory), matcher(memory)
    state = first.advance(first.start, "((([[")
    walk(second, 400)
    assert first.advance(state, "x]])))") is not None
    assert first.accepts("((([[x]])))")


def test_what_nobody_holds_is_not_counted() -> None:
    memory = Memory(max_entries=10**6)
    rules = matcher(memory)
    walk(rules, 50)
    del rules
    assert memory.n_remembered == 0
