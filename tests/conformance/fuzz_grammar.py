"""Random GBNF, Lark and regex text through compile → llama.cpp in a helper process.

    python -m tests.conformance.fuzz_grammar --seconds 600 --seed 1

What must hold: nothing but a ConversionError comes out, in time; what compiles, llama.cpp takes; the matcher and llama.cpp
agree on sentences and their mutations; and neither hangs on texts of thousands of characters, made to have many readings.
Every finding prints the text that shows it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random

from converters.compile import Compiled, compile_constraint
from converters.constraint import Constraint, Gbnf, Lark, Regex
from converters.errors import ConversionError
from converters.grammar.match import Matcher, State
from converters.grammar.match.matcher import TooManyStacks
from tests.oracle import Oracle, OracleFailed

SLOW_S = 3.0
"""Processor time past which a compile counts as a hang: its limit is 2 s."""
HANG_S = 60.0
"""llama.cpp reads thousands of characters, on hundreds of stacks as deep as that, in seconds; the machine may be busy."""
N_SENTENCES = 8
MAX_LENGTH = 40
N_LONG, N_GREEDY = 2, 2
LONG = 2500
"""Characters of the long texts."""
MAX_STACKS = 5000
"""Where the engine ends a reply; no compiled grammar may come there within EARLY characters."""
EARLY = 500

# ---- texts


class Writer:
    """Random source texts of one language. `noise` is the chance that a well-formed text gets damaged."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def damaged(self, text: str, alphabet: str) -> str:
        rng = self.rng
        if rng.random() < 0.6 or not text:
            return text
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text) + 1)
            text = rng.choice(
                (
                    text[:at] + rng.choice(alphabet) + text[at:],
                    text[:at] + text[at + 1 :],
                    text[:at] + text[at : at + 12] * 2 + text[at + 12 :],
                    text[:at],
                )
            )
        return text


class GbnfWriter(Writer):
    """Every symbol of the dialect, nested and repeated."""

    NAMES = ("root", "x", "y_1", "z-2", "0", "-")
    LITERALS = (
        '"a"',
        '"b"',
        '"ab"',
        '"abc"',
        '""',
        '"é"',
        r'"\""',
        r'"\n"',
        r'"\x41\u00e9\U0001F600"',
        '"😀"',
        r'"\x00"',
        r'"\\]"',
    )
    CLASSES = (
        "[a-c]", "[^a]", "[ab]", "[a-]", "[-a]", "[^\\x00-\\x1f]", "[z-a]", "[^z-a]", "[é-ü]", "[\\]\\-]",
        "[^\\U00010000-\\U0010FFFF]",
        "[\\ud000-\\uefff]", ".", "[a-c-e]", "[]", "[^]", "[\\n\\t]", '["]',
    )  # fmt: skip
    COUNTS = (
        "*", "+", "?", "{2}", "{0,3}", "{1,}", "{2,5}", "{0}", "{0,0}", "{17}", "{3,300}", "{0,2500}", "{1,70000}", "{2001,}",
        "{ 1 , 2 }", "{3,2}", "**", "*?", "{2}{3}", "{999999}",
    )  # fmt: skip
    TOKENS = ("<think>", "!<think>", "<[5]>", "!<[300]>", "<[4294967295]>")
    ALPHABET = 'ab"[]()|*+?{}<>!.^-\\ \n#:=é0\x00,'

    def text(self) -> str:
        names = self.NAMES[: self.rng.randint(1, len(self.NAMES))]
        rules = [f"{name}{self.blank()}::={self.blank()}{self.alternatives(3, names)}" for name in names]
        if self.rng.random() < 0.1:
            rules.append(self.rng.choice(rules))
        return self.damaged(self.rng.choice(("\n", "\n\n", "\r\n", " # note\n")).join(rules), self.ALPHABET)

    def blank(self) -> str:
        return self.rng.choice(("", " ", " ", "  ", "\t"))

    def alternatives(self, depth: int, names: tuple[str, ...]) -> str:
        bar = self.rng.choice((" | ", "|", " |\n  ", "\n  | "))
        return bar.join(self.sequence(depth, names) for _ in range(self.rng.choice((1, 1, 2, 2, 3))))

    def sequence(self, depth: int, names: tuple[str, ...]) -> str:
        return " ".join(self.item(depth, names) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3))))

    def item(self, depth: int, names: tuple[str, ...]) -> str:
        rng = self.rng
        roll = rng.random()
        if roll < 0.2 and depth:
            atom = f"({self.alternatives(depth - 1, names)})"
        elif roll < 0.45:
            atom = rng.choice(names)
        elif roll < 0.75:
            atom = rng.choice(self.LITERALS)
        elif roll < 0.97:
            atom = rng.choice(self.CLASSES)
        else:
            atom = rng.choice(self.TOKENS)
        return atom + (rng.choice(self.COUNTS) if rng.random() < 0.3 else "")


