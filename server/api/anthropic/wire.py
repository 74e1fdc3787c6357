"""The scalar fields of Anthropic's requests, thinking among them, and llama.cpp's sampler parameters beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from server.api.fields import Boolean, Fields, Integer, SamplerFields, StopStrings, String
from server.values import missing


def _object(value: object) -> object:
    if not isinstance(value, Mapping):
        raise PydanticCustomError("invalid_type", "must be an object")
    return value


def _thinking(value: object) -> object:
    """An object; a boolean is short for thinking or not."""
    return {"type": "adaptive" if value else "disabled"} if isinstance(value, bool) else _object(value)


Count = Annotated[Integer, Field(ge=1, le=2**31 - 1)]


class Thinking(Fields):
    """`between_tools`: only between the calls of one turn, which are turns of their own here."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: Count | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputConfig(Fields):
    """`format` is a constraint's."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class MessageFields(SamplerFields):
    """Of /v1/messages and, but for max_tokens, of /v1/messages/count_tokens."""

    model: String | None = None
    max_tokens: Count | None = None
    stream: Boolean | None = None
    stop_sequences: StopStrings | None = None
    thinking: Annotated[Thinking, BeforeValidator(_thinking)] | None = None
    output_config: Annotated[OutputConfig, BeforeValidator(_object)] | None = None
    template: String | None = None
    enable_thinking: Boolean | None = None
    reasoning_effort: String | None = None

    def check(self) -> None:
        """Rules between fields. Raises BadRequest."""
        super().check()
        if self.thinking is not None and self.thinking.type == "enabled" and self.thinking.budget_tokens is None:
            raise missing("thinking.budget_tokens")

    @property
    def switch(self) -> bool | None:
        """Of a template that can think; None: as the server has it."""
        return self.enable_thinking if self.thinking is None else self.thinking.type in ("enabled", "adaptive")

    @property
    def shows_thinking(self) -> bool:
        """Whether the answer shows its thinking, or only that there was some."""
        return self.thinking is None or self.thinking.display != "omitted"

    @property
    def effort(self) -> str | None:
        """How much to think, in a word."""
        given = self.output_config.effort if self.output_config is not None else None
        return given if given is not None else self.reasoning_effort
