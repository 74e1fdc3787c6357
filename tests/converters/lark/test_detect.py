"""GBNF and Lark told apart."""

from __future__ import annotations

import time

import pytest

from converters.lark.detect import detect_grammar_kind

GBNF = [
    'root ::= "a"',
    'root::="a: b"',
    '\n# start: "x"\n  root   ::= [:/"] b\nb ::= "/"',
    'root ::=\n  "a"',
    'root\n::= "a"',
    'my-rule ::= root\nroot ::= [^"]*',
    '\ufeffroot ::= "a"',
    'root ::= "%import common.WS"\n',
    "a ::= b\n%ignore",
    'root := "a"',
    "root",
    "= ::=",
]
LARK = [
    'start: "a"',
    'start : "::="',
    '// root ::= "a"\nstart: /::=/',
    '# a ::= b\n?start: x\nx: "::="',
    "%ignore / /\nstart: x",
    "%import common.NUMBER",
    '%llguidance {}\nstart: "a"',
    "!?start: x",
    "_sep{x, y}: x (y x)*",
    'start.2: "x"',
    'start.-1[lazy, stop="::="]: "x"',
    'A.3: "a"',
    'start:\n  | "root ::= x"',
    'my-rule: "x"',
    "",
    "no grammar at all",
    'start = "a"',
]


@pytest.mark.parametrize("text", GBNF)
def test_gbnf(text: str) -> None:
    assert detect_grammar_kind(text) == "gbnf"


@pytest.mark.parametrize("text", LARK)
def test_lark(text: str) -> None:
    assert detect_grammar_kind(text) == "lark"


@pytest.mark.parametrize("piece", ["a", "{", "a{", " ", "#", "a [ ", "a\n", "_", "\n", "a{}", "a.", "//", "?!"])
def test_takes_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    started = time.process_time()
    detect_grammar_kind(text)
    assert time.process_time() - started < 1
