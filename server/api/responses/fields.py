"""The scalar fields of /v1/responses, and what is refused by name. Items, tools and constraints are read elsewhere."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from server.api.fields import Boolean, FieldMap, Integer, SamplerFields, StopStrings, String, TemplateFields, read_merged
from server.errors import UnsupportedParameter

Include = Literal[
    "message.output_text.logprobs", "reasoning.encrypted_content", "message.input_image.image_url",
    "file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
    "computer_call_output.output.image_url", "code_interpreter_call.outputs",
]  # fmt: skip
_UNSUPPORTED = {
    "background": "a response is made while its client waits",
    "conversation": "previous_response_id continues a response",
    "prompt": "no templates of prompts are stored here",
    "context_management": "nothing is compacted; there is truncation",
}
_REPEATED = ("instructions", "max_output_tokens", "max_tool_calls", "previous_response_id")
_REPEATED_IF_SET = ("user", "safety_identifier", "prompt_cache_key")


class Reasoning(BaseModel):
    """How much to think. A summary is accepted and never made: the text itself comes back."""

    effort: String | None = None
    summary: String | None = None


class ResponseFields(SamplerFields, TemplateFields):
    """The scalar fields of a request under OpenAI's names; `stop` and those of the template are as in a chat."""

    model: String | None = None
    stream: Boolean | None = None
    stream_options: dict[str, Boolean] | None = None
    instructions: String | None = None
    previous_response_id: String | None = None
    store: Boolean | None = None
    include: tuple[Include, ...] = ()
    max_output_tokens: Annotated[Integer, Field(ge=1, le=2**31 - 1)] | None = None
    max_tool_calls: Annotated[Integer, Field(ge=1)] | None = None
    parallel_tool_calls: Boolean | None = None
    reasoning: Reasoning = Field(default_factory=Reasoning)
    top_logprobs: Annotated[Integer, Field(ge=0, le=20)] = 0
    truncation: Literal["auto", "disabled"] = "disabled"
    metadata: dict[str, String] = Field(default_factory=dict)
    user: String | None = None
    safety_identifier: String | None = None
    prompt_cache_key: String | None = None
    stop: StopStrings | None = None

    @property
    def has_logprobs(self) -> bool:
        """Whether the text comes with its log-probabilities."""
        return "message.output_text.logprobs" in self.include or self.top_logprobs > 0

    @property
    def effort(self) -> str | None:
        """How much to think, in this API's field or in the chat's."""
        return self.reasoning_effort if self.reasoning.effort is None else self.reasoning.effort

    def repeated(self) -> dict[str, Any]:
        """What a response repeats of its request, with the defaults that counted."""
        sampling = self.sampling()
        return {
            "background": False,
            "metadata": self.metadata,
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "reasoning": {"effort": self.effort, "summary": self.reasoning.summary},
            "service_tier": "default",
            "store": self.store is not False,
            "temperature": sampling.temperature,
            "top_logprobs": self.top_logprobs,
            "top_p": sampling.top_p,
            "truncation": self.truncation,
            **{name: getattr(self, name) for name in _REPEATED},
            **{name: getattr(self, name) for name in _REPEATED_IF_SET if getattr(self, name) is not None},
        }


def read_response_fields(merged: FieldMap) -> ResponseFields:
    """The scalar fields. Raises BadRequest naming the first that is wrong, UnsupportedParameter for what can't be done."""
    fields = read_merged(ResponseFields, merged)
    for name, reason in _UNSUPPORTED.items():
        path, value = merged.get(name, (name, False))
        if value is not False and value != []:
            raise UnsupportedParameter(f"{path} is not supported: {reason}", param=path)
    if merged.get("n", ("n", 1))[1] != 1:
        raise UnsupportedParameter("n is not supported: a response is one answer", param=merged["n"][0])
    return fields
