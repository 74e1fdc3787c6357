"""The OpenAPI document: what FastAPI makes of the routes, with the bodies that the routes read themselves.

All dialects meet here as in `app`. Made when somebody asks for it; nothing depends on it at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from server.api.openapi import (
    ANY_JSON,
    BOOLEAN,
    CONSTRAINTS,
    COUNT,
    FUNCTION,
    NULL,
    NUMBER,
    OBJECT,
    RESPONSE_FORMAT,
    SOME_TEXT,
    STRING,
    TEXT_PART,
    TOKEN,
    Schema,
    any_of,
    array,
    fields_of,
    json_body,
    named,
    one_of,
    record,
)

_INPUT = any_of(SOME_TEXT, array(SOME_TEXT, minItems=1), array(TOKEN, minItems=1), array(array(TOKEN, minItems=1), minItems=1))
_CONTENT = any_of(STRING, array(TEXT_PART))
_CALLED = named("function", {"id": STRING, "function": record({"name": STRING, "arguments": STRING})})
_PREDICTION = named("content", {"content": _CONTENT})
_SYNTAX = record({"syntax": one_of("lark", "regex"), "definition": STRING})


def add_document(app: FastAPI) -> None:
    """Have `app` answer /openapi.json with the whole document."""

    def make() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = make  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation["responses"] = _responses(path)
            if "requestBody" not in operation and (make := _BODIES.get((method, path))) is not None:
                operation |= json_body(make())
    document.pop("components", None)  # FastAPI's own shape of errors, which no route has
    return document


# ---- answers


def _responses(path: str) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "The answer: one object, or a stream where the request asks for one."}
    content: dict[str, Any] = {"application/json": {"schema": ANY_JSON}}
    if path in _STREAMS:
        content[_STREAMS[path]] = {"schema": STRING}
    if path in ("/", "/metrics"):
        content = {"text/plain": {"schema": STRING}}
    error = {"application/json": {"schema": error_schema(path)}}
    return {
        "200": {**success, "content": content},
        "4XX": {"description": "The request is at fault.", "content": error},
        "5XX": {"description": "The server is at fault, or the model isn't ready (503).", "content": error},
    }


_STREAMS: Mapping[str, str] = {
    **dict.fromkeys(("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"), "text/event-stream"),
    **dict.fromkeys(("/api/chat", "/api/generate", "/api/pull"), "application/x-ndjson"),
}

_OPENAI_ERROR = record(
    {"error": record({"message": STRING, "type": STRING, "param": any_of(STRING, NULL), "code": any_of(STRING, NULL)})}
)
_OLLAMA_ERROR = record({"error": STRING})
_ANTHROPIC_ERROR = record({"type": {"const": "error"}, "error": record({"type": STRING, "message": STRING})})


def error_schema(path: str) -> Schema:
    """The shape of a path's errors."""
    if path.startswith("/api/"):
        return _OLLAMA_ERROR
    return _ANTHROPIC_ERROR if path.startswith("/v1/messages") else _OPENAI_ERROR


# ---- bodies


def _chat() -> Schema:
    from server.api.openai.wire import ChatFields

    return record(
        {"messages": _openai_messages()}, **{**CONSTRAINTS, **_openai_tools(), **fields_of(ChatFields)}, prediction=_PREDICTION
    )


def _openai_messages() -> Schema:
    plain = record({"role": one_of("system", "developer", "user"), "content": _CONTENT}, name=STRING)
    assistant = record({"role": {"const": "assistant"}}, content=_CONTENT, tool_calls=array(_CALLED), reasoning_content=STRING)
    tool = record({"role": {"const": "tool"}, "content": _CONTENT, "tool_call_id": STRING})
    return array(any_of(plain, assistant, tool), minItems=1)


