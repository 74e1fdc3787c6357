"""The reference matcher: llama.cpp's answers, and its own questions (what is forced, what is shortest, what may follow)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from converters.errors import LimitExceeded, Unsatisfiable, UnsupportedFeature
from converters.grammar.charset import CharSet
from converters.grammar.expr import Grammar, Token
from converters.grammar.gbnf import print_grammar
from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher, State, build_tables
from converters.grammar.match.matcher import MAX_FORCED
from converters.grammar.match.probe import reach_of
from converters.grammar.match.program import Program
from converters.grammar.passes import prepare, printable
from converters.limits import Budget
from tests.converters.grammar.language import grammars
from tests.draws import draws
from tests.oracle import Oracle, OracleFailed

JSON = r"""
root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (pair ("," " "? pair)*)? "}"
pair ::= string ":" " "? value
array ::= "[" (value ("," " "? value)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,3})?
"""


def matcher_of(text: str, max_entries: int | None = None) -> Matcher:
    tables = build_tables(prepare(parse_gbnf(text), Budget()))
    return Matcher.from_tables(tables, max_entries) if max_entries else Matcher.from_tables(tables)


def after(matcher: Matcher, text: str) -> State:
    state = matcher.advance(matcher.start, text)
    assert state is not None
    return state


# ---- questions


def test_says_where_a_text_stops() -> None:
    matcher = matcher_of('root ::= "ab" [0-9]+ ("!" | "?")?')
    verdict = matcher.check("ab12x")
    assert (verdict.accepted, verdict.offset, verdict.may_end) == (False, 4, True)
    assert verdict.allowed == CharSet.of("0123456789!?")
    verdict = matcher.check("ab")
    assert (verdict.accepted, verdict.offset, verdict.may_end) == (False, 2, False)
    assert matcher.check("ab1?").accepted
    assert not matcher.check("ab1?").allowed


def test_forced_text_ends_where_there_is_a_choice_or_an_end() -> None:
    matcher = matcher_of('root ::= "{" ("\\"name\\": \\"" [a-z]+ "\\", \\"x\\": " ("1" | "12") "}" | "")')
    assert matcher.forced(matcher.start) == "{"
    assert matcher.forced(after(matcher, "{")) == ""  # the end is an alternative
    assert matcher.forced(after(matcher, '{"')) == 'name": "'
    assert matcher.forced(after(matcher, '{"name": "ab"')) == ', "x": 1'
    assert matcher.forced(after(matcher, '{"name": "ab", "x": 12')) == "}"
    matcher = matcher_of('root ::= "é" "a"{3} "c" | "éaaab"')
    assert matcher.forced(matcher.start) == "éaaa"


def test_forced_text_of_an_ambiguous_grammar() -> None:
    matcher = matcher_of('root ::= x | y\nx ::= "abc" "d"?\ny ::= "ab" "cd" "e"?')
    assert matcher.forced(matcher.start) == "abc"
    assert matcher.forced(after(matcher, "a")) == "bc"


def test_very_long_forced_text_comes_in_parts() -> None:
    matcher = matcher_of('root ::= "a"{10000}')
    assert matcher.forced(matcher.start) == "a" * MAX_FORCED
    assert matcher.forced(after(matcher, "a" * 9900)) == "a" * 100


def test_next_chars_and_tokens() -> None:
    matcher = matcher_of('root ::= [a-c] | "é" | <think> "x" | !<[7]>')
    assert matcher.next_chars(matcher.start) == CharSet.of("abcé")
    assert set(matcher.next_tokens(matcher.start)) == {Token("<think>"), Token(7, negated=True)}
    assert not matcher.may_end(matcher.start)
    assert matcher.may_end(after(matcher, "a"))


@pytest.mark.parametrize(
    ("text", "prefix", "length"),
    [
        ('root ::= "a" root "b" | "c"', "", 1),
        ('root ::= "a" root "b" | "c"', "aaa", 4),
        ('root ::= x{3,5} "!"\nx ::= "ab" | "c" x', "", 7),
        ('root ::= x{3,5} "!"\nx ::= "ab" | "c" x', "abca", 4),
        ("root ::= [a-z]{1000,}", "abc", 997),
        ('root ::= "a"* ("bbbb" | "cc")', "aab", 3),
        ('root ::= "{" ("}" | "\\"k\\":" root "}")', '{"k":{', 2),
        ("root ::= [^a-z]", "", 1),
    ],
)
def test_shortest_completion(text: str, prefix: str, length: int) -> None:
    matcher = matcher_of(text)
    state = after(matcher, prefix)
    completion = matcher.shortest_completion(state)
    assert len(completion) == matcher.least_length(state) == length
    assert matcher.accepts(prefix + completion)


def test_shortest_completion_with_tokens() -> None:
    matcher = matcher_of('root ::= "a" <think> [0-9] <[7]> | "abcdef"')
    assert matcher.shortest_pieces(after(matcher, "a")) == [Token("<think>"), "0", Token(7)]
    assert matcher.shortest_completion(after(matcher, "a")) == "<think>0<[7]>"
    assert matcher.least_length(after(matcher, "ab")) == 4


def test_random_sentences_use_everything_and_stay_short() -> None:
    matcher = matcher_of(JSON)
    sentences = [matcher.random_sentence(Random(seed), 80) for seed in range(400)]
    assert all(matcher.accepts(sentence) for sentence in sentences)
    assert max(map(len, sentences)) <= 90
    assert {sentence[0] for sentence in sentences} >= set('{["-tfn0')
    assert any(r"\u" in sentence for sentence in sentences)
    long = matcher_of('root ::= "a"{50} "b"*')
    assert long.random_sentence(Random(1), 10) == "a" * 50
    fifty = matcher_of("root ::= " + " | ".join(f'"{i:02d}"' for i in range(50)))
    assert {fifty.random_sentence(Random(seed)) for seed in range(400)} == {f"{i:02d}" for i in range(50)}


def test_random_sentences_need_no_depth() -> None:
    matcher = matcher_of('root ::= "(" root ")" | "x"')
    sentence = "(" * 5_000 + "x" + ")" * 5_000
    assert matcher.accepts(sentence)
    assert len(matcher.shortest_completion(after(matcher, "(" * 5_000))) == 5_001


# ---- memory and tables


def test_forgetting_changes_no_answer() -> None:
    rng = Random(7)
    fresh, forgetful = matcher_of(JSON), matcher_of(JSON, max_entries=40)
    held = [(forgetful.start, "")]
    for _ in range(60):
        text = fresh.random_sentence(rng, 60)
        assert forgetful.accepts(text)
        assert not forgetful.accepts(text + "}")
        cut = rng.randint(0, len(text))
        held.append((after(forgetful, text[:cut]), text[:cut]))
        assert len(forgetful._cells) + forgetful._n_entries <= 40 + 60
    for state, prefix in held:
        same = after(fresh, prefix)
        assert forgetful.next_chars(state) == fresh.next_chars(same)
        assert forgetful.forced(state) == fresh.forced(same)
        assert forgetful.shortest_completion(state) == fresh.shortest_completion(same)


def test_a_long_walk_through_many_states_stays_small() -> None:
    matcher = matcher_of("root ::= [a-z]{0,300000}", max_entries=1000)
    assert matcher.accepts("a" * 12_000)
    assert len(matcher._cells) + len(matcher._states) + matcher._n_entries < 4_000


def test_tables_survive_the_journey() -> None:
    tables = build_tables(prepare(parse_gbnf(JSON + 'x ::= <think> !<[12]> "a"{70000,}'), Budget()))
    program = Program.from_bytes(tables)
    assert program.to_bytes() == tables
    assert len(tables) < 3000
    with pytest.raises(ValueError, match="not the tables"):
        Matcher.from_tables(b"nonsense that is long enough to be read as a header, if anybody did")


# ---- agreement with llama.cpp


def by_first_byte(pieces: list[bytes]) -> dict[int, list[tuple[int, bytes]]]:
    """The tokens of a vocabulary and their pieces, by the piece's first byte."""
    found: dict[int, list[tuple[int, bytes]]] = {}
    for token, piece in enumerate(pieces):
        if piece:
            found.setdefault(piece[0], []).append((token, piece))
    return found


