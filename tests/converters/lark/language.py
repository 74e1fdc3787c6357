"""How the tests here judge a Lark source: compiled, then asked by the reference matcher which texts are in the language."""

from __future__ import annotations

from converters.compile import Compiled, compile_constraint
from converters.constraint import Lark
from converters.grammar.match import Matcher


def compile_lark(text: str) -> Compiled:
    """The compiled grammar. Raises ConversionError."""
    return compile_constraint(Lark(text))


def matcher_of(text: str) -> Matcher:
    """The reference matcher of the compiled grammar."""
    return Matcher.from_tables(compile_lark(text).tables)
