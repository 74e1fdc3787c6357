"""Inputs of 4 KiB, each the worst of its kind: answered within 2 s and 200 MB, and llama.cpp takes what comes out."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from itertools import count, takewhile

import pytest

from converters.compile import compile_constraint
from converters.constraint import Choice, Constraint, Gbnf, Lark, Regex
from converters.errors import ConversionError
from tests.converters.regex.test_hostile import MAX_BYTES, peak_bytes
from tests.oracle import Oracle

pytestmark = pytest.mark.conformance

SIZE = 4096
MAX_S = 2.2
"""The limit is looked at now and then, and the answer takes some time as well."""


def filled(head: str, unit: str, tail: str = "") -> str:
    """`unit` again and again between head and tail. In it @ is the number of its turn, $ the next one, £ a letter."""
    room = SIZE - len(head.encode()) - len(tail.encode()) - 12
    parts: list[str] = []
    for part in numbered(unit):
        room -= len(part.encode())
        if room < 0:
            break
        parts.append(part)
    return head + "".join(parts) + tail.replace("@", str(len(parts)))


def numbered(unit: str) -> Iterator[str]:
    for n in count():
        yield unit.replace("@", str(n)).replace("$", str(n + 1)).replace("£", chr(97 + n * 7 % 26))


def nested(head: str, opening: str, middle: str, closing: str, tail: str = "", most: int = SIZE) -> str:
    """As deep as there is room for, up to `most` levels."""
    room = SIZE - len((head + middle + tail).encode())
    n = min(most, room // len((opening + closing).encode()))
    return head + opening * n + middle + closing * n + tail


def words(unit: str) -> tuple[str, ...]:
    """As many strings as there is room for."""
    sizes = takewhile(lambda total: total <= SIZE, _totals(unit))
    return tuple(text for text, _ in zip(numbered(unit), sizes, strict=False))


def _totals(unit: str) -> Iterator[int]:
    total = 0
    for text in numbered(unit):
        total += len(text.encode())
        yield total


GBNF = {
    "growing literals": "root ::= " + " | ".join('"' + "a" * i + '"' for i in range(1, 85)),
    "growing repetitions": filled('root ::= "x"', ' | "£"{@,}'),
    "options": filled("root ::= ", '"£"?'),
    "the same option": filled("root ::= ", '"a"?'),
    "stars": filled("root ::= ", "[a-c]*"),
    "counts": filled("root ::= ", '"£"{0,999}'),
    "counts of one letter": filled("root ::= ", '"a"{0,999}'),
    "counts of options": filled("root ::= ", '("a""b"?){9,99}'),
    "counts in counts": nested("root ::= ", "(", '"a"', "){2,9}", most=90),
    "stars in stars": nested("root ::= ", "(", '"a"', '"b"?)*', most=90),
    "options in options": nested("root ::= ", '("a"', '"b"', ")?"),
    "alternatives in groups": nested("root ::= ", '("a"|', '"b"', '"c")'),
    "a chain of rules": filled("root ::= r0\n", 'r@ ::= r$ "a"|"£"\n', 'r@ ::= "c"'),
    "a chain of nullable rules": filled("root ::= r0\n", 'r@ ::= r$ "a"?|""\n', 'r@ ::= "c"'),
    "rules that double": filled("root ::= r0\n", "r@ ::= r$ r$\n", 'r@ ::= "c"'),
    "rules that double or not": filled("root ::= r0\n", 'r@ ::= r$ r$|""\n', 'r@ ::= "c"'),
    "recursion on both sides": filled('root ::= "x"', ' | "£"root"£"'),
    "recursion twice": filled('root ::= "x"', ' | "£"root root'),
    "recursion repeated": filled('root ::= "x"', ' | "£"root*'),
    "recursion counted": filled('root ::= "x"', ' | "£"root{1,9}'),
    "left recursion": filled('root ::= "x"', ' | root"£"root'),
    "left recursion through a chain": filled("root ::= r0\n", 'r@ ::= r$ "£"|"b"\n', 'r@ ::= root "c"'),
    "left recursion, hidden": filled("root ::= ", "x? ", 'root "b" | "c"\nx ::= "x"'),
    "left recursion, hidden and repeated": filled("root ::= (", "root? ", '"b")* | "c"'),
    "everything after everything": "root ::= r0\n"
    + "\n".join(f"r{i} ::= " + "|".join(f'"{chr(97 + j)}"r{(i * 3 + j) % 23}' for j in range(17)) + '|"x"' for i in range(23)),
    "a class": "root ::= [^" + "".join(chr(0x4E00 + 2 * i) for i in range(1350)) + "]*",
    "classes that overlap": "root ::= " + " ".join(f"[{chr(0x4E00 + i)}-{chr(0x4E80 + i)}]*" for i in range(300)),
    "tokens": filled("root ::= ", "<[@]>|", "<[5]>*"),
    "tokens but one": filled("root ::= (", "!<[@]>|", "<[5]>)*"),
    "names": filled("root ::= r0\n", "r@ ::= r$\n", 'r@ ::= "c"'),
    "the same prefix": filled("root ::= r0\n", 'r@ ::= "abcabc" r$ "x" | "abcabc" r$ "y"\n', 'r@ ::= "c"'),
    "ambiguous items": filled('root ::= ("aaaa"', '|"£"|"£a"', ")*"),
    "ambiguous items in brackets": filled('root ::= "(" (root', '|"£"|"£a"', ')* ")"'),
}
LARK = {
    "terminals in a chain": filled("start: T0\n", 'T@: T$ "a"|"b"\n', 'T@: "c"'),
    "lazy terminals in a chain": filled("start: T0\n", "T@: T$ /x.*?y/\n", "T@: /a.*?b/"),
    "terminals that double": filled("start: T0\n", "T@: T$ T$\n", 'T@: "c"'),
    "rules that double": filled("start: r0\n", "r@: r$ r$\n", 'r@: "c"'),
    "templates in one another": nested("t{x}: x x | x\nstart: ", "t{", '"a"', "}", most=90),
    "templates that grow": 't{x}: t{u{x}} | x\nu{x}: x "b"\nstart: t{"a"}',
    "what is ignored": filled('start: "a" "b"\n', "%ignore /£@+x/\n", ""),
    "what is ignored, alike": filled('start: "a"~1..99 "b"~1..99\n', "%ignore /a{@}x*/\n"),
    "regexes that look ahead": filled("start: /", "(?=.*£@)", ".*/"),
    "regexes in a row": filled("start: ", "/[a-c]*/ "),
    "counts in counts": nested("start: ", "(", '"a"', ")~1..9", most=90),
    "complements": filled("start: A\nA: /x+/", " & ~/.*a.{@}/"),
    "options": filled("start: ", '["£"]'),
    "a substring": 'start: %regex {"substring_chars": "' + "abcabd" * 660 + '"}',
    "a substring of words": 'start: %regex {"substring_words": "' + "to be or not " * 300 + '"}',
    "JSON": nested("start: %json ", '{"items":', "{}", "}", most=190),
    "expressions": filled("start: e0\n", 'e@: e@ "£" e$ | e$\n', 'e@: "(" e0 ")" | /[0-9]+/\n%ignore " "'),
}
REGEX = {
    "counters": "(a|b)*a(a|b){17}",
    "alternatives of dots": filled("(x", "|£.*£", ")*"),
    "look-ahead": filled("", "(?=.*£.)", ".*"),
    "look-ahead, negated": filled("", "(?!.*£@)", ".*"),
    "look-behind": filled("(", ".(?<!a.{@})", ")*"),
    "boundaries": filled("", r"\b\w+\b\W*"),
    "counts in counts": nested("", "(?:", "a?", "b){0,9}"),
    "classes": filled("", r"[^£\W]{0,99}"),
    "stars": filled("", "(?:£|£a)*"),
    "case": filled("(?i)", "(?:££|a)+"),
    "large counts": filled("", "[a-£]{1,9999}"),
}
CHOICE = {
    "many": words("£@"),
    "long": ("a" * SIZE, "a" * (SIZE - 1) + "b"),
    "alike": tuple("a" * n for n in range(1, 90)),
    "with tails alike": words("£@" + "xyz" * 5),
    "of any character": tuple(chr(0x4E00 + 7 * n) for n in range(1365)),
}
INPUTS: dict[str, Constraint] = {
    **{f"GBNF: {name}": Gbnf(text) for name, text in GBNF.items()},
    **{f"Lark: {name}": Lark(text) for name, text in LARK.items()},
    **{f"regex: {name}": Regex(text) for name, text in REGEX.items()},
    **{f"choice: {name}": Choice(options) for name, options in CHOICE.items()},
}


def load_compiler() -> None:
    """Compile something of each kind, so that what is measured afterwards is no import."""
    for constraint in (Gbnf('root ::= "a"'), Lark('start: "a"'), Regex("a"), Choice(("a", "b"))):
        compile_constraint(constraint)


def compile_input(name: str) -> tuple[str, str, float, float]:
    """The GBNF or "", what came of it, processor seconds, peak bytes of this process."""
    begun = time.process_time()
    gbnf = ""
    try:
        gbnf = compile_constraint(INPUTS[name]).gbnf
        outcome = "compiled"
    except ConversionError as error:
        outcome = f"{type(error).__name__}: {error}"
    return gbnf, outcome, time.process_time() - begun, peak_bytes()


def test_every_input_is_answered_in_time_and_memory(oracle: Oracle) -> None:
    assert len(INPUTS) >= 40
    failures: list[str] = []
    with multiprocessing.get_context("spawn").Pool(1, load_compiler, maxtasksperchild=1) as pool:  # an input's own peak
        for name, (gbnf, outcome, seconds, peak) in zip(INPUTS, pool.imap(compile_input, INPUTS), strict=True):
            print(f"{seconds:6.2f} s {peak / 2**20:5.0f} MB  {name}: {outcome[:90]} ({len(gbnf)} bytes)")
            if seconds > MAX_S or peak > MAX_BYTES or (gbnf and not oracle.parse(gbnf).ok):
                failures.append(f"{name}: {outcome[:90]}, {seconds:.2f} s, {peak / 2**20:.0f} MB")
    assert not failures
