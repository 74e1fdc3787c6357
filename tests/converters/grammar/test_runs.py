"""Runs add readings, no texts; of a loop at most one is alive, whatever the grammar; what is asked first is cheap to follow."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from converters import AnyJson, JsonSchema, compile_constraint
from converters.errors import LimitExceeded, Unsatisfiable, UnsupportedFeature
from converters.grammar.charset import CharSet
from converters.grammar.expr import EMPTY, Expr, Grammar, Ref, alt, chars, lit, seq
from converters.grammar.gbnf import print_prepared
from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher, State
from converters.grammar.match.matcher import TooManyStacks
from converters.grammar.match.tables import lower
from converters.grammar.passes import prepare, printable
from converters.grammar.passes.names import legal_names
from converters.grammar.passes.repetition import split_repetitions
from converters.grammar.passes.runs import write_runs
from converters.limits import Budget
from tests.converters.grammar.language import TEXTS, expressions, sentences
from tests.draws import draws
from tests.oracle import Oracle

PATIENT = settings(deadline=None, suppress_health_check=list(HealthCheck))
LONG = ["ab" * 24, "a" * 48, "c" + "aab" * 16, "ca" + "b" * 48, "cacaca" + "ab" * 24, "bca" + "a" * 48]


@st.composite
def looping(draw: st.DrawFn) -> Grammar:
    """Grammars of loops over characters, each with several ways on, which call one another at any place."""
    calls = st.builds(
        lambda before, between, name, after: seq(before, between, Ref(name), after),
        st.sampled_from([lit("c"), lit("bc"), lit("ca"), chars(CharSet.of("bc"))]),
        st.sampled_from([EMPTY, EMPTY, lit("a"), alt(lit("a"), lit("bb"))]),
        st.sampled_from(["x", "y"]),
        st.sampled_from([EMPTY, lit("c"), lit("a"), Ref("x")]),
    )
    inner = st.one_of(calls, calls, expressions(["x", "y"]))

    def loop(name: str) -> Expr:
        looped = chars(CharSet.of(draw(st.sampled_from(["a", "ab", "abc"]))))
        return alt(draw(calls), draw(inner), draw(st.sampled_from([lit("c"), lit("ca"), EMPTY])), seq(looped, Ref(name)))

    return Grammar({"root": seq(draw(inner), draw(inner)), "x": loop("x"), "y": loop("y")})


def split(grammar: Grammar) -> Grammar:
    return split_repetitions(prepare(grammar, Budget()), Budget())


def with_runs(grammar: Grammar, length: int = 2) -> Grammar:
    return write_runs(grammar, Budget(), min_width=1, length=length)


@draws(6, 20)
def test_the_language_stays(n_draws: int, oracle: Oracle) -> None:
    @settings(PATIENT, max_examples=n_draws)
    @given(looping())
    def stay(grammar: Grammar) -> None:
        try:
            ready = split(grammar)
        except (Unsatisfiable, UnsupportedFeature, LimitExceeded):
            return
        written = with_runs(ready)
        language = sentences(grammar)
        assert sentences(written) == language
        if stacks(ready, TEXTS) < 100:
            assert oracle.accepts(print_prepared(legal_names(written)), TEXTS) == [text in language for text in TEXTS]

    stay()


def stacks(grammar: Grammar, texts: list[str]) -> int:
    """The most stacks that are alive after any beginning of the texts; 200 for more."""
    matcher, most = Matcher(lower(grammar, Budget()), max_stacks=200), 0
    for text in texts:
        state: State | None = matcher.start
        for char in text:
            try:
                state = matcher.advance(state, char)
            except TooManyStacks:
                return 200
            if state is None:
                break
            most = max(most, len(state.cells))
    return most


@draws(6, 20)
def test_runs_dont_pile_up_in_ambiguous_grammars(n_draws: int) -> None:
    @settings(PATIENT, max_examples=n_draws)
    @given(looping())
    def pile_up(grammar: Grammar) -> None:
        try:
            ready = split(grammar)
        except (Unsatisfiable, UnsupportedFeature, LimitExceeded):
            return
        before = stacks(ready, LONG)
        after = stacks(with_runs(ready, 40), LONG)
        assert after <= 8 * before + 8 or before > 20

    pile_up()


def test_a_loop_that_may_begin_at_every_character_has_no_runs_begun_at_each() -> None:
    text = 'root ::= p c "."\np ::= "" | [a-z] p\nc ::= "!" | "?" | [a-z] c'
    assert stacks(printable(prepare(parse_gbnf(text), Budget())), ["a" * 40]) <= 6


@pytest.mark.parametrize("constraint", [AnyJson(), JsonSchema({"type": "object", "properties": {"a": {"type": "string"}}})])
def test_a_json_string_has_one_run_alive(constraint: AnyJson | JsonSchema) -> None:
    form = parse_gbnf(compile_constraint(constraint).gbnf)
    text = '{"a": "' + "some text, with \\n escapes and \\u00e4 more. " * 3
    matcher = Matcher(lower(form, Budget()), max_stacks=100)
    state = matcher.start
    for i, char in enumerate(text):
        following = matcher.advance(state, char)
        assert following is not None
        state = following
        assert len(state.cells) <= (6 if i > 8 else 12), text[:i]
    assert len(state.cells) == 4  # a run, another character, an escape, the end
