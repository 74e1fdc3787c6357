"""Structural tags: each form and each format type by texts that fit and texts that don't, judged by matcher and llama.cpp."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converters.automata.until import until
from converters.compile import Compiled, CompileOptions, compile_constraint
from converters.constraint import Gbnf, JsonValue, StructuralTag
from converters.errors import ConversionError, InvalidSource, UnsupportedFeature
from converters.grammar.expr import EMPTY, RuleBook, lit
from converters.grammar.gbnf import print_grammar
from converters.grammar.match import Matcher
from converters.limits import Budget, Limits
from tests.draws import draws
from tests.oracle import Oracle

A: dict[str, JsonValue] = {
    "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False,
}  # fmt: skip
JSON_A: dict[str, JsonValue] = {"type": "json_schema", "json_schema": A}
ANY: dict[str, JsonValue] = {"type": "any_text"}
YES: dict[str, JsonValue] = {"type": "const_string", "value": "yes"}


def tag(begin: JsonValue, content: JsonValue, end: JsonValue) -> dict[str, JsonValue]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def compiled(spec: JsonValue) -> Compiled:
    return compile_constraint(StructuralTag(spec))


F = tag("<f=a>", JSON_A, "</f>")
G = tag("<f=b>", YES, "</f>")
FA, FB = '<f=a>{"a": 1}</f>', "<f=b>yes</f>"

FORMATS: dict[str, tuple[dict[str, JsonValue], list[str], list[str]]] = {
    # name: format, texts that fit, texts that don't
    "const_string": (YES, ["yes"], ["", "no", "yes "]),
    "json_schema": (JSON_A, ['{"a": 1}', '{"a":-2}'], ["{}", '{"a": "x"}', '{"a": 1} ']),
    "json_schema as text": ({"type": "json_schema", "json_schema": '{"type": "integer"}'}, ["1"], ["x"]),
    "regex": ({"type": "regex", "pattern": "a+b"}, ["aab"], ["b", "aabb"]),
    "gbnf": ({"type": "grammar", "grammar": 'root ::= "(" root? ")"'}, ["(())"], ["(()"]),
    "lark": ({"type": "grammar", "grammar": 'start: "x" start | "y"'}, ["xxy"], ["xx"]),
    "any_text": (ANY, ["", "é\n<"], []),
    "any_text that excludes": (dict(ANY, excludes=["ab", "abc", "x"]), ["", "a", "ba", "aa"], ["ab", "aab", "x", "caby"]),
    "any_text, short": (dict(ANY, max_chars=3), ["", "é<\n"], ["abcd"]),
    "any_text, short, that excludes": (dict(ANY, max_chars=3, excludes=["ab"]), ["aa", "bab"[:2]], ["abc", "bbab", "cccc"]),
    "sequence": ({"type": "sequence", "elements": [YES, JSON_A]}, ['yes{"a": 1}'], ["yes", '{"a": 1}yes']),
    "or": ({"type": "or", "elements": [YES, JSON_A]}, ["yes", '{"a": 1}'], ["", "yesyes"]),
    "optional": ({"type": "optional", "content": YES}, ["", "yes"], ["yesyes"]),
    "plus": ({"type": "plus", "content": YES}, ["yes", "yesyes"], ["", "ye"]),
    "star": ({"type": "star", "content": YES}, ["", "yesyes"], ["ye"]),
    "repeat": ({"type": "repeat", "content": YES, "min": 1, "max": 2}, ["yes", "yesyes"], ["", "yesyesyes"]),
    "repeat without end": ({"type": "repeat", "content": YES, "min": 2, "max": -1}, ["yesyes", "yes" * 5], ["yes"]),
    "tag": (F, [FA], ["<f=a></f>", FA + " ", " " + FA]),
    "tag with several ends": (tag("<", YES, [">", "/>"]), ["<yes>", "<yes/>"], ["<yes", "<yes//>"]),
    "free text in a tag": (tag("<t>", ANY, "</t>"), ["<t></t>", "<t>a</x<</t>"], ["<t>", "<t>a</t>b</t>", "<t></t></t>"]),
    "free text in a tag, several ends": (tag("<t>", ANY, ["</t>", "</"]), ["<t>a</"], ["<t>a</t>"]),
    "free text in a tag with an open end": (tag("<t>", ANY, ["</t>", ""]), ["<t>a", "<t>a</t>"], ["<t>a</t>b"]),
    "short free text in a tag": (tag("<", dict(ANY, max_chars=2), ">"), ["<ab>", "<>"], ["<abc>", "<a>>"]),
    "free text last in a sequence": (
        tag("<", {"type": "sequence", "elements": [YES, ANY]}, ">"), ["<yes.>"], ["<yes>>", "<no>"],
    ),
    "free text or not": (tag("<", {"type": "or", "elements": [YES, ANY]}, ">"), ["<yes>", "<x>"], ["<>>"]),
    "optional free text": (tag("<", {"type": "optional", "content": ANY}, ">"), ["<>", "<x>"], ["<>>"]),
    "triggered_tags": (
        {"type": "triggered_tags", "triggers": ["<f="], "tags": [F, G]},
        ["", "text", "<f", FA, f"a<{FA} b {FB}<f", f"{FB}{FB}"],
        ["<f=", "<f=c>", "<f=a>{}</f>", f"{FA}<f=", "a<f=b>no</f>"],
    ),
    "triggered_tags, at least one": (
        {"type": "triggered_tags", "triggers": ["<f="], "tags": [F, G], "at_least_one": True},
        [FA, f"{FA} and {FB}"], ["", "text", f"text{FA}"],
    ),
    "triggered_tags, only one": (
        {"type": "triggered_tags", "triggers": ["<f="], "tags": [F, G], "stop_after_first": True},
        ["", "text", f"text{FA}"], [f"{FA} and", FA + FB],
    ),
    "triggered_tags, exactly one": (
        {"type": "triggered_tags", "triggers": ["<f="], "tags": [F, G], "stop_after_first": True, "at_least_one": True},
        [FA, FB], ["", f"text{FA}", FA + FB],
    ),
    "triggered_tags that exclude": (
        {"type": "triggered_tags", "triggers": ["<f="], "tags": [F], "excludes": ["</", "x"]}, [f"a{FA}"], ["x", f"{FA}</"],
    ),
    "two triggers": (
        {"type": "triggered_tags", "triggers": ["<f=a", "<f=b>", "<g"], "tags": [F, G]},
        [f"<f=c {FA}{FB}"], ["<g", "<f=b>", "<f=ab"],
    ),
    "triggered_tags in a tag": (
        tag("<r>", {"type": "triggered_tags", "triggers": ["<f="], "tags": [F]}, "</r>"),
        [f"<r>a{FA}b</r>", "<r></r>"], [f"<r>a{FA}", "<r>a</r>b</r>", "<r><f=</r>"],
    ),
    "one triggered tag in a tag": (
        tag("<r>", {"type": "triggered_tags", "triggers": ["<f="], "tags": [F], "stop_after_first": True}, "</r>"),
        [f"<r>a{FA}</r>", "<r>b</r>"], [f"<r>a{FA}b</r>"],
    ),
    "tags_with_separator": (
        {"type": "tags_with_separator", "tags": [F, G], "separator": ", "},
        ["", FA, f"{FA}, {FB}, {FA}"], [f"{FA},{FB}", f"{FA}, ", "x"],
    ),
    "tags_with_separator, at least one": (
        {"type": "tags_with_separator", "tags": [F, G], "separator": ",", "at_least_one": True}, [FA, f"{FA},{FB}"], [""],
    ),
    "tags_with_separator, only one": (
        {"type": "tags_with_separator", "tags": [F], "separator": ",", "stop_after_first": True}, ["", FA], [f"{FA},{FA}"],
    ),
    "dispatch": (
        {"type": "dispatch", "rules": [["a=", YES], ["b=", JSON_A]]}, ["", "xa=yes.b={\"a\": 1}", "a"], ["a=no", "b="],
    ),
    "dispatch once": ({"type": "dispatch", "rules": [["a=", YES]], "loop": False}, ["xa=yes", "x"], ["a=yes.", "a=yesa=yes"]),
    "dispatch in a tag, its end not excluded": (
        tag("<r>", {"type": "dispatch", "rules": [["a=", YES]]}, "</r>"), ["<r>x</r>", "<r>a=yes</r>"], ["<r></r></r>"],
    ),
    "qwen_xml_parameter": (
        {"type": "qwen_xml_parameter", "json_schema": {
            "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}},
        ["<parameter=name>Bob</parameter><parameter=age>\n100\n</parameter>", "<parameter=name>\n\"\n</parameter>\n"],
        ["", "<parameter=age>1</parameter>", "<parameter=name>Bob</parameter><parameter=age>x</parameter>"],
    ),
    "json_schema in Qwen's style": (
        {"type": "json_schema", "style": "qwen_xml", "json_schema": A}, ["<parameter=a>1</parameter>"], ['{"a": 1}'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_formats(name: str, oracle: Oracle) -> None:
    format_, accepted, rejected = FORMATS[name]
    result = compiled({"type": "structural_tag", "format": format_})
    matcher = Matcher.from_tables(result.tables)
    texts = [*accepted, *rejected]
    expected = [True] * len(accepted) + [False] * len(rejected)
    assert [matcher.accepts(text) for text in texts] == expected
    assert oracle.accepts(result.gbnf, texts) == expected
    sentences = [matcher.random_sentence(random.Random(seed), max_length=80) for seed in range(3)]
    assert all(oracle.accepts(result.gbnf, sentences))


def test_the_end_of_a_tag_may_be_excluded_inside_it() -> None:
    """As xgrammar's documentation writes it: what ends the tag is excluded from the free text in it."""
    format_ = tag("<r>", {"type": "dispatch", "rules": [["a=", YES]], "excludes": ["</r>"]}, "</r>")
    matcher = Matcher.from_tables(compiled({"format": format_}).tables)
    assert matcher.accepts("<r>x a=yes</r>")
    assert not matcher.accepts("<r>x</r></r>")


