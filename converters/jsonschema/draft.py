"""The drafts of JSON Schema, and which one a schema speaks."""

from __future__ import annotations

from collections.abc import Mapping

from converters.constraint import Draft
from converters.errors import InvalidSource, UnsupportedFeature

DRAFTS: dict[str, Draft] = {
    "json-schema.org/draft-04/schema": "draft4",
    "json-schema.org/draft-06/schema": "draft6",
    "json-schema.org/draft-07/schema": "draft7",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft/2020-12/schema": "2020-12",
}
_ORDER: tuple[Draft, ...] = ("draft4", "draft6", "draft7", "2019-09", "2020-12")


def is_before(a: Draft, b: Draft) -> bool:
    """True when draft `a` is older than draft `b`."""
    return _ORDER.index(a) < _ORDER.index(b)


def named_draft(schema: Mapping[str, object]) -> Draft | None:
    """The draft that the `$schema` of this very object names, if it is a known one."""
    name = schema.get("$schema")
    if not isinstance(name, str):
        return None
    return DRAFTS.get(name.rstrip("#").removeprefix("https://").removeprefix("http://"))


def draft_of(schema: object, default: Draft | None) -> Draft:
    """The draft of a whole schema: named, else `default`, else 2020-12.

    Raises UnsupportedFeature for an unknown one, InvalidSource for what is no name.
    """
    if not isinstance(schema, Mapping) or "$schema" not in schema:
        return default or "2020-12"
    if not isinstance(schema["$schema"], str):
        raise InvalidSource("$schema must be a string", path="/$schema")
    draft = named_draft(schema)
    if draft is None:
        raise UnsupportedFeature(f"the unknown meta-schema {schema['$schema']!r}", path="/$schema")
    return draft
