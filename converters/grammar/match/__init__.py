"""The reference matcher: llama.cpp's semantics in Python, fast once warm.

    tables = build_tables(grammar)          where the grammar is compiled
    matcher = Matcher.from_tables(tables)   where it is used
    matcher.accepts("…")

`tables` lowers a grammar to a program and writes it as bytes, `program` reads them, `matcher` walks, `sentence` makes texts.
"""

from converters.grammar.match.matcher import Matcher, State, Verdict
from converters.grammar.match.tables import build_tables

__all__ = ["Matcher", "State", "Verdict", "build_tables"]