LEGACY: dict[str, JsonValue] = {
    "type": "structural_tag",
    "structures": [{"begin": "<f=a>", "schema": A, "end": "</f>"}, {"begin": "<f=b>", "schema": '{"const": 1}', "end": "</f>"}],
    "triggers": ["<f="],
}


def test_the_legacy_form(oracle: Oracle) -> None:
    accepted = ["", "Hello <f", f"x{FA}y<f=b>1</f>"]
    rejected = ["<f=", "<f=b>2</f>", "<f=a>{}</f>"]
    assert oracle.accepts(compiled(LEGACY).gbnf, [*accepted, *rejected]) == [True] * 3 + [False] * 3


def test_xinfers_form(oracle: Oracle) -> None:
    spec: JsonValue = {"tag": "tool_call", "schema": A}
    texts = ['<tool_call>{"a": 1}</tool_call>', '{"a": 1}', 'x<tool_call>{"a": 1}</tool_call>', "<tool_call></tool_call>"]
    assert oracle.accepts(compiled(spec).gbnf, texts) == [True, False, False, False]


TRIGGERED: dict[str, JsonValue] = {"type": "triggered_tags", "triggers": ["<"], "tags": [F]}
BAD: list[tuple[JsonValue, type[ConversionError], str]] = [
    ("x", InvalidSource, ""),
    ({}, InvalidSource, ""),
    ({"type": "structural_tag"}, InvalidSource, ""),
    ({"format": {"type": "lines"}}, InvalidSource, "/format/type"),
    ({"format": {"type": "or", "elements": [YES, {"type": "any"}]}}, InvalidSource, "/format/elements/1/type"),
    ({"format": {"type": "or", "elements": []}}, InvalidSource, "/format/elements"),
    ({"format": {"type": "or", "elements": [1]}}, InvalidSource, "/format/elements/0"),
    ({"format": {"type": "const_string"}}, InvalidSource, "/format/value"),
    ({"format": {"type": "const_string", "value": "x", "valeu": 1}}, InvalidSource, "/format/valeu"),
    ({"format": YES, "triggers": []}, InvalidSource, "/triggers"),
    ({"format": tag("<a>", YES, None)}, InvalidSource, "/format/end"),
    ({"format": tag("<a>", YES, [])}, InvalidSource, "/format/end"),
    ({"format": tag(1, YES, "x")}, InvalidSource, "/format/begin"),
    ({"format": dict(ANY, excludes=[""])}, InvalidSource, "/format/excludes"),
    ({"format": dict(ANY, max_chars=-1)}, InvalidSource, "/format/max_chars"),
    ({"format": dict(ANY, max_tokens=5)}, UnsupportedFeature, "/format/max_tokens"),
    ({"format": {"type": "repeat", "content": YES, "min": 3, "max": 2}}, InvalidSource, "/format/max"),
    ({"format": {"type": "triggered_tags", "triggers": ["<g"], "tags": [F]}}, InvalidSource, "/format/tags/0/begin"),
    ({"format": {"type": "triggered_tags", "triggers": [], "tags": [F]}}, InvalidSource, "/format/triggers"),
    ({"format": {"type": "triggered_tags", "triggers": ["<"], "tags": []}}, InvalidSource, "/format/tags"),
    ({"format": {"type": "triggered_tags", "triggers": ["<"], "tags": [YES]}}, InvalidSource, "/format/tags/0/type"),
    ({"format": dict(TRIGGERED, at_least_one=1)}, InvalidSource, "/format/at_least_one"),
    ({"format": {"type": "json_schema"}}, InvalidSource, "/format/json_schema"),
    ({"format": {"type": "json_schema", "json_schema": "{"}}, InvalidSource, "/format/json_schema"),
    (
        {"format": {"type": "json_schema", "json_schema": {"properties": {"a": {"type": "x"}}}}},
        InvalidSource, "/format/json_schema/properties/a/type",
    ),
    ({"format": {"type": "json_schema", "json_schema": A, "style": "glm_xml"}}, UnsupportedFeature, "/format/style"),
    ({"format": {"type": "json_schema", "json_schema": A, "any_order": True}}, UnsupportedFeature, "/format/any_order"),
    ({"format": {"type": "regex", "pattern": "("}}, InvalidSource, "/format/pattern"),
    ({"format": {"type": "grammar", "grammar": 'root ::= "a'}}, InvalidSource, "/format/grammar"),
    ({"format": {"type": "dispatch", "rules": [["a"]]}}, InvalidSource, "/format/rules/0"),
    ({"format": {"type": "dispatch", "rules": [["", YES]]}}, InvalidSource, "/format/rules/0/0"),
    ({"format": {"type": "token", "token": "[INST]"}}, UnsupportedFeature, "/format/token"),
    ({"format": {"type": "any_tokens"}}, UnsupportedFeature, "/format"),
    (dict(LEGACY, triggers=["<g="]), InvalidSource, "/structures/0/begin"),
    (
        dict(LEGACY, structures=[{"begin": "<f=", "schema": {"type": "x"}, "end": "a"}]),
        InvalidSource, "/structures/0/schema/type",
    ),
    (dict(LEGACY, structures=[{"begin": "<f=", "schema": {}, "ends": "a"}]), InvalidSource, "/structures/0/ends"),
    (dict(LEGACY, structures=[]), InvalidSource, "/structures"),
    ({"tag": "", "schema": A}, InvalidSource, "/tag"),
    ({"tag": "x", "schema": {"type": "x"}}, InvalidSource, "/schema/type"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "error", "path"), BAD, ids=range(len(BAD)))
