"""Words of JSON Schema for the OpenAPI document, and the fields that all dialects' requests share.

`document` puts them together.

The schemas say what a field may be; fields that they don't name are open, as in the requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel

Schema: TypeAlias = dict[str, Any]

NULL: Schema = {"type": "null"}
STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
OBJECT: Schema = {"type": "object"}
ANY_JSON: Schema = {}

SOME_TEXT: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
TOKEN: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}

_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
_HUMAN = ("title", "default", "description")


def array(items: Schema, **more: Any) -> Schema:
    """A list."""
    return {"type": "array", "items": items, **more}


def one_of(*values: str) -> Schema:
    """One of these words."""
    return {"type": "string", "enum": list(values)}


def any_of(*schemas: Schema) -> Schema:
    """What any of them allows."""
    return {"anyOf": list(schemas)}


def record(required: dict[str, Schema], /, **optional: Schema) -> Schema:
    """An object; of the optional fields null is as good as nothing."""
    fields = {name: any_of(schema, NULL) for name, schema in optional.items()}
    return {"type": "object", "properties": {**required, **fields}, "required": list(required)}


def named(kind: str, required: dict[str, Schema], /, **optional: Schema) -> Schema:
    """An object whose `type` is that word."""
    return record({"type": {"const": kind}, **required}, **optional)


def fields_of(model: type[BaseModel]) -> dict[str, Schema]:
    """The optional fields of a wire model, without what Pydantic adds for people."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    fields = {name: _without_null(_plain(field, definitions)) for name, field in schema["properties"].items()}
    return {name: _SPECIAL.get(name, field) for name, field in fields.items()}


def _plain(value: Any, definitions: Mapping[str, Any]) -> Any:
    """References put in, and bounds under JSON Schema's names (a validator in front hides them from Pydantic)."""
    if isinstance(value, list):
        return [_plain(entry, definitions) for entry in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _plain(definitions[value["$ref"].rpartition("/")[2]], definitions)
    is_schema = "properties" not in value or isinstance(value.get("type"), str)
    hidden = _HUMAN if is_schema else ()
    return {_BOUNDS.get(key, key): _plain(entry, definitions) for key, entry in value.items() if key not in hidden}


def _without_null(schema: Schema) -> Schema:
    rest = [entry for entry in schema.get("anyOf", []) if entry != NULL]
    return rest[0] if len(rest) == 1 else {"anyOf": rest} if rest else schema


_SPECIAL: dict[str, Schema] = {
    "logit_bias": {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9]{1,9}$"},
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
    },
    **dict.fromkeys(("stop", "stop_sequences"), any_of(SOME_TEXT, array(SOME_TEXT, maxItems=64))),
}
"""Fields whose validators take what their types don't show."""

_SCHEMA = record(
    {},
    type=one_of("object", "array", "string", "integer", "number", "boolean", "null"),
    properties={"type": "object", "additionalProperties": {"enum": [{"type": "string"}, {"type": "integer"}, {}, True]}},
    required=array(STRING),
    items=OBJECT,
    enum=array(ANY_JSON),
    minLength={**INTEGER, "minimum": 0},
    maxLength={**INTEGER, "minimum": 0},
    minimum=NUMBER,
    maximum=NUMBER,
    pattern=STRING,
    format=one_of("date", "uuid", "email"),
)
JSON_SCHEMA: Schema = any_of(_SCHEMA, BOOLEAN, OBJECT)
"""A JSON Schema in a request."""

NAMED_SCHEMA: Schema = record({}, name=STRING, schema=JSON_SCHEMA, strict=BOOLEAN)
_CHOICES = array(STRING, minItems=1)
_STRUCTURAL_TAG = any_of(OBJECT, STRING)

RESPONSE_FORMAT: Schema = any_of(
    named("text", {}),
    named("json_object", {}, schema=JSON_SCHEMA),
    named("json_schema", {"json_schema": NAMED_SCHEMA}),
    named("json_schema", {"schema": JSON_SCHEMA}),
    named("regex", {}, pattern=STRING, regex=STRING),
    named("grammar", {}, grammar=STRING),
    named("structural_tag", {}, structures=array(OBJECT), triggers=array(STRING), format=OBJECT),
)

CONSTRAINTS: dict[str, Schema] = {
    "guided_choice": _CHOICES,
    "guided_regex": STRING,
    "guided_grammar": STRING,
    "guided_json": any_of(JSON_SCHEMA, STRING),
    "structured_outputs": record(
        {},
        choice=_CHOICES,
        regex=STRING,
        json=any_of(JSON_SCHEMA, STRING),
        grammar=STRING,
        structural_tag=_STRUCTURAL_TAG,
        json_object=BOOLEAN,
        whitespace_pattern=STRING,
        disable_any_whitespace=BOOLEAN,
        disable_additional_properties=BOOLEAN,
    ),
    "response_format": RESPONSE_FORMAT,
    "json_schema": any_of(JSON_SCHEMA, NAMED_SCHEMA),
    "grammar": STRING,
    "regex": STRING,
    "ebnf": STRING,
    "constraint": ANY_JSON,
    "constraint_type": one_of("regex", "lark", "json_schema", "json", "gbnf", "choice"),
    "format": any_of({"const": "json"}, {"const": ""}, JSON_SCHEMA),
    "whitespace": one_of("default", "compact", "spaced", "flexible"),
    "whitespace_pattern": STRING,
    "lenient": BOOLEAN,
    "inject_schema": BOOLEAN,
    "formats": one_of("assert", "annotation"),
    "default_draft": STRING,
    "extra_body": OBJECT,
}
"""The fields of constraints, and how they are compiled: the same in every dialect."""

FUNCTION: Schema = record(
    {"name": {**STRING, "pattern": "^[a-z]{1,9}$"}}, description=STRING, parameters=JSON_SCHEMA, strict=BOOLEAN
)
TEXT_PART: Schema = named("text", {"text": STRING})


def json_body(schema: Schema) -> dict[str, Any]:
    """The `openapi_extra` of a route that describes its JSON body itself."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
