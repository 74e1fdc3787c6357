"""Every pass keeps the language, and the whole of them makes what llama.cpp and the matcher read alike."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from converters.errors import LimitExceeded, Unsatisfiable, UnsupportedFeature
from converters.grammar.charset import CharSet
from converters.grammar.expr import NEVER, Chars, Grammar, Lit, Ref, Rep, alt, lit, opt, rep, seq
from converters.grammar.gbnf import print_grammar, print_prepared
from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher, build_tables
from converters.grammar.match.probe import reach_of
from converters.grammar.passes import TIDY_AGAIN, prepare, printable
from converters.grammar.passes.alike import join_alike_rules
from converters.grammar.passes.corners import LeftCorners
from converters.grammar.passes.ending import drop_endless, drop_unreachable
from converters.grammar.passes.fixpoint import is_nullable, nullable_rules
from converters.grammar.passes.inline import inline_small_rules
from converters.grammar.passes.left_recursion import remove_left_recursion
from converters.grammar.passes.nesting import cut_deep_expressions
from converters.grammar.passes.nonempty import collapse, strip_nullable_items
from converters.grammar.passes.prefix import factor_prefixes
from converters.grammar.passes.recursion import share_recursive_calls
from converters.grammar.passes.spell import drop_unspellable
from converters.grammar.passes.walk import nodes
from converters.limits import Budget, Limits
from tests.converters.grammar.language import TEXTS, grammars, sentences
from tests.draws import draws
from tests.oracle import Oracle

TIDY = (
    cut_deep_expressions,
    drop_unspellable,
    drop_endless,
    drop_unreachable,
    inline_small_rules,
    strip_nullable_items,
    factor_prefixes,
)
"""What `prepare` does at first, each pass by itself."""
FEW_OR_MANY = draws(8, 25)


def prepared(grammar: Grammar) -> Grammar:
    return prepare(grammar, Budget())


@FEW_OR_MANY
def test_every_pass_keeps_the_language(n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None, suppress_health_check=list(HealthCheck))
    @given(grammars())
    def check(grammar: Grammar) -> None:
        language = sentences(grammar)
        for run in (*TIDY, remove_left_recursion, *TIDY_AGAIN, join_alike_rules, share_recursive_calls):
            try:
                grammar = run(grammar, Budget())
            except Unsatisfiable:
                assert not language
                return
            except UnsupportedFeature:
                return
            assert sentences(grammar) == language, run.__name__
        assert sentences(printable(grammar)) == language

    check()


@FEW_OR_MANY
def test_a_prepared_grammar_can_be_walked(n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None, suppress_health_check=list(HealthCheck))
    @given(grammars())
    def check(grammar: Grammar) -> None:
        try:
            ready = prepared(grammar)
        except (Unsatisfiable, UnsupportedFeature, LimitExceeded):
            return
        assert not LeftCorners.of(ready, Budget()).recursive_parts
        nullable = nullable_rules(ready, Budget())
        repeated = [
            node.item for expr in ready.rules.values() for node in nodes(expr) if isinstance(node, Rep) and node.max != 1
        ]
        assert not any(is_nullable(item, nullable) for item in repeated)
        assert drop_unreachable(ready, Budget()) is ready
        assert drop_endless(ready, Budget()) is ready

    check()


@FEW_OR_MANY
def test_llama_cpp_and_the_matcher_read_it_as_it_was_meant(oracle: Oracle, n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None, suppress_health_check=list(HealthCheck))
    @given(grammars())
    def check(grammar: Grammar) -> None:
        try:
            ready = prepared(grammar)
            matcher = Matcher.from_tables(build_tables(ready))
            reach_of(printable(ready), Budget())
        except (Unsatisfiable, UnsupportedFeature, LimitExceeded):
            return
        meant = [text in sentences(grammar) for text in TEXTS]
        assert oracle.accepts(print_grammar(ready), TEXTS) == meant
        assert [matcher.accepts(text) for text in TEXTS] == meant

    check()


@FEW_OR_MANY
def test_parsing_what_was_printed_gives_the_same_language(n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None, suppress_health_check=list(HealthCheck))
    @given(grammars())
    def check(grammar: Grammar) -> None:
        assert sentences(parse_gbnf(print_grammar(grammar))) == sentences(grammar)

    check()


def test_left_recursion_of_every_kind_goes() -> None:
    for text in (
        'root ::= root "a" | "b"',
        'root ::= x "a" | "b"\nx ::= y | "c"\ny ::= root "b" | x "c"',
        'root ::= x root "a" | "b"\nx ::= "" | "c"',
        'root ::= y root "a" | "b"\nx ::= "" | "c"\ny ::= x x',
        'root ::= root root | "a" | ""',
        'root ::= root | "a"',
        'root ::= (root "a"){0,2} "b"',
        'root ::= x\nx ::= x? y | "a"\ny ::= root | "b" y',
    ):
        grammar = parse_gbnf(text)
        ready = prepared(grammar)
        assert sentences(ready) == sentences(grammar), text
        assert sentences(remove_left_recursion(strip_nullable_items(grammar, Budget()), Budget())) == sentences(grammar), text


def test_an_ambiguous_operator_becomes_a_list() -> None:
    text = 'root ::= root "+" root | root "*" root | "(" root ")" | [0-9]+'
    ready = prepared(parse_gbnf(text))
    reach_of(printable(ready), Budget())
    matcher = Matcher.from_tables(build_tables(ready))
    assert [matcher.accepts(text) for text in ("1+2*(3+4)+5", "1", "1+", "(1", "")] == [True, True, False, False, False]
    grammar = parse_gbnf('root ::= root "a" root | "b" | root "c" | ""')
    assert sentences(prepared(grammar)) == sentences(grammar)


def test_left_recursion_through_too_many_rules_is_refused_by_name() -> None:
    text = "root ::= r0\n" + "\n".join(f'r{i} ::= r{(i + 1) % 90} "{i}" | r{(i + 7) % 90} | "x"' for i in range(90))
    with pytest.raises(UnsupportedFeature, match=r"rule 'r\d+' is left-recursive"):
        prepared(parse_gbnf(text))


def test_an_empty_language_is_unsatisfiable() -> None:
    for text in (
        'root ::= "a" root',
        "root ::= [z-a]",
        'root ::= x\nx ::= "a" y\ny ::= x y',
        'root ::= "\\x00"',
        "root ::= root",
    ):
        with pytest.raises(Unsatisfiable):
            prepared(parse_gbnf(text))


def test_dead_ends_are_taken_out() -> None:
    ready = drop_unreachable(
        drop_endless(parse_gbnf('root ::= "a" | "b" dead | [z-a] "c"\ndead ::= "c" dead'), Budget()), Budget()
    )
    assert ready == Grammar({"root": lit("a")})
    assert drop_endless(Grammar({"root": rep(Ref("x")), "x": seq(Ref("x"), lit("a"))}), Budget()).rules["root"] == seq()


def test_unspellable_characters_are_taken_out() -> None:
    grammar = Grammar({"root": alt(Chars(CharSet.span(0, 0x7A)), Lit("a\0b"), Lit("\ud800"))})
    assert drop_unspellable(grammar, Budget()) == Grammar({"root": Chars(CharSet.span(1, 0x7A))})


def test_prefixes_are_shared() -> None:
    factored = factor_prefixes(parse_gbnf('root ::= "abc" | "abd" | x "+" | x | "-" | "*"\nx ::= "x" x | "y"'), Budget())
    assert factored.rules["root"] == alt(
        seq(lit("ab"), Chars(CharSet.of("cd"))), seq(Ref("x"), opt(lit("+"))), Chars(CharSet.of("*-"))
    )


def test_recursive_calls_are_shared() -> None:
    grammar = parse_gbnf('root ::= x | y | "1"\nx ::= "[" root "a"\ny ::= "[" root "b"')
    assert share_recursive_calls(grammar, Budget()).rules == {
        "root": alt(seq(lit("["), Ref("root"), Chars(CharSet.of("ab"))), lit("1"))
    }


def test_calls_that_lead_nowhere_are_left_alone() -> None:
    """Two readings of what doesn't lead back to them stay two, however deep it goes itself."""
    grammar = parse_gbnf('root ::= x | y\nx ::= "[" z "a"\ny ::= "[" z "b"\nz ::= "(" z ")" | "1"')
    assert share_recursive_calls(grammar, Budget()) is grammar


