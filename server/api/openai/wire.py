"""The scalar fields of OpenAI's requests, beside the sampler's parameters that every dialect has (`server.api.fields`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from server.api.chat_prompt import PromptFields
from server.api.fields import Boolean, Count, Integer, SamplerFields, StopStrings, String
from server.errors import BadRequest

MAX_CHOICES = 128


class StreamOptions(BaseModel):
    """What else a stream carries."""

    include_usage: Boolean | None = None
    include_obfuscation: Boolean | None = None


class SamplingFields(SamplerFields):
    """What both endpoints share."""

    model: String | None = None
    stream: Boolean | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[Integer, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: StopStrings | None = None

    @property
    def is_stream(self) -> bool:
        """Whether the answer is to be streamed."""
        return bool(self.stream)

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def check(self) -> None:
        """Rules between fields. Raises BadRequest."""
        super().check()
        if self.stream_options is not None and not self.is_stream:
            raise BadRequest("stream_options is only for stream: true", param="stream_options")


class ChatFields(SamplingFields, PromptFields):
    """The scalar fields of /v1/chat/completions."""

    max_tokens: Annotated[Integer, Field(ge=1, le=2**31 - 1)] | None = None
    max_completion_tokens: Annotated[Integer, Field(ge=1, le=2**31 - 1)] | None = None
    logprobs: Boolean | None = None
    top_logprobs: Annotated[Integer, Field(ge=0, le=20)] | None = None
    parallel_tool_calls: Boolean | None = None


class CompletionFields(SamplingFields):
    """The scalar fields of /v1/completions."""

    max_tokens: Count | None = None
    logprobs: Annotated[Integer, Field(ge=0, le=20)] | None = None
    echo: Boolean | None = None
    suffix: String | None = None
    best_of: Annotated[Integer, Field(ge=1, le=MAX_CHOICES)] | None = None
