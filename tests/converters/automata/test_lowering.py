"""An automaton's rules have its language, plain and spelled as JSON text, for llama.cpp and for the matcher."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings

from converters.automata import DUMPS, DUMPS_ASCII, DUMPS_RAW, JSON, Dfa, Spelling, bounded, random_word, to_expr
from converters.grammar.expr import Grammar, RuleBook
from converters.grammar.gbnf import print_grammar
from converters.grammar.match import Matcher, State, build_tables
from converters.grammar.match.program import Program
from converters.grammar.passes import prepare
from converters.limits import Budget
from converters.regex import regex_dfa
from tests.converters.automata.test_algebra import TEXTS, patterns
from tests.oracle import Oracle

VALUES = [
    "", "a", '"', "\\", "/", "\n\r\t\b\f", "\x00", "\x1f", "\x7f", "é", "ß—日本", "\ud7ff\ue000\uffff", "😀",
    "\U00010000\U0010ffff", "mixed é\n😀/\"",
]  # fmt: skip


def grammar(dfa: Dfa, spelling: Spelling | None = None) -> Grammar:
    book = RuleBook()
    return book.build(to_expr(dfa, book, "s", spelling))


def matcher(dfa: Dfa, spelling: Spelling | None = None) -> Matcher:
    return Matcher.from_tables(build_tables(prepare(grammar(dfa, spelling), Budget())))


def dfa(pattern: str) -> Dfa:
    return regex_dfa(pattern, "match", Budget())


@given(patterns)
@settings(max_examples=40, deadline=None)
def test_rules_have_the_language_of_the_automaton(pattern: str) -> None:
    automaton = dfa(pattern)
    rules = matcher(automaton)
    assert [text for text in TEXTS if rules.accepts(text)] == [text for text in TEXTS if automaton.accepts(text)]


def spellings(value: str, rng: random.Random) -> str:
    """Some JSON text of `value`, each character spelled by chance."""
    return "".join(rng.choice(_spellings(char)) for char in value)


def _spellings(char: str) -> list[str]:
    escaped = json.dumps(char)[1:-1]
    hexed = "".join(f"\\u{unit:04x}" for unit in _utf16(char))
    found = [escaped, hexed, hexed.replace("\\u", "\\U").upper().replace("\\U", "\\u")]
    if char == "/":
        found.append("\\/")
    if char >= " " and char not in '"\\':
        found.append(char)
    return found


def _utf16(char: str) -> list[int]:
    raw = char.encode("utf-16-be")
    return [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]


@pytest.mark.parametrize(
    "pattern", [r"[\s\S]*", r"[^a]*", r'(?:"|\\|/|[\n\x00-\x1f]|é|😀|[a-c—]|\x7f|日)*', r"\p{L}+[^\p{L}]", r"\W{0,20}"]
)
def test_every_spelling_of_json_is_read_and_nothing_else(pattern: str) -> None:
    automaton, rng = dfa(pattern), random.Random(1)
    rules = matcher(automaton, JSON)
    drawn = [random_word(automaton, rng) or "" for _ in range(20)]
    for value in [*VALUES, *drawn]:
        if "\ud7ff" in value and pattern != r"[\s\S]*":
            continue
        text = spellings(value, rng)
        assert json.loads(f'"{text}"') == value
        assert rules.accepts(text) == automaton.accepts(value), (value, text)
        broken = list(text)
        if broken:
            broken[rng.randrange(len(broken))] = rng.choice('\\"uDd8x\n')
        assert rules.accepts("".join(broken)) == _holds(automaton, "".join(broken))


def _holds(automaton: Dfa, text: str) -> bool:
    try:
        value = json.loads(f'"{text}"')
        value.encode()
    except ValueError:  # not JSON, or a lone surrogate
        return False
    return automaton.accepts(value)


@pytest.mark.parametrize("value", VALUES)
def test_dumps_spells_as_json_dumps_does(value: str) -> None:
    automaton = dfa(r"[\s\S]*")
    escaped, raw = json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
    for spelling, wanted in ((DUMPS, {escaped, raw}), (DUMPS_ASCII, {escaped}), (DUMPS_RAW, {raw})):
        rules = matcher(automaton, spelling)
        rng = random.Random(2)
        texts = {escaped, raw, *(spellings(value, rng) for _ in range(20))}
        for text in texts:
            if text in wanted:
                assert rules.accepts(text)
            elif spelling is not DUMPS:  # which may mix, character by character
                assert not rules.accepts(text), text


def test_llama_cpp_reads_spelled_rules_alike(oracle: Oracle) -> None:
    rng = random.Random(3)
    for pattern in (r'[^"x]{2,5}', r"\d+|[é-ÿ]{1,3}\n?", r"[\s\S]{0,3}"):
        automaton = dfa(pattern)
        gbnf = print_grammar(grammar(automaton, JSON))
        values = [random_word(automaton, rng) or "" for _ in range(15)] + ["x", "xx\n", "é"]
        texts = [spellings(value, rng) for value in values]
        assert oracle.accepts(gbnf, texts) == [automaton.accepts(value) for value in values]


def test_a_count_stays_a_count() -> None:
    for spelling in (None, JSON):
        automaton = bounded(dfa("[a-z]+"), 0, 2500, Budget())
        assert len(print_grammar(grammar(automaton, spelling))) < 2000
        rules = matcher(automaton, spelling)
        assert rules.accepts("z" * 2500)
        assert not rules.accepts("z" * 2501)
        assert not rules.accepts("")


def test_a_large_spelled_automaton_stays_small_and_exact(oracle: Oracle) -> None:
    automaton = bounded(regex_dfa(r"^[\w.+-]+@[a-z\d-]+\.[a-z\d.-]+$", "search", Budget()), 5, 100, Budget())
    gbnf = print_grammar(grammar(automaton, JSON))
    assert len(gbnf) < 60_000
    good, long = "bob@example.com", "a" * 90 + "@" + "example.com"
    assert oracle.accepts(gbnf, [good, good.replace("@", "\\u0040"), long, "@x.y", "bob@example"]) == [
        True,
        True,
        False,
        False,
        False,
    ]


DETERMINISTIC = [
    r"(a|ab|abc)*x?",
    r"[\w.+-]+@[\w-]+\.[\w.-]+",
    r"(?:(?!ab).)*",
    r"(?:a|b)*a(?:a|b){3}",
    r"\d{1,3}(?:,\d{3})*(?:\.\d+)?",
    r".*foo.*",
]


@pytest.mark.parametrize("spelling", [None, JSON])
@pytest.mark.parametrize("pattern", DETERMINISTIC)
def test_every_character_is_read_in_one_way(pattern: str, spelling: Spelling | None) -> None:
    automaton, rng = dfa(pattern), random.Random(6)
    rules = Matcher(Program.from_bytes(build_tables(prepare(grammar(automaton, spelling), Budget()))), max_stacks=1000)
    for _ in range(20):
        value = random_word(automaton, rng) or ""
        state: State | None = rules.start
        for char in spellings(value, rng) if spelling else value:
            assert state is not None
            reading = [cell for cell in state.cells if char in rules.next_chars(State((cell,), None))]
            assert len(reading) == 1
            state = rules.advance(state, char)
