"""What the OpenAPI document says of routes that read their bodies themselves: `openapi_extra=json_body(SCHEMA)`.

The schemas say what a field may be; fields that they don't name are open, as in the requests.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

NULL: Schema = {"type": "null"}
STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
OBJECT: Schema = {"type": "object"}
ANY_JSON: Schema = {}


def array(items: Schema, **more: Any) -> Schema:
    """A list."""
    return {"type": "array", "items": items, **more}


def one_of(*values: str) -> Schema:
    """One of these words."""
    return {"type": "string", "enum": list(values)}


def any_of(*schemas: Schema) -> Schema:
    """What any of them allows."""
    return {"anyOf": list(schemas)}


def record(required: dict[str, Schema], **optional: Schema) -> Schema:
    """An object; of the optional fields null is as good as nothing."""
    fields = {name: any_of(schema, NULL) for name, schema in optional.items()}
    return {"type": "object", "properties": {**required, **fields}, "required": list(required)}


def json_body(schema: Schema) -> dict[str, Any]:
    """The `openapi_extra` of a route whose request body is JSON of this schema."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
