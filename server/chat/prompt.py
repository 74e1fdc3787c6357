"""Messages -> the text that a model continues, by a chat template in sandboxed Jinja2.

Templates come from GGUF files and expect what Hugging Face's renderer gives them: raise_exception, strftime_now, a tojson that
escapes no HTML, break and continue, and {% generation %} blocks. Whatever goes wrong in one is a BadRequest with its text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from server.chat.templates import TEMPLATES
from server.chat.types import ChatPrompt, Message
from server.engine.messages import ModelInfo
from server.errors import BadRequest

THINKING_SWITCHES = ("enable_thinking", "thinking")


class _Raised(TemplateError):
    """A template refused its messages."""


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}` marks what a model wrote; it changes nothing in the text."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The block's body in place of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def render_prompt(prompt: ChatPrompt, source: str, info: ModelInfo) -> str:
    """The prompt's text by the template `source`. Raises BadRequest with the template's own words when it refuses."""
    try:
        return _render(prompt, prompt.messages, source, info)
    except _Raised as refused:
        tried = [prompt.messages]
        for arrange in (join_turns, _system_first, _system_in_user):
            messages = join_turns(arrange(prompt.messages))
            if messages not in tried:
                tried.append(messages)
                try:
                    return _render(prompt, messages, source, info)
                except _Raised:
                    continue
        raise BadRequest(f"the chat template refuses these messages: {refused}", param=prompt.param) from None


def builtin_template(name: str, param: str = "template") -> str:
    """The built-in template of that name. Raises BadRequest that lists them."""
    if name not in TEMPLATES:
        raise BadRequest(f"there is no built-in template {name!r}; there are {', '.join(TEMPLATES)}", param=param)
    return TEMPLATES[name]


def can_think(source: str) -> bool:
    """Whether a template has a switch for thinking."""
    return any(switch in source for switch in THINKING_SWITCHES)


def _render(prompt: ChatPrompt, messages: Sequence[Message], source: str, info: ModelInfo) -> str:
    variables: dict[str, Any] = {
        "messages": [_template_message(message) for message in messages],
        "tools": [dict(tool) for tool in prompt.tools] or None,
        "add_generation_prompt": prompt.add_generation_prompt and not prompt.continue_final_message,
        "bos_token": info.bos_token,
        "eos_token": info.eos_token,
    }
    if prompt.thinking is not None:
        variables |= dict.fromkeys(THINKING_SWITCHES, prompt.thinking)
    variables |= dict(prompt.kwargs)
    try:
        text = str(_compile(source).render(variables))
    except _Raised:
        raise
    except Exception as error:  # a template can fail in any way that Python can
        raise BadRequest(f"the chat template fails on this request: {error}", param=prompt.param) from None
    return _cut_after_final(text, messages[-1].content) if prompt.continue_final_message else text


@lru_cache(maxsize=32)
def _compile(source: str) -> Any:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(source)


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """JSON text as Python writes it, and with it most of what models have read."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, default=_plain, **options)


def _plain(value: Any) -> Any:
    """What the request's parser makes that `json` can't print: fractions kept as Decimal."""
    return float(value)


def _raise(message: object) -> NoReturn:
    raise _Raised(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _template_message(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name is not None:
        result["name"] = message.name
    if message.tool_call_id is not None:
        result["tool_call_id"] = message.tool_call_id
    if message.reasoning is not None:
        result["reasoning_content"] = message.reasoning
    if message.tool_calls:
        result["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return result


def _cut_after_final(text: str, content: str) -> str:
    """Everything up to the end of the last message's content, so that the model goes on writing it."""
    for needle in (content, content.strip()):
        at = text.rfind(needle)
        if needle and at >= 0:
            return text[: at + len(needle)]
    raise BadRequest(
        "continue_final_message: the chat template doesn't show the last message's content", param="continue_final_message"
    )


def join_turns(messages: Sequence[Message]) -> tuple[Message, ...]:
    """user, user → one user message; so of the assistant: for templates that want them in turns."""
    turns: list[Message] = []
    for message in messages:
        if turns and turns[-1].role == message.role and message.role in ("user", "assistant"):
            before = turns[-1]
            turns[-1] = replace(
                before,
                content=_lines(before.content, message.content),
                tool_calls=(*before.tool_calls, *message.tool_calls),
                reasoning=_lines(before.reasoning or "", message.reasoning or "") or None,
            )
        else:
            turns.append(message)
    return tuple(turns)


def _lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def _system_first(messages: Sequence[Message]) -> tuple[Message, ...]:
    """system, user, system → one system message in front: for templates that allow it only there."""
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    rest = tuple(message for message in messages if message.role != "system")
    return (Message("system", system), *rest) if system else tuple(messages)


def _system_in_user(messages: Sequence[Message]) -> tuple[Message, ...]:
    """system, user → one user message: for templates that know no system role."""
    system, *rest = _system_first(messages)
    if system.role != "system":
        return tuple(messages)
    for i, message in enumerate(rest):
        if message.role == "user":
            return (*rest[:i], Message("user", f"{system.content}\n\n{message.content}", message.name), *rest[i + 1 :])
    return (Message("user", system.content), *rest)
