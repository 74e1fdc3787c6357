"""The service: templates, thinking, and the notes on a constraint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from converters.compile import Compiled, CompileOptions, Relaxation, Stats
from converters.constraint import AnyJson, Choice, Constraint, Gbnf, JsonSchema, Lark, Regex, StructuralTag
from converters.errors import InvalidSource, LimitExceeded, Position, UnsupportedFeature
from server.chat.constraint import MAX_HEADER_BYTES, CompileOutcome, constraint_notices, dotted, encode_notices, reject
from server.chat.description import describe
from server.chat.types import Notice
from server.engine.messages import EngineEvent, EngineRequest
from server.errors import BadRequest, ConstraintRejected, ContextOverflow
from server.settings import Settings
from tests.server.fakes import FakeEngine, FakeModel, InlineCompiler, Served, serve, with_info

THINKER = "{{ messages[0].content }}{% if enable_thinking is defined and not enable_thinking %}<no>{% endif %}"


@pytest.mark.parametrize(
    ("fields", "disable", "text"),
    [
        ({}, False, "hi"),
        ({}, True, "hi<no>"),
        ({"enable_thinking": False}, False, "hi<no>"),
        ({"thinking": True, "enable_thinking": False}, False, "hi"),
        ({"thinking": True}, True, "hi"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False, "hi<no>"),
        ({"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}}, True, "hi"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True, "hi"),
    ],
)
async def test_who_decides_about_thinking(fields: dict[str, object], disable: bool, text: str) -> None:
    settings = replace(Settings(), disable_reasoning=disable)
    async with serve(FakeEngine(info=with_info(chat_template=THINKER)), settings) as served:
        await served.chat(**fields)
        assert served.engine.requests[0].prompt == text


async def test_the_models_template_counts_unless_models_txt_names_another() -> None:
    engine = FakeEngine(info=with_info(chat_template="own"))
    async with serve(engine) as served:
        await served.chat()
    async with serve(engine, template="plain") as served:
        await served.chat()
    assert [request.prompt for request in engine.requests] == ["own", "hi\n\n"]


def compiled(*relaxed: Relaxation, notes: tuple[str, ...] = ()) -> Compiled:
    return Compiled("", relaxed, notes, Stats(1, 0, 0.1))


def test_notices() -> None:
    assert constraint_notices(compiled(), ()) == ()
    notices = constraint_notices(compiled(Relaxation("/a", "too hard"), notes=("priorities are ignored",)), ("x",))
    assert [notice.path for notice in notices] == ["/a", "", ""]
    assert encode_notices(notices[:1]) == '[{"message":"relaxed: too hard","path":"/a"}]'


def test_the_header_is_ascii_and_bounded() -> None:
    text = encode_notices([Notice(f"é{i}" * 20) for i in range(500)])
    assert text.isascii()
    assert MAX_HEADER_BYTES - 400 < len(text) <= MAX_HEADER_BYTES
    assert text.endswith(' more"}]')
    assert len(encode_notices([Notice("x" * 10_000)])) <= MAX_HEADER_BYTES


@pytest.mark.parametrize(
    ("error", "param", "code"),
    [
        (InvalidSource("no", path="/properties/a/items/0"), "f.properties.a.items[0]", "invalid_constraint"),
        (UnsupportedFeature("no", position=Position(3, 2, 1)), "f", "unsupported_constraint"),
        (LimitExceeded("no", limit="compile_s", value=2.0), "f", "limit_exceeded"),
    ],
)
def test_rejections_name_the_place(error: InvalidSource, param: str, code: str) -> None:
    rejected = reject(error, "f")
    assert (rejected.param, rejected.code) == (param, code)
    assert rejected.message.startswith(param)
    if error.position is not None:
        assert "line 2, column 1" in rejected.message


def test_pointers() -> None:
    assert dotted("") == ""
    assert dotted("/a~1b/~0c/12") == ".a/b.~c[12]"


@pytest.mark.parametrize(
    ("error", "fields", "param"),
    [
        (ConstraintRejected("no token spells this"), {"guided_choice": ["a"]}, "guided_choice"),
        (ContextOverflow("too long"), {}, "messages"),
        (ContextOverflow("too long"), {"max_tokens": 300}, "max_tokens"),
        (BadRequest("odd"), {}, None),
        (ContextOverflow("too long", param="prompt[3]"), {}, "prompt[3]"),
    ],
)
async def test_what_the_engine_refuses_names_the_field(error: BadRequest, fields: dict[str, object], param: str) -> None:
    def refuse(request: EngineRequest, event: EngineEvent) -> None:
        raise error

    async with serve(FakeEngine(before=refuse)) as served:
        reply = await served.chat(**fields)
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == param


async def test_a_constraint_is_described_only_when_asked(served: Served) -> None:
    system = {"role": "system", "content": "Be brief."}
    user = {"role": "user", "content": "hi"}
    await served.chat(guided_choice=["red", "blue"])
    await served.chat(guided_choice=["red", "blue"], inject_schema=True)
    await served.chat(guided_choice=["red", "blue"], inject_schema=True, messages=[system, user])
    plain, alone, appended = [str(request.prompt) for request in served.engine.requests]
    assert "red | blue" not in plain
    assert alone.index("red | blue") < alone.index(">user\nhi")
    assert appended.index("Be brief.") < appended.index("red | blue") < appended.index(">user\nhi")
    assert appended.count("<|im_start|>system") == 1
    assert (await served.complete(guided_choice=["red"], inject_schema=True)).status_code == 400


@pytest.mark.parametrize(
    ("constraint", "shown"),
    [
        (Regex("[0-9]+"), "[0-9]+"),
        (JsonSchema({"type": "integer"}), '{"type":"integer"}'),
        (AnyJson(object_only=True), "JSON object"),
        (Gbnf('root ::= "a"'), 'root ::= "a"'),
        (Lark('start: "a"'), 'start: "a"'),
        (StructuralTag({"tag": "t"}), '{"tag":"t"}'),
        (Choice(tuple(map(str, range(100)))), "100 in all"),
    ],
)
def test_descriptions_show_the_source(constraint: Constraint, shown: str) -> None:
    assert shown in describe(constraint)
    assert len(describe(Gbnf("x" * 100_000))) < 5000


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "guided_choice": ["Hello"]}),
        ("/v1/completions", {"prompt": ["a", "b", "c", "d", "e", "f"], "n": 4}),
        ("/api/generate", {"prompt": "hi", "model": "fake", "context": [72, 105], "stream": False}),
        ("/v1/embeddings", {"input": ["a", "b"]}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "hi"}], "model": "fake"}),
    ],
)
async def test_a_request_keeps_its_model_from_first_to_last(
    monkeypatch: pytest.MonkeyPatch, path: str, fields: dict[str, object]
) -> None:
    """While its constraint compiles, between the prompts of a batch, after its last token too."""
    uses: list[object] = []

    @contextmanager
    def in_use(model: FakeModel) -> Iterator[None]:
        uses.append(model)
        yield
        uses.remove(model)

    class Engine(FakeEngine):
        def __getattribute__(self, name: str) -> object:
            if name in ("generate", "put_grammar", "tokenize", "tokenize_all", "embed", "detokenize"):
                assert uses, name
            return super().__getattribute__(name)

    class Compiler(InlineCompiler):
        async def compile(self, constraint: Constraint, options: CompileOptions) -> CompileOutcome:
            assert uses
            return await super().compile(constraint, options)

    monkeypatch.setattr(FakeModel, "in_use", in_use)
    async with serve(Engine(), compiler=Compiler()) as served:
        assert (await served.client.post(path, json=fields)).status_code == 200
    assert not uses