def _openai_tools() -> dict[str, Schema]:
    name = record({"name": STRING})
    custom = record({"name": STRING}, description=STRING, format=named("grammar", {"grammar": _SYNTAX}))
    choices = (
        one_of("none", "auto", "required"),
        named("function", {"function": name}),
        named("custom", {"custom": name}),
        named("allowed_tools", {"allowed_tools": record({"mode": one_of("auto", "required"), "tools": array(OBJECT)})}),
    )
    return {
        "tools": array(any_of(named("function", {"function": FUNCTION}), named("custom", {"custom": custom}))),
        "tool_choice": any_of(*choices),
        "functions": array(FUNCTION),
        "chat_template_kwargs": OBJECT,
    }


def _completion() -> Schema:
    from server.api.openai.wire import CompletionFields

    return record({"prompt": _INPUT}, **{**CONSTRAINTS, **fields_of(CompletionFields)})


def _embeddings() -> Schema:
    from server.api.vectors.embeddings import EmbeddingFields

    return record({"input": _INPUT}, **fields_of(EmbeddingFields))


def _rerank() -> Schema:
    from server.api.vectors.rerank import MAX_DOCUMENTS, RankFields

    documents = array(any_of(STRING, record({"text": STRING})), minItems=1, maxItems=MAX_DOCUMENTS)
    return _with_required(fields_of(RankFields), {"query": STRING, "documents": documents})


def _response() -> Schema:
    from server.api.responses.fields import ResponseFields

    text_format = any_of(RESPONSE_FORMAT, named("json_schema", {"name": STRING, "schema": OBJECT}))
    custom = named("custom", {"name": STRING}, format=named("grammar", {}, **_SYNTAX["properties"]))
    own = {
        "text": record({}, format=text_format, verbosity=STRING),
        "tools": array(any_of(_flat_function(), custom)),
        "tool_choice": any_of(one_of("none", "auto", "required"), named("function", {"name": STRING})),
    }
    return record(
        {"input": any_of(SOME_TEXT, array(_item(), minItems=1))}, **{**CONSTRAINTS, **fields_of(ResponseFields), **own}
    )


def _flat_function() -> Schema:
    return named("function", FUNCTION["properties"])


def _item() -> Schema:
    part = named("input_text", {"text": STRING})
    message = record({"role": one_of("system", "developer", "user"), "content": any_of(STRING, array(part))})
    answer = named("message", {"role": {"const": "assistant"}, "content": array(named("output_text", {"text": STRING}))})
    call = named("function_call", {"call_id": STRING, "name": STRING, "arguments": STRING})
    output = named("function_call_output", {"call_id": STRING, "output": STRING})
    return any_of(message, answer, call, output, named("reasoning", {"summary": array(OBJECT)}))


def _anthropic_message() -> Schema:
    return _anthropic(required={"max_tokens": COUNT})


def _anthropic(required: dict[str, Schema] | None = None) -> Schema:
    from server.api.anthropic.wire import MessageFields, OutputConfig

    use = named("tool_use", {"id": STRING, "name": STRING, "input": OBJECT})
    result = named("tool_result", {"tool_use_id": STRING}, content=_CONTENT, is_error=BOOLEAN)
    thought = named("thinking", {"thinking": STRING}, signature=STRING)
    asked = array(any_of(TEXT_PART, result), minItems=1)
    said = array(any_of(TEXT_PART, use, thought), minItems=1)
    message = any_of(
        record({"role": {"const": "user"}, "content": any_of(SOME_TEXT, asked)}),
        record({"role": {"const": "assistant"}, "content": any_of(SOME_TEXT, said)}),
    )
    tool = record({"name": STRING, "input_schema": FUNCTION["properties"]["parameters"]}, description=STRING)
    fields = {**CONSTRAINTS, **fields_of(MessageFields)}
    fields["tools"] = array(tool)
    fields["tool_choice"] = any_of(
        *(named(kind, {}, disable_parallel_tool_use=BOOLEAN) for kind in ("auto", "any", "none")),
        named("tool", {"name": STRING}),
    )
    fields["system"] = _CONTENT
    fields["output_config"] = record({}, **fields_of(OutputConfig), format=RESPONSE_FORMAT)
    fields["thinking"] = any_of(named("enabled", {"budget_tokens": COUNT}), named("disabled", {}), named("adaptive", {}))
    return _with_required(fields, {"messages": array(message, minItems=1), **(required or {})})


