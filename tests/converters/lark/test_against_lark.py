"""The language of random grammars, judged by the `lark` package itself: its Earley parser with every split of the text.

Its `dynamic_complete` lexer tries all lengths of a terminal, which is the reading that `converters.lark` has, except that it
asks a backtracking engine for the longest: where something is ignored, terminals are drawn for which that is no difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from random import Random

import lark
import pytest

from converters.errors import ConversionError, LimitExceeded
from tests.converters.lark.language import matcher_of

_LITERALS = ('"a"', '"b"', '"c"', '"ab"', '"a"i', '"a".."b"', "/a/", "/[bc]/", "/b+/", "/(?:a|bc)/", "/(?:ab)+/")
_PLAIN_TERMINALS = ('"a" "b"+', '/[ab]/ "c"', '("a" | "bc")~2', '"ab" | "c"', "/b+/ /a/", '("a" ["b"] "c")+', '"b".."c"')
_IGNORED = ('" "', "/ +/", '"-" | " "', "SKIP\nSKIP: /_+/", "/-[ab]*/", '/ +b?/ | "_"', "/-a?/\n%ignore /_[bc]+/")
_SHORT_TEXTS = ["".join(chars) for n in range(5) for chars in product("abc", repeat=n)]


class Writer:
    """Writes a random grammar over a, b and c: three rules, two terminals, a template."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def source(self, *, with_ignored: bool) -> str:
        lines = [f"{name}: {self.choice(1, self.rule_atom)}" for name in ("start", "x", "y")]
        lines.append("pair{p, q}: p " + self.choice(1, lambda: self.rng.choice(["p", "q", '"c"'])))
        for name in "TU":
            body = self.rng.choice(_PLAIN_TERMINALS) if with_ignored else self.choice(1, self.literal)
            lines.append(f"{name}: {body}")
        if with_ignored:
            lines.append("%ignore " + self.rng.choice(_IGNORED))
        self.rng.shuffle(lines)
        return "\n".join(lines)

    def choice(self, depth: int, atom: Callable[[], str]) -> str:
        return " | ".join(self.sequence(depth, atom) for _ in range(self.rng.choice((1, 2, 2))))

    def sequence(self, depth: int, atom: Callable[[], str]) -> str:
        return " ".join(self.item(depth, atom) for _ in range(self.rng.choice((1, 2, 2, 3))))

    def item(self, depth: int, atom: Callable[[], str]) -> str:
        operator = self.rng.choice(["", "", "", "", "", "?", "*", "+", "~2", "~1..2"])
        if depth > 0 and self.rng.random() < 0.3:
            inner = self.choice(depth - 1, atom)
            return f"[{inner}]" if self.rng.random() < 0.3 else f"({inner}){operator}"
        return atom() + operator

    def literal(self) -> str:
        return self.rng.choice(_LITERALS)

    def rule_atom(self) -> str:
        return self.rng.choice([*(self.literal() for _ in range(4)), "x", "y", "T", "U", "pair{x, /c/}", "pair{T, y}"])


class LarkJudge:
    """The `lark` package's opinion. Where nothing is ignored, a terminal is a rule like any other, and is made one."""

    def __init__(self, source: str) -> None:
        if "%ignore" not in source:
            source = re.sub(r"\b[TU]\b", lambda name: f"terminal_{name[0].lower()}", source)
        self.parser = lark.Lark(source, parser="earley", lexer="dynamic_complete", ambiguity="forest")

    def accepts(self, text: str) -> bool:
        try:
            self.parser.parse(text)
        except lark.UnexpectedInput:
            return False
        return True


def disagreements(seed: int, n_texts: int, max_length: int) -> list[tuple[str, bool]] | None:
    """Texts of which lark says the opposite, with its verdict; None where lark takes no such grammar, or we don't.

    Odd seeds ignore something. lark's parser is exponential in the length of texts of ambiguous grammars.
    """
    rng = Random(seed)
    with_ignored = seed % 2 == 1
    source = Writer(rng).source(with_ignored=with_ignored)
    try:
        judge = LarkJudge(source)
    except lark.GrammarError:
        return None
    try:
        matcher = matcher_of(source)
    except LimitExceeded:  # so ambiguous that llama.cpp couldn't walk it
        return None
    except ConversionError:
        return [(text, True) for text in _SHORT_TEXTS if judge.accepts(text)]
    texts = [matcher.random_sentence(rng, max_length) for _ in range(n_texts)] + rng.sample(_SHORT_TEXTS, n_texts)
    if with_ignored:
        texts += ["".join(c + rng.choice(["", "", *" -_"]) for c in text) for text in rng.sample(_SHORT_TEXTS, n_texts)]
    texts = [text for text in texts if len(text) <= max_length]
    return [(text, judge.accepts(text)) for text in texts if judge.accepts(text) != matcher.accepts(text)]


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.conformance if seed >= 5 else ()) for seed in range(18)])
def test_same_language(seed: int) -> None:
    assert not disagreements(seed, 8, 7)


@pytest.mark.conformance
@pytest.mark.parametrize("first_seed", range(1000, 1600, 20))
def test_same_language_of_many(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        assert not disagreements(seed, 20, 7), seed
