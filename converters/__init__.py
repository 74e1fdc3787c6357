"""The compiler: a constraint in, GBNF out. Knows nothing of servers and never imports llama_cpp.

    from converters import JsonSchema, compile_constraint
    compile_constraint(JsonSchema({"type": "integer"})).gbnf

Names are imported on first use, so that `converters.grammar` alone (all the engine needs) loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from converters.compile import Compiled, CompileOptions, Relaxation, Stats, compile_constraint
    from converters.constraint import (
        AnyJson,
        Choice,
        Constraint,
        FreeText,
        Gbnf,
        JsonSchema,
        Lark,
        Regex,
        StructuralTag,
        Tool,
        ToolCalls,
    )
    from converters.errors import (
        ConversionError,
        InvalidSource,
        LimitExceeded,
        Position,
        Unsatisfiable,
        UnsupportedFeature,
    )
    from converters.limits import Limits

_HOME = {
    "compile": ("CompileOptions", "Compiled", "Relaxation", "Stats", "compile_constraint"),
    "constraint": (
        "AnyJson", "Choice", "Constraint", "FreeText", "Gbnf", "JsonSchema", "Lark", "Regex", "StructuralTag", "Tool",
        "ToolCalls",
    ),
    "errors": ("ConversionError", "InvalidSource", "LimitExceeded", "Position", "Unsatisfiable", "UnsupportedFeature"),
    "limits": ("Limits",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AnyJson", "Choice", "CompileOptions", "Compiled", "Constraint", "ConversionError", "FreeText", "Gbnf", "InvalidSource",
    "JsonSchema", "Lark", "LimitExceeded", "Limits", "Position", "Regex", "Relaxation", "Stats", "StructuralTag", "Tool",
    "ToolCalls", "Unsatisfiable", "UnsupportedFeature", "compile_constraint",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'converters' has no attribute {name!r}")
    return getattr(import_module(f"converters.{_MODULE_OF[name]}"), name)