class RegexWriter(Writer):
    """Every element of the dialect, and some that it has not."""

    ATOMS = (
        "a", "b", "ab", ".", "[a-c]", "[^a]", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\b", r"\B", "^", "$", r"\A", r"\Z",
        r"\z", r"\x41", r"\u00e9", r"\u{1F600}", r"\p{L}", r"\P{Lu}", r"\p{Greek}", r"\n", r"\.", r"\/", "é", "😀", r"\1", "[]",
        "[^]",         "[a-", r"[\d-z]", r"[\b]", "[[:alpha:]]", r"\Q", "-", "]", "}", "{",
    )  # fmt: skip
    COUNTS = (
        "*",
        "+",
        "?",
        "{2}",
        "{0,3}",
        "{1,}",
        "{2,50}",
        "{0}",
        "*?",
        "+?",
        "{3,2}",
        "{,3}",
        "{200}",
        "{1,3000}",
        "*+",
        "{1000,65536}",
    )
    GROUPS = ("(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?<n>", "(?P<m>", "(?i:", "(?s:", "(?>", "(?#")
    ALPHABET = "ab()[]{}|*+?^$\\.-,:=!<>\x00é"

    def text(self) -> str:
        flags = self.rng.choice(("", "", "", "(?i)", "(?s)", "(?m)", "(?x)"))
        return self.damaged(flags + self.alternatives(3), self.ALPHABET)

    def alternatives(self, depth: int) -> str:
        return "|".join(
            "".join(self.item(depth) for _ in range(self.rng.choice((0, 1, 2, 2, 3))))
            for _ in range(self.rng.choice((1, 1, 1, 2, 3)))
        )

    def item(self, depth: int) -> str:
        rng = self.rng
        atom = (
            rng.choice(self.GROUPS) + self.alternatives(depth - 1) + ")"
            if rng.random() < 0.25 and depth
            else rng.choice(self.ATOMS)
        )
        return atom + (rng.choice(self.COUNTS) if rng.random() < 0.35 else "")