def test_errors_name_their_place(spec: JsonValue, error: type[ConversionError], path: str) -> None:
    with pytest.raises(error) as caught:
        compiled(spec)
    assert (caught.value.path or "") == path


def test_deep_nesting_is_an_error() -> None:
    format_: Any = YES
    for _ in range(80):
        format_ = {"type": "optional", "content": format_}
    with pytest.raises(InvalidSource):
        compiled({"format": format_})


# ---- tokens


def walk(matcher: Matcher, *steps: str | int) -> bool:
    """Texts and tokens (by id) in order: are they a whole sentence?"""
    state = matcher.start
    for step in steps:
        found = matcher.advance_token(state, step, b"<t>") if isinstance(step, int) else matcher.advance(state, step)
        if found is None:
            return False
        state = found
    return matcher.may_end(state)


def token(which: int | str) -> dict[str, JsonValue]:
    return {"type": "token", "token": which}


def test_tokens_around_a_tag() -> None:
    spec: JsonValue = {"format": tag(token(5), JSON_A, token("<|end|>"))}
    matcher = Matcher.from_tables(compiled(spec).tables)
    matcher.bind_tokens({"<|end|>": 6})
    assert walk(matcher, 5, '{"a": 1}', 6)
    assert not walk(matcher, 5, "{}", 6)
    assert not walk(matcher, 5, '{"a": 1}', 7)


