"""The judge of JSON texts: `jsonschema[format-nongpl]`, made exact.

Numbers are Decimal on both sides, formats are checked, patterns are translated from ECMA-262 to `re`: ASCII classes, `$` at the
very end, `.` and `\\s` as ECMA has them. Nothing of the compiler is used here.
"""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import attrs
import jsonschema
from jsonschema import validators

DRAFTS = {
    "draft4": jsonschema.Draft4Validator,
    "draft6": jsonschema.Draft6Validator,
    "draft7": jsonschema.Draft7Validator,
    "2019-09": jsonschema.Draft201909Validator,
    "2020-12": jsonschema.Draft202012Validator,
}
_SPACE = r"\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_LINE_ENDS = r"\n\r\u2028\u2029"


def translated(pattern: str) -> str:
    """An ECMA-262 pattern as one for `re`, with the flags inside."""
    out: list[str] = []
    in_class = False
    i = 0
    while i < len(pattern):
        char = pattern[i]
        if char == "\\" and i + 1 < len(pattern):
            piece, i = _escape(pattern, i, in_class)
            out.append(piece)
            continue
        if in_class:
            in_class = char != "]" or pattern[i - 1 : i] == "["
            out.append("\\[" if char == "[" else char)
        elif char == "[":
            in_class = True
            out.append(char)
            if pattern[i + 1 : i + 2] == "^":
                out.append("^")
                i += 1
        elif char == "$":
            out.append(r"\Z")
        elif char == ".":
            out.append(f"[^{_LINE_ENDS}]")
        elif pattern.startswith("(?<", i) and pattern[i + 3 : i + 4] not in ("=", "!"):
            out.append("(?P<")
            i += 2
        else:
            out.append(char)
        i += 1
    return f"(?a:{''.join(out)})"


def _escape(pattern: str, i: int, in_class: bool) -> tuple[str, int]:
    char = pattern[i + 1]
    if char in "sS":
        if in_class and char == "S":
            return r"\S", i + 2
        return (_SPACE if in_class else f"[{'^' if char == 'S' else ''}{_SPACE}]"), i + 2
    if char == "u" and re.match(r"\{[0-9a-fA-F]+\}", pattern[i + 2 :]):
        end = pattern.index("}", i)
        return f"\\U{int(pattern[i + 3 : end], 16):08x}", end + 1
    if char.isalpha() and char not in "dDwWbBtnrfvxuAZ":
        return re.escape(char), i + 2
    if char == "Z":
        return r"\Z", i + 2
    return pattern[i : i + 2], i + 2


def translated_schema(schema: Any, names: bool = False) -> Any:
    """The schema with every pattern translated. `names`: the keys of this object are names, not keywords."""
    if isinstance(schema, list):
        return [translated_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    out = {}
    for key, value in schema.items():
        if names:
            out[key] = translated_schema(value)
        elif key == "pattern" and isinstance(value, str):
            out[key] = translated(value)
        elif key == "patternProperties" and isinstance(value, Mapping):
            out[key] = {translated(pattern): translated_schema(child) for pattern, child in value.items()}
        elif key in ("enum", "const", "default", "examples", "required"):
            out[key] = value
        else:
            maps = ("properties", "definitions", "$defs", "dependentSchemas", "dependencies")
            out[key] = translated_schema(value, names=key in maps)
    return out


def _is_integer(_: object, value: object) -> bool:
    return not isinstance(value, bool) and (
        isinstance(value, int) or (isinstance(value, Decimal) and value == value.to_integral_value())
    )


def _is_written_integer(_: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def read(text: str) -> Any:
    """A JSON text, numbers exact. Raises ValueError for NaN and the like."""

    def refuse(name: str) -> Any:
        raise ValueError(name)

    return json.loads(text, parse_float=Decimal, parse_constant=refuse)


def draft_of(schema: Any, default: str = "2020-12") -> str:
    """The draft that a schema names."""
    uri = schema.get("$schema", "") if isinstance(schema, Mapping) else ""
    for mark, name in (("draft-04", "draft4"), ("draft-06", "draft6"), ("draft-07", "draft7"), ("2019-09", "2019-09")):
        if mark in uri:
            return name
    return "2020-12" if "2020-12" in uri else default


class Judge:
    """Says whether a JSON text is a valid instance of one schema."""

    def __init__(self, schema: Any, draft: str | None = None, *, formats: bool = True) -> None:
        draft = draft or draft_of(schema)
        self.validator = _validator(draft)(
            read(json.dumps(translated_schema(schema))),
            format_checker=DRAFTS[draft].FORMAT_CHECKER if formats else None,
        )

    def errors(self, text: str) -> list[str]:
        """Why `text` is not valid; nothing when it is. What isn't JSON is not valid."""
        try:
            value = read(text)
        except ValueError as error:
            return [f"not JSON: {error}"]
        with decimal.localcontext() as context:
            context.prec = 3000
            context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
            return [error.message[:200] for error in self.validator.iter_errors(value)]


@lru_cache
def _validator(draft: str) -> Any:
    base = DRAFTS[draft]
    check = _is_written_integer if draft == "draft4" else _is_integer
    extend: Callable[..., Any] = validators.extend  # untyped there
    exact = extend(base, type_checker=base.TYPE_CHECKER.redefine("integer", check))
    exact.evolve = _keeping_exact(exact.evolve)
    return exact


_DRAFT_OF_STOCK = {validator: name for name, validator in DRAFTS.items()}


def _keeping_exact(evolve: Callable[..., Any]) -> Callable[..., Any]:
    """At a nested `$schema` the library goes on with its own validator of that draft, to which the Decimal 1.00 is no integer
    (to the float 1.0 it is one): here with the exact validator of that draft."""

    def evolve_exactly(self: Any, **changes: Any) -> Any:
        evolved = evolve(self, **changes)
        draft = _DRAFT_OF_STOCK.get(type(evolved))
        if draft is None:
            return evolved
        fields = [field for field in attrs.fields(type(evolved)) if field.init]
        return _validator(draft)(**{field.alias: getattr(evolved, field.name) for field in fields})

    return evolve_exactly
