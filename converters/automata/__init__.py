"""Regular languages: deterministic automata over Unicode, their set algebra, and their way into grammar rules.

`Dfa` is the value everything turns on; what can grow takes a `Budget` and raises LimitExceeded. Patterns are not read here
(`converters.regex`), and no JSON Schema is known.
"""

from __future__ import annotations

from converters.automata.acyclic import WordGraph, of_strings, word_graph
from converters.automata.algebra import (
    bounded,
    complement,
    difference,
    equivalent,
    includes,
    intersection,
    is_disjoint,
    union,
)
from converters.automata.dfa import ANY_CHAR, ANY_TEXT, EMPTY_TEXT, NOTHING, Dfa, of_charset, of_length, of_string
from converters.automata.lower import spelled_char, to_expr
from converters.automata.minimise import minimise, trim
from converters.automata.nfa import Nfa, concatenated, repeated, reversed_language
from converters.automata.position import cheapest_expr
from converters.automata.sample import count, random_word, shortest, words
from converters.automata.spelling import DUMPS, DUMPS_ASCII, DUMPS_RAW, JSON, Spelling

__all__ = [
    "ANY_CHAR", "ANY_TEXT", "DUMPS", "DUMPS_ASCII", "DUMPS_RAW", "EMPTY_TEXT", "JSON", "NOTHING", "Dfa", "Nfa", "Spelling",
    "WordGraph", "bounded", "cheapest_expr", "complement", "concatenated", "count", "difference", "equivalent", "includes",
    "intersection", "is_disjoint", "minimise", "of_charset", "of_length", "of_string", "of_strings", "random_word",
    "repeated", "reversed_language", "shortest", "spelled_char", "to_expr", "trim", "union", "word_graph", "words",
]  # fmt: skip
