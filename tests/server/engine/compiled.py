"""Constraints that the engine's tests use again and again, compiled once."""

from __future__ import annotations

from converters import Constraint, compile_constraint
from converters.compile import Compiled

_KNOWN: dict[str, Compiled] = {}


def compiled(constraint: Constraint) -> Compiled:
    """What `compile_constraint` makes of it, remembered for the session."""
    key = repr(constraint)
    if key not in _KNOWN:
        _KNOWN[key] = compile_constraint(constraint)
    return _KNOWN[key]