def test_any_tokens_up_to_the_end() -> None:
    matcher = Matcher.from_tables(compiled({"format": tag(token(5), {"type": "any_tokens", "max_tokens": 2}, token(6))}).tables)
    assert walk(matcher, 5, 8, 9, 6)
    assert not walk(matcher, 5, 8, 9, 8, 6)


def test_token_triggered_tags() -> None:
    format_: JsonValue = {"type": "token_triggered_tags", "trigger_tokens": [5], "tags": [tag(token(5), YES, token(6))]}
    matcher = Matcher.from_tables(compiled({"format": format_}).tables)
    assert walk(matcher)
    assert walk(matcher, 8, 5, "yes", 6, 9)
    assert not walk(matcher, 8, 5, "no", 6)
    assert not walk(matcher, 5)


# ---- free text


@draws(15, 60)
def test_free_text_stops_at_the_first_word(n_draws: int) -> None:
    """Against a search by hand: a text up to and with the first word that ends in it, then that word's own text."""

    @settings(max_examples=n_draws, deadline=None)
    @given(
        words=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3, unique=True),
        excluded=st.lists(st.text("ab", min_size=1, max_size=3), max_size=1),
    )
    def stop(words: list[str], excluded: list[str]) -> None:
        words = [word for word in words if word not in excluded]
        book = RuleBook()
        start = book.reserve("free")
        until({word: lit(f"!{i}") for i, word in enumerate(words)}, excluded, EMPTY, book, Budget(), start)
        matcher = Matcher.from_tables(compile_constraint(Gbnf(print_grammar(book.build(start)))).tables)
        rng = random.Random(len(words))
        for _ in range(30):
            text = "".join(rng.choice("abc") for _ in range(rng.randint(0, 7)))
            is_clean = not any(word in text for word in excluded)
            first = next((n for n in range(len(text) + 1) if text[:n].endswith(tuple(words))), None) if words else None
            assert matcher.accepts(text) == (is_clean and first is None)
            for i, word in enumerate(words):
                stops_here = first == len(text) and text.endswith(word)
                assert matcher.accepts(f"{text}!{i}") == (is_clean and (stops_here or first is None))

    stop()


def test_many_triggers_are_cheap_and_bounded() -> None:
    tags: list[JsonValue] = [tag(f"<function_{i}>", YES, "</function>") for i in range(200)]
    spec: JsonValue = {"format": {"type": "triggered_tags", "triggers": [f"<function_{i}>" for i in range(200)], "tags": tags}}
    assert Matcher.from_tables(compiled(spec).tables).accepts("a<function_19<function_199>yes</function>")
    with pytest.raises(ConversionError):
        compile_constraint(StructuralTag(spec), CompileOptions(limits=Limits(automaton_bytes=1000)))
