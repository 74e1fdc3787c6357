"""Tools of a request and the model's format for calls: which one it is, what the prompt shows, what the answer is held to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from converters.constraint import ToolCalls
from converters.errors import ConversionError, LimitExceeded
from converters.tools.codec import Call, Codec
from converters.tools.codecs import CODECS, codec_for_template, knows_tools
from converters.tools.custom import function_of_custom as function_of_custom  # exported again: dialects see only server.chat
from server.chat.constraint import (
    CompileOutcome,
    ConstraintCompiler,
    constraint_notices,
    in_request,
    log_outcome,
    reject,
)
from server.chat.prompt import to_json
from server.chat.types import ChatPrompt, Message, Notice, RequestedConstraint, ToolCallPart, ToolUse
from server.engine.client import EngineClient
from server.engine.messages import Trigger
from server.errors import UnsupportedParameter

logger = logging.getLogger("gramserve.constraint")


def codec_of(name: str | None, template: str) -> Codec | None:
    """The format that models.txt names, else the one that the chat template speaks. None: unknown."""
    return CODECS[name] if name is not None and name in CODECS else codec_for_template(template)


async def tool_constraint(
    use: ToolUse, codec: Codec | None, engine: EngineClient, content: RequestedConstraint | None
) -> RequestedConstraint | None:
    """What the answer is held to: calls when they are forced (which wins over `content`), calls or content under both.

    Raises UnsupportedParameter when calls are forced and the model's format isn't known.
    """
    if not use.is_forced and content is None:
        return None
    if codec is None:
        if not use.is_forced:
            return content
        raise UnsupportedParameter(
            f"{use.choice}: this model's tool-call format is not known, so no call can be forced", param=use.choice
        )
    calls = ToolCalls(use.tools, codec.name, use.is_parallel, await _marker_tokens(codec, engine))
    if use.is_forced or content is None:
        content = RequestedConstraint(calls, use.options, use.choice, "tool", "tools", whitespace_param=use.whitespace_param)
    else:
        content = replace(content, constraint=replace(calls, content=content.constraint))
    return replace(content, places=use.places)


@dataclass(frozen=True, slots=True)
class OpenedCalls:
    """The grammars that hold calls which a model opens by itself, and where each begins."""

    triggers: tuple[Trigger, ...] = ()
    outcomes: tuple[CompileOutcome, ...] = ()
    notices: tuple[Notice, ...] = ()


async def opened_calls(compiler: ConstraintCompiler, use: ToolUse, codec: Codec, engine: EngineClient) -> OpenedCalls:
    """What holds a call once the model, free to call or not, has opened one.

    Calls stay unheld, with a notice, where compiling takes too long, which is no fault of the request, and where a lenient
    request's tools are too large. Raises ConstraintRejected for other tools that can't be held to their schemas.
    """
    calls = ToolCalls(use.tools, codec.name, use.is_parallel, await _marker_tokens(codec, engine))
    triggers, outcomes = list[Trigger](), list[CompileOutcome]()
    for text, is_at_start in [(text, opening.is_at_start) for opening in codec.openings for text in opening.triggers]:
        try:
            outcome = await compiler.compile(replace(calls, opening=text), use.options)
        except ConversionError as error:
            if not (isinstance(error, LimitExceeded) and (error.limit == "compile_s" or use.options.lenient)):
                raise reject(error, "tools", use.places, use.whitespace_param) from None
            logger.warning("source=%s type=tool calls are not held to their schemas: %s", use.choice, error)
            return OpenedCalls(notices=(Notice(f"relaxed: calls are not held to their schemas: {error.reason}", "/tools"),))
        triggers.append(Trigger(text, outcome.key, is_at_start))
        outcomes.append(in_request(outcome, use.places))
    if not outcomes:
        return OpenedCalls()
    log_outcome(f"source={use.choice} type=tool", outcomes[0])
    return OpenedCalls(tuple(triggers), tuple(outcomes), constraint_notices(outcomes[0].compiled, ()))


async def _marker_tokens(codec: Codec, engine: EngineClient) -> tuple[tuple[str, int], ...]:
    """The codec's markers that are one control token of the vocabulary: read as such, and as something else when plain."""
    found = []
    for marker in codec.markers:
        special = await engine.tokenize(marker, add_special=False, parse_special=True)
        plain = await engine.tokenize(marker, add_special=False, parse_special=False)
        if len(special) == 1 and special != plain:
            found.append((marker, special[0]))
    return tuple(found)


def with_tools_described(prompt: ChatPrompt, codec: Codec | None, template: str) -> ChatPrompt:
    """The prompt for a template that knows no tools: they stand in the system message, calls and results in the turns."""
    if codec is None or knows_tools(template) or not (prompt.tools or _has_calls(prompt.messages)):
        return prompt
    names = {call.id: call.name for message in prompt.messages for call in message.tool_calls}
    messages = [_plain_turn(message, codec, names) for message in prompt.messages]
    if prompt.tools:
        text = codec.describe_tools(prompt.tools)
        if messages[0].role == "system":
            messages[0] = replace(messages[0], content=f"{messages[0].content}\n\n{text}")
        else:
            messages.insert(0, Message("system", text))
    return replace(prompt, messages=tuple(messages), tools=())


def _has_calls(messages: Sequence[Message]) -> bool:
    return any(message.tool_calls or message.role == "tool" for message in messages)


def _plain_turn(message: Message, codec: Codec, names: dict[str | None, str]) -> Message:
    """calls → their text at the end of the turn; a result → a turn of the role that the format gives it."""
    if message.tool_calls:
        text = codec.write_calls([_call(call) for call in message.tool_calls])
        return replace(message, content=f"{message.content}\n{text}" if message.content else text, tool_calls=())
    if message.role == "tool":
        name = message.name or names.get(message.tool_call_id, "")
        return Message(codec.result_role, codec.write_result(name, message.content))
    return message


def _call(call: ToolCallPart) -> Call:
    """A call as models write it, spaces included, so that one of an earlier answer is found in the cache as it was."""
    arguments = call.arguments
    return Call(call.name, arguments if isinstance(arguments, str) else to_json(arguments))
