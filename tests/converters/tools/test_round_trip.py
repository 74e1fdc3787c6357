"""Every format's grammar accepts what its writer writes and its parser reads back, and writes only what the parser reads."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converters.compile import Compiled, compile_constraint
from converters.constraint import FreeText, Gbnf, Lark, Regex, Tool, ToolCalls
from converters.grammar.match import Matcher
from converters.tools.codec import Call
from converters.tools.codecs import CODECS
from converters.tools.custom import arguments_of_input
from converters.tools.qwen import Qwen3Coder
from tests.converters.tools.reading import calls_of, content_of, read, value_of
from tests.draws import draws
from tests.oracle import Oracle

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NAMES = st.text(st.sampled_from('abz_09.-/: "\\é\N{GRINNING FACE}'), min_size=1, max_size=8).map(str.strip).filter(bool)
KEYS = st.text(st.sampled_from('abz_$ -"é'), min_size=1, max_size=4)


@dataclass(frozen=True)
class Given:
    """A kind of parameter: its schema and how its values are drawn."""

    schema: dict[str, Any]
    values: st.SearchStrategy[Any]


KINDS = [
    Given({"type": "string"}, TEXT),
    Given({"type": "string", "minLength": 1, "maxLength": 6}, TEXT.filter(lambda t: 1 <= len(t) <= 6)),
    Given({"type": "string", "pattern": "^<?[a-c]+$"}, st.from_regex(r"\A<?[a-c]{1,4}\Z")),
    Given({"enum": ["a", "b\n", ""]}, st.sampled_from(["a", "b\n", ""])),
    Given({"type": "integer", "minimum": -5}, st.integers(-5, 10**6)),
    Given({"type": "boolean"}, st.booleans()),
    Given({"type": ["string", "null"]}, st.none() | TEXT),
    Given({"enum": [1, "x", None]}, st.sampled_from([1, "x", None])),
    Given({"type": "array", "items": {"type": "string"}}, st.lists(TEXT, max_size=3)),
    Given(
        {"type": "object", "properties": {"q": {"type": "string"}, "r": {"type": "null"}}, "required": ["q"]},
        TEXT.map(lambda text: {"q": text}),
    ),
    Given({"$ref": "#/$defs/City"}, st.sampled_from(["X", "Y"])),
]


@st.composite
def tools_with_calls(draw: st.DrawFn) -> tuple[list[Tool], list[tuple[str, dict[str, Any]]]]:
    """A few tools, and calls of them with arguments that are valid."""
    tools: list[Tool] = []
    kinds: list[dict[str, Given]] = []
    for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        parameters = draw(st.dictionaries(KEYS.map(str.strip).filter(bool), st.sampled_from(KINDS), max_size=4))
        required = [key for key in parameters if draw(st.booleans())]
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {key: kind.schema for key, kind in parameters.items()},
            "required": required,
            "$defs": {"City": {"type": "string", "enum": ["X", "Y"]}},
        }
        tools.append(Tool(name, schema))
        kinds.append(parameters)
    calls: list[tuple[str, dict[str, Any]]] = []
    for _ in range(draw(st.integers(1, 3))):
        i = draw(st.integers(0, len(tools) - 1))
        parameters_of: Any = tools[i].parameters
        keys = [key for key in kinds[i] if key in parameters_of["required"] or draw(st.booleans())]
        calls.append((tools[i].name, {key: draw(kinds[i][key].values) for key in keys}))
    return tools, calls


def matcher_of(tools: list[Tool], codec: str, **kwargs: Any) -> Matcher:
    return Matcher.from_tables(compiled(tools, codec, **kwargs).tables)


def compiled(tools: list[Tool], codec: str, **kwargs: Any) -> Compiled:
    return compile_constraint(ToolCalls(tuple(tools), codec, **kwargs))


def written(codec: str, tools: list[Tool], calls: list[tuple[str, str]]) -> str:
    given = [Call(name, arguments) for name, arguments in calls]
    format_ = CODECS[codec]
    return format_.write_calls(given, tools) if isinstance(format_, Qwen3Coder) else format_.write_calls(given)


@pytest.mark.parametrize("codec", CODECS)
@draws(3, 15)
def test_calls_are_accepted_and_read_back(n_draws: int, codec: str) -> None:
    @settings(max_examples=n_draws, deadline=None)
    @given(drawn=tools_with_calls(), seed=st.integers(0, 99))
    def agree(drawn: tuple[list[Tool], list[tuple[str, dict[str, Any]]]], seed: int) -> None:
        tools, calls = drawn
        texts = [(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls]
        text = written(codec, tools, texts)
        matcher = matcher_of(tools, codec)
        verdict = matcher.check(text)
        assert verdict.accepted, (text, verdict)
        parts = read(codec, tools, [text])
        assert content_of(parts) == ""
        assert [(call.name, call.arguments, call.is_whole) for call in calls_of(parts)] == [(*call, True) for call in texts]
        assert matcher_of(tools, codec, parallel=False).accepts(text) == (len(calls) == 1)
        check_sentence(codec, tools, matcher.random_sentence(random.Random(seed), max_length=120))

    agree()


def check_sentence(codec: str, tools: list[Tool], sentence: str) -> None:
    """A sentence is whole calls, no content, and its arguments validate."""
    parts = read(codec, tools, [sentence])
    assert content_of(parts) == "", (sentence, parts)
    found = calls_of(parts)
    assert found
    assert all(call.is_whole for call in found), (sentence, parts)
    schemas: dict[str, Any] = {tool.name: tool.parameters or {"type": "object"} for tool in tools}
    for call in found:
        jsonschema.validate(value_of(call.arguments), schemas[call.name])


CITY = Tool("get_weather", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
NOW = Tool("now")


@pytest.mark.parametrize("codec", CODECS)
def test_wrong_names_and_arguments_are_rejected(codec: str, oracle: Oracle) -> None:
    tools = [CITY, NOW]
    good = [("get_weather", '{"city": "X"}'), ("now", "{}")]
    bad = [
        ("get_weathe", '{"city": "X"}'), ("get_weather2", '{"city": "X"}'), ("get_weather", "{}"), ("now", '{"x": 1}'),
        ("get_weather", '{"city": "X", "more": 1}'), ("", "{}"),
    ]  # fmt: skip
    if codec != "qwen3_coder":  # there a number stands in a string's place as its digits
        bad.append(("get_weather", '{"city": 1}'))
    texts = [written(codec, tools, [call]) for call in (*good, *bad)] + [written(codec, tools, good)]
    result = compiled(tools, codec)
    matcher = Matcher.from_tables(result.tables)
    expected = [True] * len(good) + [False] * len(bad) + [True]
    assert [matcher.accepts(text) for text in texts] == expected
    assert oracle.accepts(result.gbnf, texts) == expected
    one = compiled(tools, codec, parallel=False)
    assert oracle.accepts(one.gbnf, texts) == [*expected[:-1], False]


@pytest.mark.parametrize("codec", CODECS)
def test_a_call_from_each_trigger_on(codec: str, oracle: Oracle) -> None:
    """What follows a trigger, put behind it, is what the parser reads as whole calls."""
    for opening in CODECS[codec].openings:
        for trigger in opening.triggers:
            result = compiled([CITY, NOW], codec, opening=trigger)
            matcher = Matcher.from_tables(result.tables)
            sentences = [matcher.random_sentence(random.Random(seed), max_length=90) for seed in range(20)]
            assert all(oracle.accepts(result.gbnf, sentences))
            for sentence in sentences:
                check_sentence(codec, [CITY, NOW], trigger + sentence)
            assert matcher.advance(matcher.start, "so, ") is None


@pytest.mark.parametrize("codec", CODECS)
def test_custom_tools_are_held_to_their_grammar(codec: str, oracle: Oracle) -> None:
    tools = [
        Tool("text", input=FreeText()),
        Tool("digits", input=Regex(r"[0-9]+\n\"[a<]*")),
        Tool("sum", input=Lark('start: N ("+" start)?\nN: /[0-9]+/')),
        Tool("tree", input=Gbnf('root ::= "(" root* ")\\n"')),
        Tool("patch", input=Lark('start: "*** Begin\\n" line+ "*** End\\n"\nline: /[+ -]/ /(.*)/ "\\n"')),
    ]
    good = [
        ("text", 'any\n"text" \\ é</'), ("digits", '12\n"a<a'), ("sum", "1+22+3"), ("tree", "(()\n()\n)\n"),
        ("patch", '*** Begin\n-<p>é</parameter>\n+</function> "\\\n*** End\n'),
    ]  # fmt: skip
    bad = [("digits", "x"), ("digits", ""), ("sum", "1+"), ("tree", "(()\n)"), ("tree", ""), ("patch", "*** Begin\n*** End\n")]
    texts = [written(codec, tools, [(name, arguments_of_input(text))]) for name, text in (*good, *bad)]
    result = compiled(tools, codec)
    expected = [True] * len(good) + [False] * len(bad)
    assert oracle.accepts(result.gbnf, texts) == expected
    for (name, text), whole in zip(good, texts, strict=False):
        for pieces in ([whole], list(whole)):
            (call,) = calls_of(read(codec, tools, pieces))
            assert (call.name, call.arguments, call.is_whole) == (name, text, True)


@pytest.mark.parametrize("codec", CODECS)
def test_calls_or_content(codec: str) -> None:
    from converters.constraint import Choice

    matcher = matcher_of([NOW], codec, content=Choice(("yes", "no")))
    assert [matcher.accepts(text) for text in ("yes", "no", "so", written(codec, [NOW], [("now", "{}")]))] == [
        True, True, False, True,
    ]  # fmt: skip


def test_markers_are_tokens_where_the_vocabulary_has_them() -> None:
    matcher = matcher_of([NOW], "mistral", tokens=(("[TOOL_CALLS]", 5),))
    assert not matcher.accepts(written("mistral", [NOW], [("now", "{}")]))
    state = matcher.advance_token(matcher.start, 5, b"[TOOL_CALLS]")
    assert state is not None
    state = matcher.advance(state, '[{"name": "now", "arguments": {}}]')
    assert state is not None
    assert matcher.may_end(state)


def xml_call(text: str) -> str:
    return f"<tool_call>\n<function=f>\n<parameter=s>\n{text}\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize("longest", [5, 40, 3000])
def test_xml_strings_can_not_hold_the_closing_tag_and_keep_their_length(longest: int, oracle: Oracle) -> None:
    """Past the automaton limit fewer strings are possible; those that are, are valid."""
    tool = Tool("f", {"properties": {"s": {"type": "string", "maxLength": longest}}, "required": ["s"]})
    result = compiled([tool], "qwen3_coder")
    good = ["", "a<b", "ab\n", *(["<", "a</b", "a\n</parameter", "x" * 40] if longest == 40 else [])]
    bad = ["</parameter>", "x</parameter>\n", *(["x" * (longest + 1)] if longest <= 40 else [])]
    assert oracle.accepts(result.gbnf, [*map(xml_call, good), *map(xml_call, bad)]) == [True] * len(good) + [False] * len(bad)
    assert bool(result.notes) == (longest > 40)
    for text in good:
        (call,) = calls_of(read("qwen3_coder", [tool], [xml_call(text)]))
        assert json.loads(call.arguments) == {"s": text}
    if longest > 40:
        matcher = Matcher.from_tables(result.tables)
        state = matcher.advance(matcher.start, xml_call("<x" + "x" * (longest // 3 - 1)).split("\n</param", maxsplit=1)[0])
        assert state is not None
        assert "x" not in matcher.next_chars(state)
        assert matcher.accepts(xml_call("x" * longest))
        assert not matcher.accepts(xml_call("x" * (longest + 1)))
