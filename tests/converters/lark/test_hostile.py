"""Texts made to hurt: each is answered by a ConversionError or a grammar within the compile time, and by nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeVar

import pytest

from converters.errors import ConversionError
from converters.lark import lark_grammar
from converters.lark.syntax import parse
from converters.limits import Budget
from converters.options import CompileOptions
from tests.converters.lark.language import compile_lark
from tests.oracle import Oracle

KIB16 = 16 * 1024


def _chain(n: int, template: str, last: str) -> str:
    return "".join(template.format(i, i + 1) for i in range(n)) + last.format(n)


HOSTILE = {
    "10,000 rules in a chain": 'start: r0\n' + _chain(10_000, 'r{}: r{} "a" | "b"\n', 'r{}: "c"\n'),
    "10,000 terminals in a chain": 'start: T0\n' + _chain(10_000, 'T{}: T{} "a"\n', 'T{}: "c"\n'),
    "1,000 terminals in nested groups": 'start: T0\n' + _chain(1_000, 'T{}: (T{} "a")*\n', 'T{}: "c"\n'),
    "terminals that double": "start: T0\n" + _chain(40, "T{0}: T{1} T{1}\n", 'T{}: "c"\n'),
    "rules that double": "start: r0\n" + _chain(40, "r{0}: r{1} r{1}\n", 'r{}: "c"\n'),
    "rules that double by counts": "start: r0\n" + _chain(40, "r{0}: r{1}~1000\n", 'r{}: "c"\n'),
    "lazy terminals in a chain": 'start: T0\n' + _chain(300, 'T{}: T{} /x.*?y/\n', 'T{}: /a.*?b/\n'),
    "parentheses": "start: " + "(" * KIB16,
    "closed parentheses": "start: " + "(" * 8000 + '"a"' + ")" * 8000,
    "closing parentheses": "start: " + ")" * KIB16,
    "brackets": "start: " + "[" * 90 + '"a"' + "]" * 90,
    "groups that repeat": "start: " + "(" * 90 + '"a"?' + ")*" * 90,
    "counts that multiply": "start: " + "(" * 20 + '"a"' + ")~1000" * 20,
    "counts that multiply, in a terminal": "start: A\nA: " + "(" * 20 + '"a"' + ")~1000" * 20,
    "a huge count": 'start: "a"~1..1000000000',
    "a count past the limit": 'start: "a"~1000000001',
    "a count of 5,000 digits": 'start: "a"~' + "9" * 5000,
    "a huge count in a terminal": 'start: A\nA: ("a" | "b")~0..1000000',
    "an optional, many times": 'start: ("a"? "b"?)~1000',
    "a template in itself": 'start: t{"a"}\nt{x}: t{t{x}} | x',
    "a template in itself, twice": 'start: t{"a", "b"}\nt{x, y}: t{t{x, y}, t{y, x}} | x',
    "templates that double": "start: " + "".join("t{" for _ in range(40)) + '"a"' + "}" * 40 + "\nt{x}: x x",
    "a catastrophic regex": "start: /(a|b)*a(a|b){17}/",
    "a nested star": "start: /((a*)*)*b/",
    "dots": "start: /(.*a){30}/",
    "complements": 'start: A\nA: ~(/(a|b)*a(a|b){9}/ & ~/(b|a)*b(a|b){9}/)',
    "16 KiB of a regex": "start: /" + "(a|b)*a" * 2300 + "/",
    "16 KiB of alternatives": "start: " + " | ".join(f'"abc{i}"' for i in range(1400)),
    "16 KiB of alternatives in a terminal": "start: A\nA: " + " | ".join(f'"abc{i}"' for i in range(1400)),
    "16 KiB of ignored terminals": 'start: "a" "b"\n' + "".join(f"%ignore /x{i}+y/\n" for i in range(900)),
    "16 KiB of a string": 'start: "' + "a\\n" * 5000 + '"',
    "an unclosed string": 'start: "' + "\\" * KIB16,
    "an unclosed regex": "start: /" + "\\/" * 8000,
    "comments": "// x\n" * 3000 + "start: A",
    "blank lines": "\n \t" * 5000 + "start: A",
    "left recursion through 100 rules": 'start: r0 "x"\n' + _chain(100, 'r{}: r{} "a" | "b"\n', 'r{}: start "c" | "d"\n'),
    "many left-recursive alternatives": "start: " + " | ".join(f'start "{c}" start' for c in "abcdefghijklmnopqrst") + ' | "0"',
    "rules that are empty in many ways": "start: r0\n" + _chain(30, "r{0}: r{1}? r{1}* r{1}?\n", 'r{}: "a"?\n'),
    "a substring": 'start: %regex {"substring_chars": "' + "ab" * 4000 + '"}',
    "a substring without structure": 'start: %regex {"substring_chars": "' + "".join(Random(1).choices("ab", k=8000)) + '"}',
    "substrings that begin everywhere": (
        'start: %regex {"substring_chunks": [' + ", ".join(['"aaaaaaab"', '"a"', '"aa"'] * 400) + "]}"
    ),
    "deep JSON": 'start: %json {"items":' + '{"items":' * 5000 + "{}" + "}" * 5001,
    "a long JSON": 'start: %json {"enum": [' + ",".join(map(str, range(4000))) + "]}",
    "token lists": "start: " + " ".join(["<[0-1000]>"] * 200),
    "nul, surrogates and friends": 'start: "\x00" /[\x00-\x1f]/ "\ud800" /\udfff/ <\x00> \ue000',
    "the masks of blocks": "start: %json \ue000\ue000 | \ue000",
}  # fmt: skip


SLOW = {
    "10,000 rules in a chain", "10,000 terminals in a chain", "lazy terminals in a chain", "16 KiB of ignored terminals",
    "16 KiB of a regex", "a substring", "substrings that begin everywhere", "token lists", "complements", "a long JSON",
    "16 KiB of a string", "an optional, many times", "many left-recursive alternatives",
    "16 KiB of alternatives in a terminal", "1,000 terminals in nested groups",
}  # fmt: skip


T = TypeVar("T")


def answered(compiling: Callable[[], T]) -> T | ConversionError:
    """What comes of it, a ConversionError included. Everything else fails the test."""
    try:
        return compiling()
    except ConversionError as error:
        return error


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.conformance if name in SLOW else ()) for name in HOSTILE]
)
def test_hostile(name: str, oracle: Oracle) -> None:
    started = time.process_time()
    answer = answered(lambda: compile_lark(HOSTILE[name]).gbnf)
    assert time.process_time() - started < 2.5  # the limit is 2 s
    assert isinstance(answer, ConversionError) or oracle.parse(answer).ok


ALPHABET = [
    "start", "a", "b", "A", "B", ":", "|", "(", ")", "[", "]", "{", "}", "~", "?", "*", "+", "..", "->", ",", ".", "&", "@x",
    '"a"', '"b"i', '"', "/a/", "/", "/.*?/", "1", "3", "-1", "\n", "\n", "\n", " ", " ", "%ignore", "%import", "common", "WS",
    "%declare", "%extend", "%json", "%regex", "%llguidance", "{}", '{"type": "null"}',
    "<a>", "<[1]>", "<", "#", "//", "\\", "_x",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_noise(seed: int) -> None:
    """Nothing but ConversionError leaves, whatever the text; most of it isn't Lark, so the half of it is parsed only."""
    rng = Random(seed)
    for _ in range(60):
        words = rng.choices(ALPHABET, k=rng.randint(1, 25))
        text = ('start: "a" ' if rng.random() < 0.5 else "") + rng.choice(["", " "]).join(words)
        answer = answered(partial(lark_grammar, text, CompileOptions(), Budget()))
        assert not isinstance(answer, ConversionError) or str(answer)


@pytest.mark.parametrize("seed", range(2))
def test_broken_sources(seed: int) -> None:
    """A character changed anywhere gives an error with a place inside the text, or another grammar."""
    source = (
        'start: a~1..2 "b"i | t{A, /x+/}\n?a.1: [A] -> c\nt{x, y}: x y\nA: "a".."z" & ~"q"\n%import common.WS\n%ignore WS\n'
    )
    rng = Random(seed)
    for _ in range(60):
        at = rng.randrange(len(source))
        text = source[:at] + rng.choice(["", "\n", '"', "/", ":", "é", "{", "\x00"]) + source[at + rng.randint(0, 2) :]
        answer = answered(partial(parse, text, Budget()))
        if isinstance(answer, ConversionError):
            assert answer.position is not None
            assert 0 <= answer.position.offset <= len(text)


def test_little_room_on_the_stack() -> None:
    """Nested as deep as it may be, from a caller that is deep itself."""
    source = "start: A\nA: " + '("b" "c" | "a" ' * 99 + "/x/" + ")?" * 99

    def deep(levels: int) -> object:
        return deep(levels - 1) if levels else lark_grammar(source, CompileOptions(), Budget())

    for levels in (0, 300, 500):
        answered(partial(deep, levels))