def chunks(text: bytes, pieces: list[bytes], begun: dict[int, list[tuple[int, bytes]]], rng: Random) -> list[int]:
    """`text` as random tokens of the vocabulary, byte tokens in the middle of characters among them."""
    tokens = []
    at = 0
    while at < len(text):
        fitting = [token for token, piece in begun[text[at]] if text.startswith(piece, at)]
        tokens.append(rng.choice(fitting))
        at += len(pieces[tokens[-1]])
    return tokens


def walk(matcher: Matcher, tokens: list[int], pieces: list[bytes]) -> bool:
    state: State | None = matcher.start
    for token in tokens:
        state = matcher.advance_token(state, token, pieces[token]) if state is not None else None
    return state is not None and matcher.may_end(state)


def mutate(text: bytes, rng: Random) -> bytes:
    if not text or rng.random() < 0.3:
        return text
    at = rng.randrange(len(text))
    kind = rng.randrange(3)
    if kind == 0:
        return text[:at] + text[at + 1 :]
    if kind == 1:
        return text[:at] + bytes([rng.randint(1, 255)]) + text[at:]
    return text[:at] + bytes([rng.randint(1, 255)]) + text[at + 1 :]


@draws(5, 15)
def test_agrees_on_random_grammars(n_draws: int, oracle: Oracle) -> None:
    @settings(max_examples=n_draws, deadline=None, suppress_health_check=list(HealthCheck))
    @given(grammars(), st.randoms(use_true_random=False))
    def agree(grammar: Grammar, rng: Random) -> None:
        try:
            ready = prepare(grammar, Budget())
            matcher = Matcher.from_tables(build_tables(ready))
            reach_of(printable(ready), Budget())
        except (Unsatisfiable, UnsupportedFeature, LimitExceeded):
            return
        pieces = oracle.token_pieces()
        texts = [mutate(matcher.random_sentence(Random(rng.random()), 30).encode(), rng) for _ in range(8)]
        begun = by_first_byte(pieces)
        sequences = [chunks(text, pieces, begun, Random(rng.random())) for text in texts]
        assert oracle.walk_tokens(print_grammar(ready), sequences) == [walk(matcher, tokens, pieces) for tokens in sequences]

    agree()