class LarkWriter(Writer):
    """Rules, terminals, templates, imports, directives."""

    RULES = ("start", "x", "_y", "?z")
    TERMINALS = ("A", "B_1", "_C")
    LITERALS = (
        '"a"',
        '"b"i',
        '"ab"',
        '"é"',
        r'"\n"',
        '"a".."f"',
        "/a+/",
        "/[bc]/i",
        r"/\d{2,4}/",
        "/(?=a)a|b/",
        '"+"',
        '""',
        "/\\//",
    )
    COUNTS = ("*", "+", "?", "~2", "~1..3", "~3..2", "~0..2", "~1..400")
    EXTRAS = (
        '%ignore " "', "%ignore /#[^\\n]*/", "%import common.INT", "%import common.WS", "%import common (NUMBER, WORD)",
        "%declare D", "%override start: A", "pair{a, b}: a b", 'D.2: "d"', "start: A", "%json {}",
        '%import common.CNAME -> A', "// note",
    )  # fmt: skip
    ALPHABET = 'abAB"/:|()[]?*+~.,%{}->\\ \n'

    def text(self) -> str:
        rng = self.rng
        rules = self.RULES[: rng.randint(1, 4)]
        lines = [f"{name}: {self.alternatives(2, [n.lstrip('?') for n in rules], True)}" for name in rules]
        lines += [
            f"{name}: {self.alternatives(2, list(self.TERMINALS[i + 1 :]), False)}" for i, name in enumerate(self.TERMINALS)
        ]
        lines += rng.sample(self.EXTRAS, rng.choice((0, 0, 1, 1, 2)))
        return self.damaged("\n".join(lines) + "\n", self.ALPHABET)

    def alternatives(self, depth: int, names: list[str], is_rule: bool) -> str:
        bar = self.rng.choice((" | ", "\n  | "))
        return bar.join(self.sequence(depth, names, is_rule) for _ in range(self.rng.choice((1, 1, 2, 3))))

    def sequence(self, depth: int, names: list[str], is_rule: bool) -> str:
        text = " ".join(self.item(depth, names, is_rule) for _ in range(self.rng.choice((1, 1, 2, 3))))
        return text + (" -> alias" if is_rule and depth == 2 and self.rng.random() < 0.1 else "")

    def item(self, depth: int, names: list[str], is_rule: bool) -> str:
        rng = self.rng
        roll = rng.random()
        if roll < 0.2 and depth:
            inner = self.alternatives(depth - 1, names, is_rule)
            atom = f"[{inner}]" if rng.random() < 0.3 and is_rule else f"({inner})"
        elif roll < 0.55 and (names or is_rule):
            atom = rng.choice([*names, *(self.TERMINALS if is_rule else ())])
        else:
            atom = rng.choice(self.LITERALS)
        return atom + (rng.choice(self.COUNTS) if rng.random() < 0.25 else "")


# ---- judging