def _with_required(fields: Mapping[str, Schema], required: dict[str, Schema]) -> Schema:
    """A record of both; what is required is so though it is among the fields too."""
    return record(required, **{name: schema for name, schema in fields.items() if name not in required})


def _ollama_chat() -> Schema:
    call = record({"function": record({"name": STRING}, arguments=OBJECT)})
    message = record(
        {"role": one_of("system", "user", "assistant", "tool")},
        content=STRING,
        thinking=STRING,
        tool_name=STRING,
        tool_calls=array(call),
        images=array(STRING),
    )
    tools = array(named("function", {"function": FUNCTION}))
    own = {"messages": array(message), "tools": tools, "tool_choice": _openai_tools()["tool_choice"]}
    return record({}, **{**_ollama_fields(), **own})


def _ollama_generate() -> Schema:
    return record({}, **{**_ollama_fields(), "images": array(STRING)})


def _ollama_fields() -> dict[str, Schema]:
    from server.api.ollama.wire import RequestFields, _OptionFields

    fields = {**CONSTRAINTS, **fields_of(RequestFields)}
    fields["options"] = record({}, **fields_of(_OptionFields))
    fields["keep_alive"] = any_of(one_of("5m", "1h30m", "0", "-1"), NUMBER)
    fields["think"] = any_of(BOOLEAN, one_of("low", "medium", "high", "max"))
    return fields


def _ollama_embed() -> Schema:
    fields = {
        name: schema for name, schema in _ollama_fields().items() if name in ("model", "truncate", "dimensions", "options")
    }
    return record({"input": any_of(STRING, array(STRING))}, **fields)


def _ollama_embeddings() -> Schema:
    return record({"prompt": STRING}, model=STRING)


def _ollama_model() -> Schema:
    return record({"model": STRING}, name=STRING, stream=BOOLEAN, verbose=BOOLEAN, insecure=BOOLEAN)


def _named_model() -> Schema:
    return record({"model": STRING})


def _refused() -> Schema:
    return OBJECT


def _tokenize() -> Schema:
    from server.api.native.routes import TokenizeFields

    return _with_required(fields_of(TokenizeFields), {"content": STRING})


def _detokenize() -> Schema:
    return record({"tokens": array(TOKEN)}, model=STRING)


def _constraint() -> Schema:
    return record({}, model=STRING, **CONSTRAINTS, **_openai_tools())


_BODIES: Mapping[tuple[str, str], Callable[[], Schema]] = {
    ("post", "/v1/chat/completions"): _chat,
    ("post", "/apply-template"): _chat,
    ("post", "/v1/completions"): _completion,
    ("post", "/v1/embeddings"): _embeddings,
    ("post", "/v1/rerank"): _rerank,
    ("post", "/v1/responses"): _response,
    ("post", "/v1/responses/input_tokens"): _response,
    ("post", "/models/load"): _named_model,
    ("post", "/models/unload"): _named_model,
    ("post", "/v1/messages"): _anthropic_message,
    ("post", "/v1/messages/count_tokens"): _anthropic,
    ("post", "/v1/constraints/compile"): _constraint,
    ("post", "/tokenize"): _tokenize,
    ("post", "/detokenize"): _detokenize,
    ("post", "/api/chat"): _ollama_chat,
    ("post", "/api/generate"): _ollama_generate,
    ("post", "/api/embed"): _ollama_embed,
    ("post", "/api/embeddings"): _ollama_embeddings,
    ("post", "/api/show"): _ollama_model,
    ("post", "/api/pull"): _ollama_model,
    ("delete", "/api/delete"): _ollama_model,
    **{("post", f"/api/{name}"): _refused for name in ("create", "copy", "push", "blobs/{digest}")},
}
"""The routes that read a body, and what is in it, where they don't say it themselves."""
