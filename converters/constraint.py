"""The closed set of things a caller can ask an output to be.

A constraint is source text (or a JSON value), not yet read: reading it is `compile_constraint`'s work. Nothing here knows
request fields (`server/constraints.py` does) and nothing here validates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
"""A parsed JSON text. Numbers may also be `decimal.Decimal` (exact bounds beyond binary floats)."""

Draft: TypeAlias = Literal["draft4", "draft6", "draft7", "2019-09", "2020-12"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Exactly one of `options`, character for character."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Regex:
    """A full match of `pattern` (the dialect of spec section 3)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A JSON text that validates against `schema` (spec section 5).

    `default_draft` counts where the schema names none; `formats="annotation"` ignores every `format`.
    """

    schema: JsonValue
    default_draft: Draft | None = None
    formats: Literal["assert", "annotation"] = "assert"


@dataclass(frozen=True, slots=True)
class AnyJson:
    """One JSON value of any nesting, or with `object_only` one JSON object."""

    object_only: bool = False


@dataclass(frozen=True, slots=True)
class Gbnf:
    """A sentence of a grammar in llama.cpp's dialect, entry rule `root`."""

    text: str


@dataclass(frozen=True, slots=True)
class Lark:
    """A sentence of a Lark grammar, entry rule `start`."""

    text: str


@dataclass(frozen=True, slots=True)
class StructuralTag:
    """Free text with tagged parts that a schema rules; `spec` is the request's object, in any form of spec section 3."""

    spec: JsonValue


@dataclass(frozen=True, slots=True)
class FreeText:
    """Any text: the input of a custom tool that sets no grammar."""


ToolInput: TypeAlias = "FreeText | Regex | Lark | Gbnf"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is its JSON Schema (None: no parameters).

    With `input` it is a custom tool, which takes one text instead of arguments; `parameters` doesn't count then.
    """

    name: str
    parameters: JsonValue = None
    input: ToolInput | None = None


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """One or more calls (`parallel=False`: exactly one) of `tools`, in the output format named `codec`.

    tokens: the codec's `markers` that the vocabulary has as control tokens, with their ids: those are named as tokens, the
    others are text. content: the turn may be this instead of calls (tools beside a response format). opening: one of the
    codec's triggers that is written already; the grammar is what follows it, to the end of that call (of that list of calls).
    """

    tools: tuple[Tool, ...]
    codec: str
    parallel: bool = True
    tokens: tuple[tuple[str, int], ...] = ()
    content: Constraint | None = None
    opening: str | None = None


Constraint: TypeAlias = Choice | Regex | JsonSchema | AnyJson | Gbnf | Lark | StructuralTag | ToolCalls
