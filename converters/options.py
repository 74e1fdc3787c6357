"""How to compile: the options that every sub-compiler sees, and what a lenient one reports. No code that compiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from converters.limits import Limits
from converters.limits import Relaxation as Relaxation

Whitespace = Literal["default", "compact", "spaced", "flexible"]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How to compile. `whitespace` and `whitespace_pattern` (a regex for each gap) count for JSON kinds only (spec section 5).

    `lenient` relaxes what can't be expressed and lists it in `Compiled.relaxed`; the default refuses.
    """

    whitespace: Whitespace = "default"
    whitespace_pattern: str | None = None
    lenient: bool = False
    plain_integers: bool = False  # integers are digits, never 1.0 or 1e3 (tool parameters: many clients read them into an int)
    closed_objects: bool = False  # an object schema that doesn't mention additionalProperties is closed (tool parameters)
    limits: Limits = field(default_factory=Limits)
