"""The scalar fields of Ollama's requests, and of their `options`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, create_model
from pydantic_core import PydanticCustomError

from server.api.duration import Period
from server.api.fields import Boolean, Fields, Integer, Number, SamplerFields, StopStrings, String, TokenIds, read_merged
from server.chat.types import JsonObject
from server.constraints import NESTED, merge_extra_body
from server.values import read_object

PLACES = (*NESTED, "options")
"""Where else a constraint's fields may stand: Open WebUI puts a model's own parameters into `options`."""

_OWN_KNOBS = ("on_length", "reasoning_effort", "grammar_first", "min_tokens")
_LOADING: dict[str, Any] = {
    **dict.fromkeys(("num_ctx", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread"), (Integer | None, None)),
    **dict.fromkeys(("use_mmap", "use_mlock", "low_vram", "f16_kv", "numa", "penalize_newline"), (Boolean | None, None)),
    "tfs_z": (Number | None, None),
}
"""Options that say how a model is loaded, where models.txt decides, or that llama.cpp has no more: only their types count."""


def _think(value: object) -> bool | str:
    if isinstance(value, bool) or (isinstance(value, str) and value in ("low", "medium", "high", "max")):
        return value
    raise PydanticCustomError("invalid_type", "must be true, false, low, medium, high or max")


class _Options(SamplerFields):
    stop: StopStrings | None = None
    num_predict: Annotated[Integer, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    reasoning_effort: String | None = None


_OptionFields: type[_Options] = create_model("_OptionFields", __base__=_Options, **_LOADING)


class RequestFields(Fields):
    """The fields of any request that names a model."""

    model: String | None = None
    name: String | None = None
    stream: Boolean | None = None
    keep_alive: Period | None = None
    verbose: Boolean | None = None
    truncate: Boolean | None = None
    think: Annotated[bool | str, BeforeValidator(_think)] | None = None
    logprobs: Boolean | None = None
    top_logprobs: Annotated[Integer, Field(ge=0, le=20)] | None = None
    template: String | None = None
    prompt: String | None = None
    suffix: String | None = None
    system: String | None = None
    raw: Boolean | None = None
    context: TokenIds | None = None
    dimensions: Annotated[Integer, Field(ge=1)] | None = None

    @property
    def asked_model(self) -> str | None:
        """What the request calls the model, older clients in `name`; None: the default one."""
        return self.model or self.name or None

    @property
    def thinking(self) -> bool | None:
        """How the template's switch is set; a level of thinking sets it by itself."""
        return self.think if isinstance(self.think, bool) else None


def read_request(body: JsonObject) -> RequestFields:
    """A request's own fields. Raises BadRequest naming the field."""
    return read_merged(RequestFields, merge_extra_body(body))


def read_options(body: JsonObject) -> _Options:
    """The fields of `options`, with this server's own knobs, which may stand beside it too. Raises BadRequest."""
    own = {name: field for name, field in merge_extra_body(body).items() if name in _OWN_KNOBS}
    given = {name: (f"options.{name}", value) for name, value in _given_options(body).items() if value is not None}
    return read_merged(_OptionFields, {**own, **given})


def constraint_fields(body: JsonObject) -> JsonObject:
    """The body for `server.constraints` with `PLACES`: Ollama's own options are no constraint fields."""
    own = _OptionFields.model_fields
    return {**body, "options": {name: value for name, value in _given_options(body).items() if name not in own}}


def _given_options(body: JsonObject) -> JsonObject:
    options = body.get("options")
    return {} if options is None else read_object(options, "options")
