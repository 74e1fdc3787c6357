"""What a tool's `parameters` say, before any of it is compiled: the schema they mean, and which of them are plain strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from converters.constraint import FreeText, JsonValue, Regex, Tool
from converters.errors import InvalidSource
from converters.tools.custom import KEY

_MAX_DEPTH = 16


def object_schema(parameters: JsonValue) -> Mapping[str, JsonValue]:
    """The schema of the arguments: objects only. None, and `properties: []` (some clients send that), are no parameters.

    Raises InvalidSource (path inside `parameters`) for what is no schema of objects.
    """
    if parameters is None or parameters is True:
        parameters = {}
    if not isinstance(parameters, Mapping):
        raise InvalidSource("parameters must be a JSON Schema object", path="")
    schema = {key: value for key, value in parameters.items() if not (key in ("properties", "required") and not value)}
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, Sequence) and not isinstance(kind, str) and "object" in kind):
        raise InvalidSource("parameters must be a schema of objects (type: object)", path="/type")
    return {**schema, "type": "object"}


def text_keys(tool: Tool) -> frozenset[str]:
    """The declared parameters that can only be strings: formats without quotes write those as they are.

    A custom tool's input is one, unless a grammar rules it: what ends a parameter might be a part of its text.
    """
    if tool.input is not None:
        return frozenset([KEY] if isinstance(tool.input, (FreeText, Regex)) else [])
    return text_keys_of(tool.parameters)


def text_keys_of(schema: JsonValue) -> frozenset[str]:
    """The same of any schema of objects."""
    return frozenset(_text_keys(schema, schema, 0))


def _text_keys(schema: JsonValue, root: JsonValue, depth: int) -> set[str]:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return set()
    keys: set[str] = set()
    if isinstance(reference := schema.get("$ref"), str):
        keys |= _text_keys(_resolve(reference, root), root, depth + 1)
    for branch in _list(schema.get("allOf")):
        keys |= _text_keys(branch, root, depth + 1)
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        keys |= {key for key, value in properties.items() if _is_text(value, root, 0)}
    return keys


def _is_text(schema: JsonValue, root: JsonValue, depth: int) -> bool:
    """Are all values of `schema` strings, as far as can be told without compiling it?"""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return False
    if "$ref" in schema:
        reference = schema["$ref"]
        return isinstance(reference, str) and _is_text(_resolve(reference, root), root, depth + 1)
    if schema.get("type") in ("string", ["string"]):
        return True
    if "enum" in schema:
        values = _list(schema["enum"])
        return bool(values) and all(isinstance(value, str) for value in values)
    if any(_is_text(branch, root, depth + 1) for branch in _list(schema.get("allOf"))):
        return True
    for keyword in ("anyOf", "oneOf"):
        branches = _list(schema.get(keyword))
        if branches and all(_is_text(branch, root, depth + 1) for branch in branches):
            return True
    return False


def _resolve(reference: str, root: JsonValue) -> JsonValue:
    """What a local reference points to; None for any other."""
    if not reference.startswith("#"):
        return None
    value: JsonValue = root
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _list(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()
