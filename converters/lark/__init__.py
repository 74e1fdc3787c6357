"""Lark grammars to grammars. `lark_grammar` compiles one; `detect.detect_grammar_kind` tells GBNF from Lark."""

from converters.lark.source import lark_grammar

__all__ = ["lark_grammar"]
