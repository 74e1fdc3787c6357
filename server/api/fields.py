"""The scalar fields of requests, for every dialect: types, ranges, and the sampler's parameters under llama.cpp's names.

null is absent everywhere, whole floats are integers, booleans are not numbers. What is deep (messages, tools, prompts,
constraints) is read by its own module from the same body; unknown fields are ignored here. No dialect's own fields here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from decimal import Decimal
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from converters.constraint import JsonValue
from server.chat.types import JsonObject, OnLength, Sampling
from server.constraints import merge_extra_body
from server.errors import BadRequest, wrong_type

MAX_STOP_STRINGS = 64
MAX_STOP_BYTES = 1024
MAX_BREAKERS = 32
MAX_BREAKER_BYTES = 40  # llama.cpp cuts longer ones off
MAX_SEED = 2**32 - 1  # llama.cpp's seeds are 32 bits wide, the last one means "draw one"

FieldMap: TypeAlias = Mapping[str, tuple[str, JsonValue]]
"""A request's fields by name: the path of each, as errors name it, and its value."""


def _wrong(expected: str) -> PydanticCustomError:
    return PydanticCustomError("invalid_type", "must be {expected}", {"expected": expected})


def read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _wrong("a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _wrong("a finite number")
    return number


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, bool) or not isinstance(value, float | Decimal):
        raise _wrong("an integer")
    number = read_number(value)
    if not number.is_integer():
        raise _wrong("an integer")
    return int(number)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong("a boolean")
    return value


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise _wrong("a string")
    return value


def _stop(value: object) -> tuple[str, ...]:
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(entry, str) for entry in strings):
        raise _wrong("a string or a list of strings")
    if len(strings) > MAX_STOP_STRINGS:
        raise PydanticCustomError("limit", "may have at most {n} strings", {"n": MAX_STOP_STRINGS})
    for entry in strings:
        if not 0 < len(entry.encode("utf-8")) <= MAX_STOP_BYTES:
            raise PydanticCustomError("limit", "strings must have 1 to {n} bytes", {"n": MAX_STOP_BYTES})
    return tuple(strings)


def _logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    """{"token id": bias}. Ids are decimal strings, biases from -100 to 100."""
    if not isinstance(value, Mapping):
        raise _wrong("an object of token ids and numbers")
    pairs = []
    for key, bias in value.items():
        if not (isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10):
            raise PydanticCustomError("invalid_key", "key {key} is not a token id", {"key": repr(key)})
        number = read_number(bias)
        if not -100 <= number <= 100:
            raise PydanticCustomError("range", "must be from -100 to 100 for token {key}", {"key": key})
        pairs.append((int(key), number))
    return tuple(pairs)


def _on_length(value: object) -> str:
    """What a constrained reply does at its last tokens."""
    if value not in ("complete", "stop", "cut"):
        raise _wrong("one of complete, stop and cut")
    return str(value)


def _breakers(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
        raise _wrong("a list of non-empty strings")
    if len(value) > MAX_BREAKERS or any(len(entry.encode("utf-8")) > MAX_BREAKER_BYTES for entry in value):
        limits = {"n": MAX_BREAKERS, "size": MAX_BREAKER_BYTES}
        raise PydanticCustomError("limit", "may have at most {n} strings of at most {size} bytes", limits)
    return tuple(value)


def _token_ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < 2**31 for token in value):
        raise _wrong("a list of token ids")
    return tuple(value)