def test_rules_that_differ_in_the_order_of_alternatives_become_one() -> None:
    grammar = parse_gbnf('root ::= x | "1"\nx ::= "[" y | "a"\ny ::= "a" | "[" x')
    assert join_alike_rules(grammar, Budget()).rules == {
        "root": alt(Ref("x"), lit("1")),
        "x": alt(seq(lit("["), Ref("x")), lit("a")),
    }
    grammar = parse_gbnf('root ::= x | y\nx ::= "[" y p | "a"\ny ::= "a" | "[" x q\np ::= "b" | [0-9]+\nq ::= [0-9]+ | "c"')
    assert join_alike_rules(grammar, Budget()) is grammar


def test_a_name_for_a_name_is_resolved() -> None:
    assert inline_small_rules(parse_gbnf('root ::= x y\nx ::= y\ny ::= "a"'), Budget()) == Grammar({"root": lit("aa")})


def test_repetitions_of_repetitions_become_one() -> None:
    a = lit("a")
    assert collapse(Rep(Rep(a, 1, 3), 0, 100)) == Rep(a, 0, 300)
    assert collapse(Rep(Rep(a, 2, 2), 3, 3)) == Rep(a, 6, 6)
    assert collapse(Rep(Rep(a, 2, None), 1, None)) == Rep(a, 2, None)
    for gap in (Rep(Rep(a, 2, 2), 0, None), Rep(Rep(a, 2, None), 0, 1), Rep(Rep(a, 3, 4), 1, 2)):
        assert collapse(gap) == gap


