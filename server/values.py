"""JSON values of a request, read by their path: what isn't of the type that belongs there is a BadRequest that names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from converters.constraint import JsonValue
from server.chat.types import JsonObject
from server.errors import BadRequest, wrong_type
from server.json_text import InvalidJson, dump_json, parse_json_text

_MAX_DEPTH = 1000  # of what a model writes


def read_object(value: JsonValue, path: str) -> JsonObject:
    """An object."""
    if not isinstance(value, Mapping):
        raise wrong_type(path, "an object", value)
    return value


def read_string(value: JsonValue, path: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise wrong_type(path, "a string", value)
    return value


def read_boolean(value: JsonValue, path: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong_type(path, "a boolean", value)
    return value


def read_one_of(value: JsonValue, path: str, words: Sequence[str]) -> str:
    """One of these texts."""
    if not isinstance(value, str) or value not in words:
        raise BadRequest(f"{path} must be one of {', '.join(words)}, not {dump_json(value)}", param=path, code="invalid_value")
    return value


def read_text(owner: JsonObject, name: str, path: str, default: str | None = None) -> str:
    """The text `name` of the object at `path`; null and absent are the default, if there is one."""
    text = owner.get(name)
    if text is None and default is not None:
        return default
    if not isinstance(text, str):
        raise wrong_type(f"{path}.{name}", "a string", text)
    return text


def read_optional_text(owner: JsonObject, name: str, path: str) -> str | None:
    """The text `name` of the object at `path`; None where it is null or absent."""
    return None if owner.get(name) is None else read_text(owner, name, path)


def read_flag(owner: JsonObject, name: str, path: str, default: bool = False) -> bool:
    """The boolean `name` of the object at `path`; null and absent are the default."""
    flag = owner.get(name)
    return default if flag is None else read_boolean(flag, f"{path}.{name}")


def read_word(owner: JsonObject, name: str, path: str, words: Sequence[str], default: str | None = None) -> str:
    """The text `name` of the object at `path`, one of `words`; null and absent are the default, if there is one."""
    value = owner.get(name)
    return default if value is None and default is not None else read_one_of(value, f"{path}.{name}", words)


def missing(path: str) -> BadRequest:
    """The error for a field that must be there."""
    return BadRequest(f"{path} is missing", param=path, code="missing_field")


def parse_call(arguments: str) -> JsonObject | None:
    """A call's arguments as the object that they are; None where the answer ended inside them, or they are no object."""
    try:
        value = parse_json_text(arguments, max_depth=_MAX_DEPTH, param="arguments")
    except InvalidJson:
        return None
    return value if isinstance(value, Mapping) else None


def read_list(value: JsonValue, path: str) -> list[tuple[JsonValue, str]]:
    """The entries of a list with their paths; null and absent are an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise wrong_type(path, "a list", value)
    return [(entry, f"{path}[{i}]") for i, entry in enumerate(value)]