class Fuzzer:
    """Draws, compiles and judges; `findings` are what went wrong."""

    def __init__(self, seed: int, oracle: Oracle) -> None:
        self.rng = Random(seed)
        self.oracle = oracle
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()
        self._writers = (GbnfWriter(self.rng), RegexWriter(self.rng), LarkWriter(self.rng))

    def run(self, seconds: float) -> None:
        """Fuzz for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()

    def step(self) -> None:
        """One text."""
        writer = self.rng.choice(self._writers)
        text = writer.text()
        constraint: Constraint
        if isinstance(writer, GbnfWriter):
            constraint = Gbnf(text)
        elif isinstance(writer, RegexWriter):
            constraint = Regex(text)
        else:
            constraint = Lark(text)
        kind = type(constraint).__name__
        started = time.process_time()
        try:
            compiled = compile_constraint(constraint)
        except ConversionError as error:
            self.counts[f"{kind} {type(error).__name__}"] += 1
            compiled = None
        except Exception as error:  # every other exception is a finding
            self.find(constraint, f"raised {type(error).__name__}: {error}")
            return
        if time.process_time() - started > SLOW_S:
            self.find(constraint, f"took {time.process_time() - started:.1f} s of processor time")
        if compiled is not None:
            self.counts[f"{kind} compiled"] += 1
            self.judge(constraint, compiled)

    def judge(self, constraint: Constraint, compiled: Compiled) -> None:
        parsed = self.oracle.parse(compiled.gbnf)
        if "invalid token" in parsed.message:
            self.counts["unknown token"] += 1  # a matter of the vocabulary, which the engine looks into
            return
        if not parsed.ok:
            self.find(constraint, f"llama.cpp {parsed.status}: {parsed.message[:300]}\n{compiled.gbnf[:1500]}")
            return
        matcher = Matcher.from_tables(compiled.tables)
        if matcher.tokens or matcher.least_length(matcher.start) > 300:
            self.counts["only parsed"] += 1
            return
        texts = list(self.texts(matcher))
        if self.agree(constraint, compiled, matcher, texts):
            for text in self.long_texts(constraint, matcher):
                self.agree(constraint, compiled, matcher, [text])
        if not any(map(matcher.accepts, texts)):
            self.find(constraint, f"none of the matcher's own sentences is one: {texts[:3]}")

    def agree(self, constraint: Constraint, compiled: Compiled, matcher: Matcher, texts: list[str]) -> bool:
        """Whether llama.cpp says in time what the matcher says."""
        try:
            verdicts = self.oracle.accepts(compiled.gbnf, texts)
        except OracleFailed as failure:
            self.find(constraint, f"llama.cpp failed: {str(failure)[:500]}")
            return False
        wrong = [text for text, verdict in zip(texts, verdicts, strict=True) if matcher.accepts(text) != verdict]
        if wrong:
            self.find(constraint, f"matcher and llama.cpp differ on {wrong[:5]}\n{compiled.gbnf[:1500]}")
        return not wrong

    def texts(self, matcher: Matcher) -> Iterator[str]:
        rng = self.rng
        for _ in range(N_SENTENCES):
            text = matcher.random_sentence(rng, MAX_LENGTH)
            yield text
            at = rng.randrange(len(text) + 1)
            yield text[:at] + rng.choice('ab1 é😀\n"') + text[at + rng.randint(0, 1) :]
            yield text[:at]

    def long_texts(self, constraint: Constraint, matcher: Matcher) -> Iterator[str]:
        """Long sentences, and texts that always go where there are most readings; as far as the engine would let them."""
        guard = Matcher(matcher.program, max_stacks=MAX_STACKS)
        texts = [matcher.random_sentence(self.rng, LONG) for _ in range(N_LONG)]
        texts += [self.greedy_text(guard) for _ in range(N_GREEDY)]
        for text in texts:
            if (end := self.end_of_guard(guard, text)) is None:
                yield text
                continue
            self.counts["guarded"] += 1
            yield text[: end - 1]
            if end < EARLY:
                self.find(constraint, f"more than {MAX_STACKS} readings of {text[:end]!r}")

    def greedy_text(self, guard: Matcher) -> str:
        """A text that goes where there are most readings, for once, and then round in circles."""
        rng, state, text = self.rng, guard.start, ""
        with suppress(TooManyStacks):
            for _ in range(rng.choice((5, 60))):
                points = guard.distinct_points(state)
                after = [(chr(point), guard.advance(state, chr(point))) for point in rng.sample(points, min(6, len(points)))]
                ways = [(len(reached.cells), rng.random(), char) for char, reached in after if reached is not None]
                if not ways:
                    return text
                text += max(ways)[2] if rng.random() < 0.9 else rng.choice(ways)[2]
                state = guard.advance(guard.start, text) or state
        turn = text[-rng.randint(1, 4) :]
        return text + turn * (LONG // max(1, len(turn)))

    @staticmethod
    def end_of_guard(guard: Matcher, text: str) -> int | None:
        """How many characters of `text` are too many for the guard; None when it lets all of them through."""
        state: State | None = guard.start
        n = 0
        try:
            for n, char in enumerate(text, 1):  # noqa: B007
                state = guard.advance(state, char)
        except TooManyStacks:
            return n
        return None

    def find(self, constraint: Constraint, what: str) -> None:
        finding = f"{constraint!r}\n    {what}"
        self.findings.append(finding)
        print(f"FOUND {finding}", file=sys.stderr, flush=True)


def main() -> int:
    """The command line; 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with Oracle(timeout_s=HANG_S) as oracle:
        fuzzer = Fuzzer(arguments.seed, oracle)
        fuzzer.run(arguments.seconds)
    print(f"{sum(fuzzer.counts.values())} texts: {dict(sorted(fuzzer.counts.items()))}; {len(fuzzer.findings)} findings")
    return 1 if fuzzer.findings else 0


if __name__ == "__main__":
    sys.exit(main())