Number = Annotated[float, BeforeValidator(read_number)]
Integer = Annotated[int, BeforeValidator(_integer)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
String = Annotated[str, BeforeValidator(_string)]
Share = Annotated[Number, Field(ge=0, le=1)]
Count = Annotated[Integer, Field(ge=0, le=2**31 - 1)]
Penalty = Annotated[Number, Field(ge=-2, le=2)]
TokenIds = Annotated[tuple[int, ...], BeforeValidator(_token_ids)]
StopStrings = Annotated[tuple[str, ...], BeforeValidator(_stop)]


class Fields(BaseModel):
    """Scalar fields of a request, every one of them optional."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    def check(self) -> None:
        """Rules between fields. Raises BadRequest."""


class ModelFields(Fields):
    """Which model is asked; None: the default one."""

    model: String | None = None


class TemplateFields(Fields):
    """What a chat's template is told, and how much to think, under the names of this server."""

    template: String | None = None
    thinking: Boolean | None = None
    enable_thinking: Boolean | None = None
    reasoning_effort: String | None = None

    @property
    def switch(self) -> bool | None:
        """How the request sets the template's switch for thinking; None: not at all."""
        return self.thinking if self.thinking is not None else self.enable_thinking


class SamplerFields(Fields):
    """The sampler's parameters, all of `Sampling`, under llama.cpp's names; and how a constrained reply is sampled and ends."""

    temperature: Annotated[Number, Field(ge=0, le=100)] | None = None
    top_k: Annotated[Integer, Field(ge=-1, le=2**31 - 1)] | None = None
    top_p: Share | None = None
    min_p: Share | None = None
    typical_p: Share | None = None
    top_n_sigma: Annotated[Number, Field(ge=-1, le=1000)] | None = None
    xtc_probability: Share | None = None
    xtc_threshold: Share | None = None
    dynatemp_range: Annotated[Number, Field(ge=0, le=100)] | None = None
    dynatemp_exponent: Annotated[Number, Field(ge=0, le=100)] | None = None
    repeat_penalty: Annotated[Number, Field(gt=0, le=10)] | None = None
    repetition_penalty: Annotated[Number, Field(gt=0, le=10)] | None = None
    repeat_last_n: Annotated[Integer, Field(ge=-1, le=2**31 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    dry_multiplier: Annotated[Number, Field(ge=0, le=100)] | None = None
    dry_base: Annotated[Number, Field(ge=0, le=100)] | None = None
    dry_allowed_length: Count | None = None
    dry_penalty_last_n: Annotated[Integer, Field(ge=-1, le=2**31 - 1)] | None = None
    dry_sequence_breakers: Annotated[tuple[str, ...], BeforeValidator(_breakers)] | None = None
    mirostat: Annotated[Integer, Field(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[Number, Field(ge=0, le=1000)] | None = None
    mirostat_eta: Annotated[Number, Field(ge=0, le=100)] | None = None
    seed: Annotated[Integer, Field(ge=-1, le=2**63 - 1)] | None = None
    logit_bias: Annotated[tuple[tuple[int, float], ...], BeforeValidator(_logit_bias)] | None = None
    min_tokens: Count | None = None
    ignore_eos: Boolean | None = None
    grammar_first: Boolean | None = None
    on_length: Annotated[OnLength, BeforeValidator(_on_length)] | None = None

    def sampling(self) -> Sampling:
        """The sampler's parameters; what isn't set keeps llama.cpp's default."""
        names = {field.name for field in dataclass_fields(Sampling)}
        given: dict[str, Any] = {name: getattr(self, name) for name in names & set(type(self).model_fields)}
        if given["repeat_penalty"] is None:
            given["repeat_penalty"] = self.repetition_penalty
        if given["top_k"] == -1:
            given["top_k"] = 0
        if given["seed"] is not None:
            given["seed"] = None if given["seed"] == -1 else given["seed"] % MAX_SEED
        return Sampling(**{name: value for name, value in given.items() if value is not None})

    def check(self) -> None:
        """Rules between fields. Raises BadRequest."""
        if None not in (self.repeat_penalty, self.repetition_penalty) and self.repeat_penalty != self.repetition_penalty:
            raise BadRequest("repeat_penalty and repetition_penalty are the same thing", param="repetition_penalty")


FieldsT = TypeVar("FieldsT", bound=Fields)


def read_fields(model: type[FieldsT], body: JsonObject) -> FieldsT:
    """The scalar fields of a body and its `extra_body`. Raises BadRequest naming the first that is wrong."""
    return read_merged(model, merge_extra_body(body))


def read_model_name(body: JsonObject) -> str | None:
    """The model that a body names, which its other fields are read without. Raises BadRequest."""
    return read_fields(ModelFields, body).model


def read_merged(model: type[FieldsT], merged: FieldMap) -> FieldsT:
    """The same from fields that are gathered already, none of them null."""
    try:
        fields = model.model_validate({name: merged[name][1] for name in model.model_fields if name in merged})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = ".".join([merged.get(str(first["loc"][0]), (str(first["loc"][0]),))[0], *map(str, first["loc"][1:])])
        code = "invalid_type" if first["type"] == "invalid_type" else "invalid_value"
        raise BadRequest(f"{path} {_sentence(first['msg'])}", param=path, code=code) from None
    fields.check()
    return fields


def template_kwargs(fields: FieldMap, switch: bool | None) -> JsonObject:
    """What `chat_template_kwargs` hands to the template; its switches of thinking don't count beside a field of their own."""
    path, value = fields.get("chat_template_kwargs", ("chat_template_kwargs", {}))
    if not isinstance(value, Mapping):
        raise wrong_type(path, "an object", value)
    reserved = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"} & set(value)
    if reserved:
        name = min(reserved)
        raise BadRequest(f"{path}.{name} has a field of its own", param=f"{path}.{name}")
    hidden = () if switch is None else ("thinking", "enable_thinking")
    return {name: entry for name, entry in value.items() if name not in hidden}


def _sentence(message: str) -> str:
    return message.replace("Input should be ", "must be ", 1).replace("Field required", "is missing")
