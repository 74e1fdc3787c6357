"""The pipeline: what it raises, what it bounds, and the cache in front of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest

from converters import (
    AnyJson,
    Choice,
    CompileOptions,
    Constraint,
    ConversionError,
    Gbnf,
    InvalidSource,
    JsonSchema,
    Lark,
    LimitExceeded,
    Limits,
    Regex,
    Unsatisfiable,
    compile_constraint,
)
from converters import compile as compile_module
from converters.compile import CompileCache, cache_key
from converters.grammar.expr import Alt, Grammar, Lit, Ref, Seq
from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher
from converters.grammar.match.probe import check_sentences
from converters.grammar.passes import prepare, printable
from converters.limits import Budget
from tests.oracle import Oracle

EVERY_KIND: list[tuple[Constraint, str, str]] = [
    (Choice(("yes", "no")), "yes", "y"),
    (Regex("a+b"), "aab", "a"),
    (JsonSchema({"type": "integer"}), "12", "a"),
    (AnyJson(), '{"a":[1,null]}', "{"),
    (AnyJson(object_only=True), '{"a":1}', "1"),
    (Gbnf('root ::= "a" x\nx ::= "b"'), "ab", "a"),
    (Lark('start: "a" B\nB: /b+/'), "abb", "a"),
]


@pytest.mark.parametrize(("constraint", "sentence", "other"), EVERY_KIND, ids=[type(row[0]).__name__ for row in EVERY_KIND])
def test_compiles_every_kind(oracle: Oracle, constraint: Constraint, sentence: str, other: str) -> None:
    compiled = compile_constraint(constraint)
    assert oracle.accepts(compiled.gbnf, [sentence, other]) == [True, False]
    matcher = Matcher.from_tables(compiled.tables)
    assert [matcher.accepts(sentence), matcher.accepts(other)] == [True, False]
    assert compiled.stats.n_rules == compiled.gbnf.count("::=")
    assert compiled.stats.compile_ms > 0


def nested(n: int) -> Any:
    value: Any = {"type": "integer"}
    for _ in range(n):
        value = {"type": "array", "items": value}
    return value


HOSTILE: list[Constraint] = [
    Gbnf("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000),
    Gbnf("root ::= " + "(" * 60_000),
    Gbnf('root ::= "a" root'),
    Gbnf("root ::= root"),
    Gbnf(""),
    Gbnf("\0"),
    Gbnf('root ::= ((root "a" | root "b")* "c"? root?)*'),
    Gbnf("root ::= r0\n" + "\n".join(f'r{i} ::= r{i + 1} "a" | r{i + 2} "b" | r{i + 1} "c" "d"?' for i in range(300))),
    Gbnf("root ::= " + 'x "a" | ' * 500 + "x\nx ::= " + "root? " * 30),
    Gbnf('root ::= ("a" | "a" root | root root)*'),
    Regex("(" * 10_000),
    Regex("(a|b)*a(a|b){17}"),
    Regex("(" * 400 + "a" + ")*" * 400),
    Regex("((a{0,100}){0,100}){0,100}"),
    Regex("[" * 5000),
    Lark("start: " + "(" * 5000 + '"a"' + ")" * 5000),
    Lark("start: start"),
    Lark(""),
    JsonSchema(nested(5000)),
    JsonSchema({"$ref": "#"}),
    JsonSchema({"minLength": -1}),
    JsonSchema("text"),
    JsonSchema({"const": float("nan")}),
    JsonSchema({"pattern": "("}),
    Choice(()),
]


@pytest.mark.parametrize("constraint", HOSTILE, ids=range(len(HOSTILE)))
def test_raises_nothing_but_conversion_errors_and_in_time(constraint: Constraint) -> None:
    started = time.process_time()
    with pytest.raises(ConversionError) as caught:
        compile_constraint(constraint)
    assert str(caught.value)
    assert time.process_time() - started < 3.0  # the limit is 2 s


AMBIGUOUS = [
    Gbnf('root ::= ("a" | "a" root | root root)*'),
    Gbnf("root ::= (x? x?){3,20}\nx ::= [a-c] x? | x x"),
    Lark('start: C x "//"\nx: "b"i /[ab]/ "/" | x start~1..400 y~2\ny: "b"i~0..2 "a"\nC: /a+/\n'),  # doubles in 40 characters
]


@pytest.mark.parametrize("constraint", AMBIGUOUS, ids=range(len(AMBIGUOUS)))
def test_an_ambiguous_grammar_is_refused(constraint: Constraint) -> None:
    with pytest.raises(LimitExceeded, match="ambiguous") as caught:
        compile_constraint(constraint)
    assert caught.value.limit == "grammar_ambiguity"


def test_a_large_schema_is_checked_along_its_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Grammar] = []
    monkeypatch.setattr(compile_module, "check_sentences", lambda form, budget: checked.append(form))
    compile_constraint(JsonSchema({"type": "integer"}))
    assert not checked
    monkeypatch.setattr(compile_module, "_LARGE", 0)
    compile_constraint(JsonSchema({"type": "integer"}))
    assert checked
    compile_constraint(Regex("a+b"))
    assert len(checked) == 1, "a regex is deterministic whatever its size"


def test_the_check_tells_many_readings_from_many_alternatives() -> None:
    many = "root ::= " + " | ".join(f'"a" [a-z]* "{n}"' for n in range(50))
    check_sentences(printable(prepare(parse_gbnf(many), Budget()), Budget()), Budget())
    without_end = Grammar(
        {"root": Alt((Lit("a"), Seq((Lit("a"), Ref("root"), Ref("root"))), Seq((Lit("a"), Ref("root")))))}, "root"
    )
    with pytest.raises(LimitExceeded, match="ambiguous"):
        check_sentences(without_end, Budget())


def test_sizes_are_limited_by_kind() -> None:
    small = CompileOptions(limits=Limits(regex_grammar_bytes=100, grammar_bytes=200))
    with pytest.raises(LimitExceeded, match=r"regex .*has \d+ bytes, more than the limit of 100") as caught:
        compile_constraint(Regex("|".join(f"{c}{c}x{c}y{c}z" for c in "abcdefgh")), small)
    assert (caught.value.limit, caught.value.value) == ("regex_grammar_bytes", 100)
    with pytest.raises(LimitExceeded) as caught:
        compile_constraint(Gbnf('root ::= "' + "a" * 200 + '"'), small)
    assert (caught.value.limit, caught.value.value) == ("grammar_bytes", 200)
    assert compile_constraint(Gbnf('root ::= "' + "a" * 150 + '"'), small)


def test_time_is_limited() -> None:
    with pytest.raises(LimitExceeded, match="longer than 0 s") as caught:
        compile_constraint(Gbnf('root ::= "a"'), CompileOptions(limits=Limits(compile_s=0)))
    assert caught.value.limit == "compile_s"


@pytest.fixture
def _collector_is_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


_OPEN: dict[str, Any] = {
    "properties": {"a": {"type": "string", "pattern": "^a+b"}, "b": {"items": {"$ref": "#"}}},
    "minProperties": 1,
}


@pytest.mark.usefixtures("_collector_is_off")
@pytest.mark.parametrize("constraint", [row[0] for row in EVERY_KIND] + [JsonSchema(_OPEN)])
def test_nothing_is_left_to_the_garbage_collector(constraint: Constraint) -> None:
    compile_constraint(constraint)  # what is kept for good is made
    gc.collect()
    compile_constraint(constraint)
    assert gc.collect() == 0


@pytest.mark.usefixtures("_collector_is_off")
def test_a_compile_that_is_cut_off_gives_its_memory_back_at_once() -> None:
    schema = {"properties": {f"a{i}": {"type": "object"} for i in range(300)}}
    before = len(gc.get_objects())
    with pytest.raises(LimitExceeded) as caught:
        compile_constraint(JsonSchema(schema), CompileOptions(limits=Limits(grammar_bytes=10)))
    assert len(gc.get_objects()) < before + 5000
    assert caught.value.limit == "grammar_bytes"


def test_an_empty_language_is_unsatisfiable() -> None:
    with pytest.raises(Unsatisfiable):
        compile_constraint(Gbnf('root ::= "a" dead\ndead ::= [z-a]'))


def test_notes_reach_the_caller() -> None:
    assert "defined again" in compile_constraint(Gbnf('root ::= x\nx ::= "a"\nx ::= "b"')).notes[0]


# ---- the cache


def distinct(values: Sequence[Any]) -> bool:
    return len({cache_key(JsonSchema({"const": value})) for value in values}) == len(values)


def test_keys_tell_apart_what_python_calls_equal() -> None:
    assert distinct([1, True, 1.0, "1", None, [1], {"a": 1}])
    assert distinct([0, False, 0.0, -0.0, "", [], {}])
    assert distinct([Decimal("0.1"), Decimal("0.10000000000000001")])
    assert cache_key(JsonSchema({"a": 1, "b": 2})) != cache_key(JsonSchema({"b": 2, "a": 1}))
    assert cache_key(JsonSchema({})) != cache_key(JsonSchema({}, formats="annotation"))
    assert cache_key(JsonSchema({})) != cache_key(JsonSchema({}), CompileOptions(lenient=True))
    assert cache_key(Regex("a")) != cache_key(Gbnf("a")) != cache_key(Lark("a"))
    assert cache_key(JsonSchema({"a": (1, 2)})) == cache_key(JsonSchema({"a": [1, 2]}))
    assert cache_key(Regex("a")) == cache_key(Regex("a"), CompileOptions())


def test_what_is_no_json_has_no_key() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value in (object(), {1, 2}, loop):
        with pytest.raises(InvalidSource):
            cache_key(JsonSchema({"const": value}))  # type: ignore[dict-item]


def test_the_cache_gives_back_what_it_keeps() -> None:
    cache = CompileCache()
    first, hit = cache.compile(Regex("a+"))
    assert not hit
    second, hit = cache.compile(Regex("a+"))
    assert hit
    assert second is first
    assert cache.get("unknown") is None
    assert cache.get(cache_key(Regex("a+"))) is first


def test_the_cache_is_bounded_in_bytes_and_drops_the_longest_unused() -> None:
    cache = CompileCache(max_bytes=6000)
    for i in range(40):
        cache.compile(Regex(f"a{i}"))
        cache.compile(Regex("kept"))
        assert cache.n_bytes <= 6000
    assert cache.get(cache_key(Regex("kept"))) is not None
    assert cache.get(cache_key(Regex("a0"))) is None
    assert 1 < len(cache) < 20
    cache.compile(Choice(tuple(f"{i:08d}" for i in range(2000))))
    assert cache.get(cache_key(Regex("kept"))) is not None
    assert cache.n_bytes <= 6000


def test_errors_are_not_kept() -> None:
    cache = CompileCache()
    for _ in range(2):
        with pytest.raises(ConversionError):
            cache.compile(Gbnf("root ::= x"))
    assert len(cache) == 0
