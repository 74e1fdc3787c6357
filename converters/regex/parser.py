"""Pattern text to tree. The dialect is the common core of ECMA-262, Python's `re` and RE2 (spec section 3).

Where they differ: `{,n}` counts from 0 and `\\a` is BEL (Python, RE2); `\\s`, `.` and `[^]` are ECMA-262's; `$` and `\\Z` match
only at the very end; `[]…]`, `[^]…]` and `[[:name:]]` mean different things in each and are refused by name. Flags hold
to the end of their group. Escapes are in `escape`, classes in `brackets`, the automaton in `automaton`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from converters.errors import InvalidSource, LimitExceeded, Position, UnsupportedFeature
from converters.grammar.charset import ANY, CharSet
from converters.regex.tree import Anchor, At, Class, Look, Node, cat, either, repeat
from converters.regex.unicode import NOT_LINE_END, fold_ascii

MAX_NESTING = 100
"""Groups inside groups; more is a LimitExceeded (limit `regex_nesting`)."""
_MAX_COUNT = 1_000_000

_COUNT = re.compile(r"\{(\d*)(?:(,)(\d*))?\}", re.ASCII)
_NAME = re.compile(r"[^\W\d]\w*")
_FLAGS = re.compile(r"([A-Za-z]*)(?:-([A-Za-z]+))?([:)])")
_SIMPLE_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_REFUSED_GROUPS = (
    (">", "atomic group"),
    ("(", "conditional"),
    ("|", "branch reset group"),
    ("P=", "back-reference"),
    ("P>", "recursion"),
    ("&", "recursion"),
    ("R", "recursion"),
    ("+", "recursion"),
)
_REFUSED_FLAGS = {
    "u": "Unicode classes",
    "L": "locale classes",
    "U": "ungreedy mode",
    "J": "duplicate names",
    "n": "no captures",
}


@dataclass(frozen=True, slots=True)
class Flags:
    """What `(?ims)` and `(?x)` switch."""

    ignore_case: bool = False
    multi_line: bool = False
    dot_all: bool = False
    verbose: bool = False


_FLAG_NAMES = {"i": "ignore_case", "m": "multi_line", "s": "dot_all", "x": "verbose"}


def parse(pattern: str) -> Node:
    """The tree of `pattern`. Raises InvalidSource, UnsupportedFeature or LimitExceeded, each with its position."""
    parser = Parser(pattern)
    node = parser.alternatives(Flags(), 0)
    if parser.at < len(pattern):
        raise parser.invalid("unbalanced ')'")
    return node


class Parser:
    """A recursive descent over `text`; `at` is the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.names: set[str] = set()

    def invalid(self, reason: str, at: int | None = None) -> InvalidSource:
        """The error for malformed text at `at` (default: here)."""
        return InvalidSource(reason, position=Position.at(self.text, self.at if at is None else at))

    def unsupported(self, feature: str, at: int) -> UnsupportedFeature:
        """The error for a construct with no exact automaton (or no agreed meaning)."""
        return UnsupportedFeature(feature, position=Position.at(self.text, at))

    def peek(self, n: int = 1) -> str:
        """The next `n` characters, not consumed."""
        return self.text[self.at : self.at + n]

    def take(self, prefix: str) -> bool:
        """Consume `prefix` if it is next."""
        if self.text.startswith(prefix, self.at):
            self.at += len(prefix)
            return True
        return False

    def alternatives(self, flags: Flags, depth: int) -> Node:
        """Up to the closing parenthesis or the end."""
        if depth > MAX_NESTING:
            raise LimitExceeded(
                f"groups nested deeper than {MAX_NESTING}",
                limit="regex_nesting",
                value=MAX_NESTING,
                position=Position.at(self.text, self.at),
            )
        options: list[Node] = []
        while True:
            node, flags = self.sequence(flags, depth)
            options.append(node)
            if not self.take("|"):
                return either(options)

    def sequence(self, flags: Flags, depth: int) -> tuple[Node, Flags]:
        """One alternative, and the flags at its end."""
        items: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            if flags.verbose and self.skip_verbose():
                continue
            start = self.at
            if self.peek(2) == "(?" and (changed := self.flag_group(flags)) is not None:
                flags = changed
                continue
            if self.take("(?#"):
                self.comment(start)
                continue
            atom = self.atom(flags, depth)
            bare_anchor = isinstance(atom, At) and self.text[start] != "("
            items.append(self.quantified(atom, bare_anchor, flags))
        return cat(items), flags

    def skip_verbose(self) -> bool:
        """In `(?x)`: skip blanks or a comment."""
        if self.text[self.at] in " \t\n\r\f\v":
            self.at += 1
            return True
        if self.text[self.at] == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end + 1
            return True
        return False

    def comment(self, start: int) -> None:
        end = self.text.find(")", self.at)
        if end < 0:
            raise self.invalid("unterminated comment", start)
        self.at = end + 1

    def flag_group(self, flags: Flags) -> Flags | None:
        """`(?i)` and its like, which hold to the end of the group. None, nothing consumed, for any other group."""
        match = _FLAGS.match(self.text, self.at + 2)
        if match is None or match[3] != ")" or not (match[1] or match[2]):
            return None
        if match[1] == "R":
            raise self.unsupported("recursion (?R) has no regular language", self.at)
        changed = self.changed(flags, match[1], match[2] or "", self.at)
        self.at = match.end()
        return changed

    def changed(self, flags: Flags, on: str, off: str, start: int) -> Flags:
        """`flags` with some switched."""
        for letter in on + off:
            if letter in _REFUSED_FLAGS:
                raise self.unsupported(f"the flag {letter!r} ({_REFUSED_FLAGS[letter]}) is not supported", start)
            if letter not in _FLAG_NAMES and letter != "a":
                raise self.invalid(f"unknown flag {letter!r}", start)
        switched = {_FLAG_NAMES[x]: True for x in on if x != "a"} | {_FLAG_NAMES[x]: False for x in off if x != "a"}
        return replace(flags, **switched)

    def quantified(self, atom: Node, bare_anchor: bool, flags: Flags) -> Node:
        """`atom` with the quantifier that may follow."""
        while flags.verbose and self.at < len(self.text) and self.skip_verbose():
            pass
        start = self.at
        counts = self.counts()
        if counts is None:
            return atom
        if bare_anchor:
            raise self.invalid("nothing to repeat: a quantifier after an anchor", start)
        if self.take("+"):
            raise self.unsupported("possessive quantifiers are not supported", start)
        self.take("?")
        again = self.at
        if self.counts() is not None:
            raise self.invalid("a quantifier after a quantifier", again)
        return repeat(atom, *counts)

    def counts(self) -> tuple[int, int | None] | None:
        """The quantifier that comes next, consumed; None if there is none. A brace that is no quantifier is a literal."""
        simple = _SIMPLE_QUANTIFIERS.get(self.peek())
        if simple is not None:
            self.at += 1
            return simple
        match = _COUNT.match(self.text, self.at)
        if match is None or not (match[1] or match[2]):
            return None
        low = self.count(match[1] or "0")
        high = low if match[2] is None else self.count(match[3]) if match[3] else None
        if high is not None and high < low:
            raise self.invalid(f"the repetition {match[0]} has its maximum below its minimum")
        self.at = match.end()
        return low, high

    def count(self, digits: str) -> int:
        if len(digits) > 9 or int(digits) > _MAX_COUNT:
            raise LimitExceeded(
                f"a repetition count above {_MAX_COUNT}",
                limit="regex_repetitions",
                value=_MAX_COUNT,
                position=Position.at(self.text, self.at),
            )
        return int(digits)

    def atom(self, flags: Flags, depth: int) -> Node:
        """A character, class, anchor or group."""
        from converters.regex.brackets import brackets
        from converters.regex.escape import escaped

        char = self.text[self.at]
        if char == "(":
            return self.group(flags, depth)
        if char == "[":
            return Class(brackets(self, flags.ignore_case))
        if char == "\\":
            return escaped(self, flags)
        start = self.at
        if char in "*+?{" and self.counts() is not None:
            raise self.invalid("nothing to repeat", start)
        self.at += 1
        match char:
            case ".":
                return Class(ANY if flags.dot_all else NOT_LINE_END)
            case "^":
                return At(Anchor.LINE_START if flags.multi_line else Anchor.START)
            case "$":
                return At(Anchor.LINE_END if flags.multi_line else Anchor.END)
            case _:
                return self.literal(ord(char), flags, start)

    def literal(self, point: int, flags: Flags, start: int) -> Node:
        """One character, in both cases if the flags say so."""
        if 0xD800 <= point <= 0xDFFF:
            raise self.unsupported("a lone surrogate is no character", start)
        chars = CharSet(((point, point),))
        return Class(fold_ascii(chars) if flags.ignore_case else chars)

    def group(self, flags: Flags, depth: int) -> Node:
        """From the opening parenthesis to the closing one."""
        start = self.at
        self.at += 1
        behind = negated = look = False
        if self.take("?"):
            look, behind, negated = self.look()
            if not look:
                flags = self.group_kind(flags, start)
        elif self.peek() == "*":
            raise self.unsupported("backtracking verbs are not supported", start)
        node = self.alternatives(flags, depth + 1)
        if not self.take(")"):
            raise self.invalid("missing ')': the group is not closed", start)
        return Look(node, behind, negated) if look else node

    def look(self) -> tuple[bool, bool, bool]:
        """(is it a look-around, behind, negated) after `(?`."""
        for prefix, behind, negated in (("=", False, False), ("!", False, True), ("<=", True, False), ("<!", True, True)):
            if self.take(prefix):
                return True, behind, negated
        return False, False, False

    def group_kind(self, flags: Flags, start: int) -> Flags:
        """What stands between `(?` and the group's content; returns the flags inside."""
        if self.take(":"):
            return flags
        for prefix, what in _REFUSED_GROUPS:
            if self.text.startswith(prefix, self.at):
                raise self.unsupported(f"{what} (?{prefix} is not supported", start)
        if self.peek().isdigit():
            raise self.unsupported("recursion (?n) has no regular language", start)
        if self.take("P<") or self.take("<"):
            self.group_name(">", start)
            return flags
        if self.take("'"):
            self.group_name("'", start)
            return flags
        match = _FLAGS.match(self.text, self.at)
        if match is None or match[3] != ":":
            raise self.invalid("unknown group (?" + self.peek(), start)
        changed = self.changed(flags, match[1], match[2] or "", start)
        self.at = match.end()
        return changed

    def group_name(self, end: str, start: int) -> None:
        match = _NAME.match(self.text, self.at)
        if match is None or not self.text.startswith(end, match.end()):
            raise self.invalid("a group's name must be a word and end with " + end, start)
        if match[0] in self.names:
            raise self.invalid(f"the group name {match[0]!r} is used twice", start)
        self.names.add(match[0])
        self.at = match.end() + 1