def test_collapsing_keeps_every_count() -> None:
    for low, high in ((0, 1), (0, None), (1, 2), (2, 2), (2, 3), (3, None)):
        for inner_low, inner_high in ((0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (2, None), (3, 4)):
            grammar = Grammar({"root": Rep(Rep(lit("a"), inner_low, inner_high), low, high)})
            assert sentences(Grammar({"root": collapse(grammar.rules["root"])}), 14) == sentences(grammar, 14)


def test_deep_expressions_are_cut() -> None:
    expr = lit("a")
    for i in range(5000):
        expr = Rep(alt(expr, lit("b")) if i < 10 else expr, 0, 1)
    cut = cut_deep_expressions(Grammar({"root": expr}), Budget())
    assert len(cut.rules) > 100
    matcher = Matcher.from_tables(build_tables(prepared(Grammar({"root": expr}))))
    assert [matcher.accepts(text) for text in ("", "a", "b", "ab")] == [True, True, True, False]


def test_rules_that_begin_in_too_many_ways_are_refused() -> None:
    diamonds = "\n".join(f'r{i} ::= p{i} "x" | q{i} "y"\np{i} ::= r{i + 1} "1"\nq{i} ::= r{i + 1} "2"' for i in range(40))
    with pytest.raises(LimitExceeded, match="ways"):
        LeftCorners.of(parse_gbnf(f'root ::= r0\n{diamonds}\nr40 ::= "e"'), Budget()).check()
    shared = "\n".join(f'r{i} ::= r{i + 1} "x" | r{i + 1} "y"' for i in range(40))
    prepared(parse_gbnf(f'root ::= r0\n{shared}\nr40 ::= "e"'))


def test_a_long_chain_of_rules(oracle: Oracle) -> None:
    chain = "\n".join(f'r{i} ::= "a" r{i + 1} "b"?' for i in range(6000))
    ready = prepare(parse_gbnf(f'root ::= r0\n{chain}\nr6000 ::= "c"'), Budget(Limits(compile_s=30)))
    assert oracle.parse(print_prepared(printable(ready))).ok
    with pytest.raises(LimitExceeded, match="chain"):
        prepared(parse_gbnf("root ::= r0\n" + "\n".join(f'r{i} ::= r{i + 1} "b"' for i in range(6000)) + '\nr6000 ::= "c"'))


def test_counts_are_exact_and_cheap(oracle: Oracle) -> None:
    for low, high in ((0, 2500), (1, 3000), (3, 1001), (1500, 1500), (700, None)):
        ready = prepared(Grammar({"root": Rep(Chars(CharSet.of("ab")), low, high)}))
        gbnf = print_grammar(ready)
        assert len(gbnf) < 12_000
        most = low + 3000 if high is None else high
        sizes = sorted({0, low - 1, low, 255, 256, 257, most, most + 1} - {-1})
        texts = ["a" * size for size in sizes]
        meant = [size >= low and (high is None or size <= high) for size in sizes]
        assert oracle.accepts(gbnf, texts) == meant, (low, high)
        matcher = Matcher.from_tables(build_tables(ready))
        assert [matcher.accepts(text) for text in texts] == meant


def test_nested_counts_are_read_exactly(oracle: Oracle) -> None:
    gbnf = print_grammar(prepared(parse_gbnf('root ::= ("a"{0,100} "b"){0,100}')))
    texts = ["", "ab", "aabb", "a", "b" * 100, "b" * 101, ("a" * 100 + "b") * 100, "a" * 101 + "b", ("a" * 100 + "b") * 101]
    assert oracle.accepts(gbnf, texts) == [True, True, True, False, True, False, True, False, False]


def test_never_can_be_printed(oracle: Oracle) -> None:
    assert oracle.accepts(print_grammar(Grammar({"root": alt(lit("a"), seq(lit("b"), Ref("n"))), "n": NEVER})), ["a", "b"]) == [
        True,
        False,
    ]
