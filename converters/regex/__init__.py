"""Regular expressions: pattern text to tree, to automaton, to grammar (spec section 3)."""

from __future__ import annotations

from converters.regex.edges import Mode
from converters.regex.lower import lower_regex, regex_dfa, regex_grammar
from converters.regex.parser import parse

__all__ = ["Mode", "lower_regex", "parse", "regex_dfa", "regex_grammar"]
