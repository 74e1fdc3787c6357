"""Grammars of up to 16 KiB made to be slow or large: refused by name, or compiled in time and then taken by llama.cpp."""

from __future__ import annotations

import time

import pytest

from converters.compile import compile_constraint
from converters.constraint import Gbnf
from converters.errors import ConversionError
from tests.oracle import Oracle

pytestmark = pytest.mark.conformance

SLOW_S = 2.5
"""Of processor time; the limit is 2 s."""


def letters(n: int, sign: str) -> str:
    return " ".join(f'"{chr(97 + i % 26)}"{sign}' for i in range(n))


def rules(n: int, body: str, *more: str) -> str:
    """`n` rules r0 …, where in `body` I is the rule's number, J and K the numbers of the next two."""
    lines = [body.replace("I", str(i)).replace("J", str(i + 1)).replace("K", str(i + 2)) for i in range(n)]
    return "\n".join(["root ::= r0", *lines, *more])


def dense(n: int, degree: int) -> str:
    ways = (" | ".join(f'r{(i * 7 + j) % n} "{j}"' for j in range(degree)) for i in range(n))
    return "\n".join(["root ::= r0", *(f'r{i} ::= {way} | "x"' for i, way in enumerate(ways))])


HOSTILE = {
    "growing literals": "root ::= " + " | ".join('"' + "a" * i + '"' for i in range(1, 170)),
    "many literals": "root ::= " + " | ".join(f'"{i:x}"' for i in range(2000)),
    "a sequence of options": f"root ::= {letters(3000, '?')}",
    "options repeated": f"root ::= ({letters(3000, '?')})*",
    "a sequence of stars": f"root ::= {letters(3000, '*')}",
    "counts in counts": "root ::= " + "(" * 8 + '"a"' + "){0,999}" * 8,
    "large counts in counts": "root ::= " + "(" * 8 + '"a" "b"?' + "){3,999999}" * 8,
    "smallest counts in counts": "root ::= " + "(" * 6 + '"a"' + "){1000000}" * 6,
    "many counts": "root ::= " + " ".join(f'"{chr(97 + i % 26)}"{{0,{900 + i % 99}}}' for i in range(900)),
    "many counts in rules": rules(450, 'rI ::= "a"{0,900} rJ', 'r450 ::= "z"'),
    "names for names": rules(900, "rI ::= rJ", 'r900 ::= "c"'),
    "options after rules": rules(700, 'rI ::= rJ "a"?', 'r700 ::= "c"'),
    "fibonacci": rules(500, 'rI ::= rJ rK | "a"', 'r500 ::= "c"\nr501 ::= "d"'),
    "an exponential sentence": rules(500, "rI ::= rJ rJ", 'r500 ::= "c"'),
    "exponential ways": rules(500, 'rI ::= rJ rJ | ""', 'r500 ::= "c"'),
    "left recursion, dense": dense(50, 20),
    "left recursion, hidden": "root ::= " + "x? " * 2000 + 'root "b" | "c"\nx ::= "x"',
    "left recursion, hidden and repeated": "root ::= (" + "root? " * 1500 + '"b")* | "c"',
    "never ends": rules(900, 'rI ::= "a" rJ', "r900 ::= r0"),
    "many classes": "root ::= " + "".join(f"[{chr(0x4E00 + 3 * i)}-{chr(0x4E01 + 3 * i)}]" for i in range(1200)),
    "a large class": "root ::= [^" + "".join(chr(0x4E00 + 2 * i) for i in range(5000)) + "]*",
    "deep groups": "root ::= " + "((" * 99 + '"a" | "b"' + ')? "c")*' * 99,
    "many escapes": "root ::= " + '"\\n"' * 4000,
    "many tokens": "root ::= " + "<[5]>" * 3000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_is_refused_by_name_or_compiled_in_time(oracle: Oracle, name: str) -> None:
    started = time.process_time()
    try:
        gbnf = compile_constraint(Gbnf(HOSTILE[name])).gbnf
    except ConversionError as error:
        gbnf = None
        reason = str(error)
    assert time.process_time() - started < SLOW_S
    if gbnf is None:
        assert reason
    else:
        assert oracle.parse(gbnf).ok