@pytest.mark.parametrize(
    "text",
    [
        JSON,
        "root ::= [a-zé-ü中-文😀-😎]*",
        "root ::= [^\\x00-\\x7f]{0,4} | [\\u0800-\\u0fff\\U00010000-\\U00010fff]+",
        'root ::= ("中" | "文" | "日本" | "é" | "e")+',
        'root ::= "a" <think> ("b" | <|im_start|>)* | !<think> "c" | <[5]>{2}',
        'root ::= (<think> | !<think> "x"?)+ "é"',
    ],
    ids=range(6),
)
def test_agrees_on_bytes_and_tokens(oracle: Oracle, text: str) -> None:
    matcher = matcher_of(text)
    gbnf = print_grammar(prepare(parse_gbnf(text), Budget()))
    pieces = oracle.token_pieces()
    special = {name: pieces.index(name.encode()) for name in ("<think>", "<|im_start|>")}
    matcher.bind_tokens(special)
    begun, rng = by_first_byte(pieces), Random(3)
    sequences = []
    for _ in range(300):
        sentence = mutate(matcher.random_sentence(rng, 40).encode(), rng)
        tokens = chunks(sentence, pieces, begun, rng)
        if rng.random() < 0.3:
            tokens.insert(rng.randint(0, len(tokens)), rng.choice([*special.values(), 5, rng.randrange(7, len(pieces))]))
        sequences.append(tokens)
    verdicts = oracle.walk_tokens(gbnf, sequences)
    mine = [walk(matcher, tokens, pieces) for tokens in sequences]
    wrong = [[pieces[token] for token in tokens] for tokens, a, b in zip(sequences, verdicts, mine, strict=True) if a != b]
    assert not wrong
    assert True in verdicts
    assert False in verdicts


def test_a_token_that_would_end_llama_cpp_is_refused(oracle: Oracle) -> None:
    """`apply` takes `{"` after "{" for a token that isn't 3, `accept` doesn't: the engine must ask the matcher first."""
    text = 'root ::= "{" !<[3]>'
    pieces = oracle.token_pieces()
    token = pieces.index(b'{"')
    with pytest.raises(OracleFailed, match="died"):
        oracle.walk_tokens(text, [[token]])
    matcher = matcher_of(text)
    assert matcher.advance_token(matcher.start, token, pieces[token]) is None


def test_half_characters() -> None:
    matcher = matcher_of('root ::= ("é" | "中")+')
    state = matcher.advance_bytes(matcher.start, b"\xe4\xb8")
    assert state is not None
    assert not matcher.may_end(state)
    assert matcher.next_chars(state) == CharSet.of("中")
    assert matcher.advance(state, "中") is None
    assert matcher.advance_bytes(state, b"\xad\xc3") is not None
    assert matcher.advance_bytes(state, b"\xae") is None
    assert matcher.advance_bytes(matcher.start, b"\xe5") is None
    assert matcher.advance_bytes(matcher.start, b"") is None
    assert matcher.advance_bytes(matcher.start, b"\x80") is None
    assert matcher.advance_bytes(matcher.start, b"\0") is None


def test_tokens_by_name() -> None:
    matcher = matcher_of('root ::= <think> "a" !<[7]>')
    state = matcher.advance_symbol(matcher.start, "<think>")
    assert state is not None
    assert matcher.advance(matcher.start, "<think>") is None
    state = matcher.advance(state, "a")
    assert state is not None
    assert matcher.advance_symbol(state, 7) is None
    end = matcher.advance_symbol(state, 8)
    assert end is not None
    assert matcher.may_end(end)
    assert matcher.tokens == (Token("<think>"), Token(7, negated=True))
