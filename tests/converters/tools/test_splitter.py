"""The splitter: outputs as models write them, told apart, the same for every way of cutting them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converters.constraint import FreeText, Tool
from converters.tools.codecs import CODECS
from converters.tools.parts import ArgumentsDelta, CallEnded, CallStarted, ContentDelta, Part, ReasoningDelta, Unfinished
from converters.tools.splitter import ReasoningMarkers
from tests.converters.tools.reading import read
from tests.draws import draws

TOOLS = (
    Tool("now"),
    Tool(
        "get_weather",
        {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}}},
    ),
    Tool("mcp__a.b/c-d:e f", {"properties": {"$filter": {"type": "string"}}}),
    Tool("python", input=FreeText()),
)
THINK = ReasoningMarkers("<think>", "</think>")
INSIDE = ReasoningMarkers("<think>", "</think>", is_inside=True)
HELD = ReasoningMarkers("<think>", "</think>", gap="\n\n")
HELD_INSIDE = ReasoningMarkers("<think>", "</think>", is_inside=True, gap="")
CHANNEL = ReasoningMarkers("<|channel>thought", "<channel|>")


def call(index: int, name: str, arguments: str, *, is_whole: bool = True) -> list[Part]:
    return [CallStarted(index, name), ArgumentsDelta(index, arguments), CallEnded(index, is_whole)]


def said(text: str) -> list[Part]:
    return [ContentDelta(text)]


WEATHER = '{"city": "São \\"X\\" </tool_call>", "days": 2}'
CASES: dict[str, tuple[str | None, str, ReasoningMarkers | None, list[Part]]] = {
    # name: codec, text, reasoning markers, parts
    "no codec": (None, "<tool_call>\n ", None, said("<tool_call>\n ")),
    "plain answer": ("hermes", "Hello.\n\n1 < 2 <tool>\n", None, said("Hello.\n\n1 < 2 <tool>\n")),
    "nothing": ("hermes", "", None, []),
    "spaces": ("hermes", " \n", None, said(" \n")),
    "one call": ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": ' + WEATHER + "}\n</tool_call>", None,
        call(0, "get_weather", WEATHER)),
    "two calls, content around": ("hermes",
        'Let me see.\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n<tool_call>'
        '{"name":"get_weather","arguments":{"city":"X"}}</tool_call>\n\nDone. ', None,
        [*said("Let me see."), *call(0, "now", "{}"), *call(1, "get_weather", '{"city":"X"}'), *said("\n\nDone. ")]),
    "arguments first": ("hermes", '<tool_call>\n{"arguments": {"city": "X"}, "name": "get_weather"}\n</tool_call>', None,
        call(0, "get_weather", '{"city": "X"}')),
    "no arguments": ("hermes", '<tool_call>{"name": "now"}</tool_call>', None, call(0, "now", "{}")),
    "null arguments": ("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', None, call(0, "now", "{}")),
    "arguments as text": ("hermes",
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"X\\"}"}</tool_call>', None,
        call(0, "get_weather", '{"city": "X"}')),
    "OpenAI's form": ("hermes",
        '<tool_call>{"type": "function", "function": {"name": "now", "arguments": {}}}</tool_call>', None,
        call(0, "now", "{}")),
    "a list": ("hermes", '<tool_call>[{"name": "now"}, {"name": "now"}]</tool_call>', None,
        [*call(0, "now", "{}"), *call(1, "now", "{}")]),
    "odd name": ("hermes", '<tool_call>\n{"name": "mcp__a.b/c-d:e f", "arguments": {"$filter": "\\u00e9"}}\n</tool_call>', None,
        call(0, "mcp__a.b/c-d:e f", '{"$filter": "\\u00e9"}')),
    "unknown name": ("hermes", 'So <tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call> there', None,
        said('So <tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call> there')),
    "no JSON": ("hermes", "The <tool_call> tag marks <tool_call>s.", None, said("The <tool_call> tag marks <tool_call>s.")),
    "a real one after a false one": ("hermes", 'see <tool_call> <tool_call>{"name": "now"}</tool_call>', None,
        [*said("see <tool_call>"), *call(0, "now", "{}")]),
    "no closing tag": ("hermes", '<tool_call>{"name": "now"} and on', None, [*call(0, "now", "{}"), *said(" and on")]),
    "cut in the arguments": ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Sã', None,
        call(0, "get_weather", '{"city": "Sã', is_whole=False)),
    "cut in the name": ("hermes",
        'Hm <tool_call>\n{"name": "get_', None, [*said("Hm"), Unfinished('<tool_call>\n{"name": "get_')]),
    "cut after the call": ("hermes", '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_c', None, call(0, "now", "{}")),
    "broken arguments": ("hermes", '<tool_call>{"name": "get_weather", "arguments": {"days": 01}} x', None,
        [*call(0, "get_weather", '{"days": 0', is_whole=False), *said("1}} x")]),
    "custom": ("hermes",
        '<tool_call>\n{"name": "python", "arguments": {"input": "a\\n\\"\\ud83d\\ude00\\u00e9\\/"}}\n</tool_call>', None,
        call(0, "python", 'a\n"😀é/')),
    "custom, bare text": ("hermes", '<tool_call>{"name": "python", "arguments": "print(1)"}</tool_call>', None,
        call(0, "python", "print(1)")),
    "custom, another form": ("hermes", '<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>', None,
        call(0, "python", '{"code": "1"}')),
    "custom, half a pair": ("hermes", '<tool_call>{"name": "python", "arguments": {"input": "\\ud83dx"}}</tool_call>', None,
        call(0, "python", "\ufffdx")),
    "mistral": ("mistral",
        'I look.[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "get_weather", "arguments": {"city": "X"}}]',
        None, [*said("I look."), *call(0, "now", "{}"), *call(1, "get_weather", '{"city": "X"}')]),
    "mistral with a space and an id": ("mistral", '[TOOL_CALLS] [{"name": "now", "arguments": {}, "id": "abcdefghi"}]', None,
        call(0, "now", "{}")),
    "mistral, list cut": ("mistral", '[TOOL_CALLS][{"name": "now", "arguments": {}}, {"na', None,
        [*call(0, "now", "{}"), Unfinished(', {"na')]),
    "mistral, list broken": ("mistral", '[TOOL_CALLS][{"name": "now", "arguments": {}}, {"x": 1}]', None,
        [*call(0, "now", "{}"), *said(', {"x": 1}]')]),
    "mistral, bare names": ("mistral_args", '[TOOL_CALLS]get_weather[ARGS]{"city": "[ARGS]"}[TOOL_CALLS]now[ARGS]{}', None,
        [*call(0, "get_weather", '{"city": "[ARGS]"}'), *call(1, "now", "{}")]),
    "mistral, call ids": ("mistral_args", "[TOOL_CALLS]now[CALL_ID]abc123[ARGS]{}", None, call(0, "now", "{}")),
    "mistral, unknown name": ("mistral_args", "[TOOL_CALLS]nope[ARGS]{}", None, said("[TOOL_CALLS]nope[ARGS]{}")),
    "llama, bare": ("llama3",
        '\n{"name": "get_weather", "parameters": {"city": "X"}}', None, call(0, "get_weather", '{"city": "X"}')),
    "llama, tag, several": ("llama3",
        '<|python_tag|>{"name": "now", "parameters": {}}; {"name": "get_weather", "parameters": {"city": ";"}}',
        None, [*call(0, "now", "{}"), *call(1, "get_weather", '{"city": ";"}')]),
    "llama, type first": ("llama3", '{"type": "function", "name": "now", "parameters": {}}', None, call(0, "now", "{}")),
    "llama, function is the name": ("llama3",
        '{"type": "function", "function": "now", "parameters": {}}', None, call(0, "now", "{}")),
    "llama, JSON answer": ("llama3", '{"answer": {"name": "now"}}', None, said('{"answer": {"name": "now"}}')),
    "llama, not at the start": ("llama3",
        'So {"name": "now", "parameters": {}}', None, said('So {"name": "now", "parameters": {}}')),
    "llama, semicolon after": ("llama3",
        '{"name": "now", "parameters": {}}; done', None, [*call(0, "now", "{}"), *said("; done")]),
    "llama, code": ("llama3", '<|python_tag|>now.call(x="1")', None, said('<|python_tag|>now.call(x="1")')),
    "plain": ("json", '{"name": "now", "arguments": {}}', None, call(0, "now", "{}")),
    "plain list": ("json", ' [{"name": "now", "arguments": {}},\n {"name":"now","arguments":{}}]\n', None,
        [*call(0, "now", "{}"), *call(1, "now", "{}")]),
    "plain, list of others": ("json", '[1, {"name": "now"}]', None, said('[1, {"name": "now"}]')),
    "plain, a person": ("json", '{"name": "Bob", "arguments": {}}', None, said('{"name": "Bob", "arguments": {}}')),
    "qwen": ("qwen3_coder",
        'Ok.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nSão "X"\n\n</parameter>\n<parameter=days>\n2\n</parameter>'
        "\n</function>\n</tool_call>", None, [*said("Ok."), *call(0, "get_weather", '{"city": "São \\"X\\"\\n", "days": 2}')]),
    "qwen, no parameters": ("qwen3_coder",
        "<tool_call>\n<function=now>\n</function>\n</tool_call>\n", None, call(0, "now", "{}")),
    "qwen, sloppy": ("qwen3_coder",
        "<function=get_weather><parameter=city>X</parameter><parameter=days>True</parameter></function>", None,
        call(0, "get_weather", '{"city": "X", "days": true}')),
    "qwen, the closing tag in a list": ("qwen3_coder",
        '<tool_call><function=get_weather><parameter=tags>["</parameter>", 1]</parameter></function></tool_call>', None,
        call(0, "get_weather", '{"tags": ["</parameter>", 1]}')),
    "qwen, JSON": ("qwen3_coder", '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', None, call(0, "now", "{}")),
    "qwen, cut": ("qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nSão\n</para", None,
        call(0, "get_weather", '{"city": "São', is_whole=False)),
    "qwen, cut in the name": ("qwen3_coder",
        "<tool_call>\n<function=get_w", None, [Unfinished("<tool_call>\n<function=get_w")]),
    "qwen, custom": ("qwen3_coder",
        "<tool_call>\n<function=python>\n<parameter=input>\na\\n\n</parameter>\n</function>\n</tool_call>", None,
        call(0, "python", "a\\n")),
    "thinking": ("hermes", "<think>\nHm.\n\nSo.\n</think>\n\nHi ", THINK, [ReasoningDelta("Hm.\n\nSo."), *said("Hi ")]),
    "thinking, then a call": ("hermes",
        '<think>x <tool_call>{"name": "now"}</tool_call></think><tool_call>{"name": "now"}</tool_call>', THINK,
        [ReasoningDelta('x <tool_call>{"name": "now"}</tool_call>'), *call(0, "now", "{}")]),
    "no thinking": ("hermes", "<thing> <think>a</think>", THINK, said("<thing> <think>a</think>")),
    "empty thinking": (None, "<think>\n\n</think>\n\nHi", THINK, said("Hi")),
    "thinking, then a held answer": (None, "<think>a </think>\n\n\n yes ", HELD, [ReasoningDelta("a"), *said("\n yes ")]),
    "a held answer of whitespace": ("hermes", "<think>a</think>\n\n\n\n ", HELD, [ReasoningDelta("a"), *said("\n\n ")]),
    "a held answer without thinking": (None, "\n\n\n yes", HELD, said("\n\n\n yes")),
    "a held answer without a gap": ("llama3", "a</think> yes", HELD_INSIDE, [ReasoningDelta("a"), *said(" yes")]),
    "over in the gap": (None, "<think>a</think>\n", HELD, [ReasoningDelta("a")]),
    "inside at the start": (None, "Hm </thi</think>\n{}", INSIDE, [ReasoningDelta("Hm </thi"), *said("{}")]),
    "never out of it": (None, "Hm </thi", INSIDE, [ReasoningDelta("Hm </thi")]),
    "channels": (None, "<|channel>thought\nHm<channel|>Hi", CHANNEL, [ReasoningDelta("Hm"), *said("Hi")]),
    "thinking, then a bare call": ("llama3", '<think>a</think>\n\n{"name": "now", "parameters": {}}', THINK,
        [ReasoningDelta("a"), *call(0, "now", "{}")]),
    "begins like thinking": ("hermes", "\n<thi", THINK, said("\n<thi")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_parts(name: str) -> None:
    codec, text, reasoning, parts = CASES[name]
    assert read(codec, TOOLS, [text], reasoning) == parts
    assert read(codec, TOOLS, text, reasoning) == parts  # character by character
    for place in range(1, len(text)):
        assert read(codec, TOOLS, [text[:place], text[place:]], reasoning) == parts


def composed(seed: int) -> tuple[str, str, ReasoningMarkers | None]:
    """An output put together from what models write: a codec, its text, the reasoning markers."""
    rng = random.Random(seed)
    codec, reasoning = rng.choice(list(CODECS)), rng.choice([None, THINK, INSIDE, HELD])
    own = [text for known, text, _, _ in CASES.values() if known == codec]
    scraps = [
        "<think>",
        "</think>",
        "\n",
        "Hello ",
        "<tool_call>",
        "[TOOL_CALLS]",
        "<|python_tag|>",
        '{"name": "',
        "é😀",
        "<",
        "[",
    ]
    text = "".join(rng.choice(own) if rng.random() < 0.6 else rng.choice(scraps) for _ in range(rng.randint(1, 5)))
    return codec, text[: rng.randint(1, len(text))] if rng.random() < 0.4 else text, reasoning


def recorded() -> list[tuple[str, str, ReasoningMarkers | None]]:
    """What models really wrote, the default one and a tiny one with the tokens for it (`tests/live/record_outputs.py`)."""
    thinking = {None: None, "start": THINK, "inside": INSIDE}
    entries = map(json.loads, RECORDINGS.read_text(encoding="utf-8").splitlines())
    return [(entry["codec"], entry["text"], thinking[entry["thinking"]]) for entry in entries]


RECORDINGS = Path(__file__).with_name("recorded_outputs.jsonl")
RECORDED = recorded()
OUTPUTS = [*RECORDED, *(composed(seed) for seed in range(200))]


def test_the_recordings_are_of_every_format_and_have_calls() -> None:
    assert len(RECORDED) >= 200
    for codec in CODECS:
        parts = [
            part for known, text, reasoning in RECORDED if known == codec for part in read(codec, TOOLS, [text], reasoning)
        ]
        kinds = {type(part) for part in parts}
        assert kinds >= {ContentDelta, CallStarted, ArgumentsDelta, CallEnded, ReasoningDelta}
        assert {part.is_whole for part in parts if isinstance(part, CallEnded)} == {True, False}


def cut(text: str, places: Iterable[int]) -> list[str]:
    places = sorted(places)
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("first", range(0, len(OUTPUTS), 40))
def test_outputs_are_read_the_same_however_they_are_cut(first: int) -> None:
    rng = random.Random(first)
    for codec, text, reasoning in OUTPUTS[first : first + 40]:
        whole = read(codec, TOOLS, [text], reasoning)
        assert read(codec, TOOLS, text, reasoning) == whole
        for _ in range(6):
            pieces = cut(text, (rng.randint(0, len(text)) for _ in range(rng.randint(1, 12))))
            assert read(codec, TOOLS, pieces, reasoning) == whole
        ended = [part.index for part in whole if isinstance(part, CallEnded)]
        assert ended == [part.index for part in whole if isinstance(part, CallStarted)] == list(range(len(ended)))


@draws(50, 200)
def test_every_way_of_cutting_gives_the_same(n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None)
    @given(data=st.data())
    def agree(data: st.DataObject) -> None:
        codec, text, reasoning = data.draw(st.sampled_from(OUTPUTS))
        pieces = cut(text, data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
        assert read(codec, TOOLS, pieces, reasoning) == read(codec, TOOLS, [text], reasoning)

    agree()


@draws(80, 300)
def test_any_text_is_read(n_draws: int) -> None:
    """No text breaks it, and none is lost: what is no call is content."""

    @settings(max_examples=n_draws, deadline=None)
    @given(
        codec=st.sampled_from(sorted(CODECS)),
        text=st.text(st.sampled_from('{}[]"\\:, \nae1-.nul<>/tool_call=functionrgsARGSTO'), max_size=60),
        opening=st.integers(0, 1),
    )
    def read_any(codec: str, text: str, opening: int) -> None:
        openings = CODECS[codec].openings
        text = openings[opening % len(openings)].text + text
        whole = read(codec, TOOLS, [text])
        assert read(codec, TOOLS, text) == whole
        if not any(isinstance(part, (CallStarted, Unfinished)) for part in whole):
            assert whole == said(text)

    read_any()


def test_long_arguments_in_many_pieces_cost_linear_time() -> None:
    text = '<tool_call>\n{"name": "get_weather", "arguments": ' + json.dumps({"city": "x" * 100_000}) + "}\n</tool_call>"
    parts = read("hermes", TOOLS, [text[i : i + 4] for i in range(0, len(text), 4)])
    assert parts == call(0, "get_weather", json.dumps({"city": "x" * 100_000}))


def test_deep_nesting_is_read() -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {"tags": ' + "[" * 50_000
    parts = read("hermes", TOOLS, [text])
    assert parts == call(0, "get_weather", '{"tags": ' + "[" * 50_000, is_whole=False)
    waiting = '<tool_call>{"arguments": ' + "[" * 50_000 + "]" * 50_000 + ', "name": "now"}'
    assert read("hermes", TOOLS, [waiting]) == said(waiting)
