"""Lark's literals decoded: strings to their text, regexes to patterns of our dialect, texts to patterns.

Strings know the escapes that Lark (Python's) and llguidance (JSON's) read alike. Where the two differ (`\\/` is two characters
to Lark and one to JSON) the escape is refused rather than guessed. A regex keeps its text, so that the place of an
error in it can be told; what is asked of it here (is there a lazy quantifier?) needs no tree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "\\": "\\", '"': '"'}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_SPECIAL = frozenset("\\^$.|?*+()[]{}/-")
_QUANTIFIER = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}|\{,\d+\}")
_GROUP = re.compile(r"\((?:\?(?:P?<\w+>|[a-zA-Z-]*[:)]|#[^)]*\)))?")
_FIXED_COUNT = re.compile(r"\{(\d+)(?:,\1)?\}")


class LiteralError(Exception):
    """A literal that can't be read: the reason, and how far inside the literal. The caller knows the place of the literal."""

    def __init__(self, reason: str, offset: int, *, is_ambiguous: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.is_ambiguous = is_ambiguous


@dataclass(frozen=True, slots=True)
class RegexLiteral:
    """`/source/flags`. `source` starts one character after the literal."""

    source: str
    flags: frozenset[str]


def is_regex(raw: str) -> bool:
    """Regexes stand between slashes, strings between quotes."""
    return raw.startswith("/")


def decode_string(raw: str) -> tuple[str, bool]:
    """The text of `"…"` or `"…"i`, and whether it is matched without regard to case."""
    fold_case = raw.endswith("i")
    body = raw[1 : -2 if fold_case else -1]
    out: list[str] = []
    i = 0
    while i < len(body):
        if body[i] == "\\":
            char, i = _decode_escape(body, i)
            out.append(char)
        else:
            out.append(body[i])
            i += 1
    return "".join(out), fold_case


def _decode_escape(body: str, start: int) -> tuple[str, int]:
    """The character of the escape at `start`, and where it ends."""
    kind = body[start + 1 : start + 2]
    if kind in _ESCAPES:
        return _ESCAPES[kind], start + 2
    n_digits = _HEX_DIGITS.get(kind)
    if n_digits is None:
        raise LiteralError(
            f"the escape \\{kind} is not read alike by Lark and llguidance; write the character itself, \\\\ for a"
            f" backslash, or \\uHHHH",
            start + 1,
            is_ambiguous=True,
        )
    digits = body[start + 2 : start + 2 + n_digits]
    if len(digits) < n_digits or not all(c in "0123456789abcdefABCDEF" for c in digits):
        raise LiteralError(f"the escape \\{kind} takes {n_digits} hexadecimal digits", start + 1)
    point = int(digits, 16)
    end = start + 2 + n_digits
    if 0xD800 <= point <= 0xDBFF and (low := re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})").match(body, end)):
        point = 0x10000 + ((point - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
        end = low.end()
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise LiteralError(f"\\{kind}{digits} is not a character", start + 1)
    return chr(point), end


def case_variants(char: str) -> str:
    """`char` and its other case, where that is one character too. Over ASCII nothing but ASCII (spec section 3)."""
    variants = {char, char.lower(), char.upper()}
    single = sorted(c for c in variants if len(c) == 1)
    return "".join(c for c in single if c.isascii() == char.isascii())


def pattern_of_text(text: str, fold_case: bool) -> str:
    """A pattern that matches `text`."""
    return "".join(_pattern_of_char(char, fold_case) for char in text)


def pattern_of_range(first: str, last: str) -> str:
    """A pattern that matches one character from `first` to `last`."""
    return f"[\\u{{{ord(first):x}}}-\\u{{{ord(last):x}}}]"


def _pattern_of_char(char: str, fold_case: bool) -> str:
    variants = case_variants(char) if fold_case else char
    if len(variants) > 1:
        return f"[{''.join(map(_escape, variants))}]"
    return _escape(char)


def _escape(char: str) -> str:
    if char in _SPECIAL:
        return "\\" + char
    return char if char.isprintable() else f"\\u{{{ord(char):x}}}"


def decode_regex(raw: str) -> RegexLiteral:
    """Source and flags of `/…/imsx`. The flag `u` says what is so anyway; `l` (locale) has no meaning here."""
    end = raw.rindex("/")
    source, flags = raw[1:end], frozenset(raw[end + 1 :])
    if "l" in flags:
        raise LiteralError("the regex flag l (locale) is not supported", end + 1, is_ambiguous=True)
    if "\n" in source and "x" not in flags:
        raise LiteralError("only a regex with the flag x may go over several lines", source.index("\n") + 1)
    return RegexLiteral(source, flags - {"u"})


def pattern_of_regex(literal: RegexLiteral) -> tuple[str, list[tuple[int, int, int]]]:
    """The pattern of a regex literal as one group, and which parts of it are the source's: (start, length, place there).

    Lines end at LF alone, as in Python and Rust, so `.`, `^` and `$` are written out. Names of groups are left out: a
    terminal may be written out more than once.
    """
    flags = "".join(sorted(literal.flags & {"i", "m", "s", "x"}))
    parts = [f"(?{flags}:" if flags else "(?:"]
    sources: list[tuple[int, int, int]] = []
    scopes = [literal.flags]
    length, offset = len(parts[0]), 0
    for kind, piece in _pieces(literal.source, literal.flags):
        if kind in ("open", "look"):
            scopes = _opened(scopes, piece)
        elif kind == "close" and len(scopes) > 1:
            scopes.pop()
        written = _written(kind, piece, scopes[-1])
        sources.append((length, len(written), offset))
        parts.append(written)
        length += len(written)
        offset += len(piece)
    parts.append("\n)" if "x" in literal.flags else ")")  # a comment would swallow the parenthesis
    return "".join(parts), sources


def _opened(scopes: list[frozenset[str]], opening: str) -> list[frozenset[str]]:
    """The flags of the open groups after `opening`; `(?s)` opens none but changes the innermost."""
    if opening.startswith("(?#"):
        return scopes
    on, _, off = opening.strip("(?:)").partition("-") if opening[1:2] == "?" and opening[-1] in ":)" else ("", "", "")
    flags = (scopes[-1] | set(on)) - set(off)
    return [*scopes[:-1], flags] if opening.endswith(")") else [*scopes, flags]


def _written(kind: str, piece: str, flags: frozenset[str]) -> str:
    match kind, piece:
        case "open", _ if piece.startswith(("(?P<", "(?<")):
            return "("
        case "char", "." if "s" not in flags:
            return "[^\\n]"
        case "anchor", "^" if "m" in flags:
            return "(?<![^\\n])"
        case "anchor", "$" if "m" in flags:
            return "(?![^\\n])"
        case _:
            return piece


def ends_lazily(literal: RegexLiteral) -> bool:
    """Does it end with a lazy quantifier, so that only what follows says how much it takes?"""
    kinds = [kind for kind, _ in _pieces(literal.source, literal.flags) if kind not in ("close", "blank")]
    return bool(kinds) and kinds[-1] == "lazy"


def has_lazy(literal: RegexLiteral) -> bool:
    """Is there a lazy quantifier?"""
    return any(kind == "lazy" for kind, _ in _pieces(literal.source, literal.flags))


def has_lookaround(literal: RegexLiteral) -> bool:
    """Does it look at its surroundings (anchors and word boundaries too)?"""
    return any(
        kind in ("look", "anchor") or (kind == "escape" and piece[1:] in ("b", "B", "A", "Z", "z"))
        for kind, piece in _pieces(literal.source, literal.flags)
    )


def greedy_after_lazy(pattern: str) -> int | None:
    """Where a greedy quantifier of variable length stands after (or around) a lazy one; None if nowhere."""
    offset, seen_lazy = 0, False
    for kind, piece in _pieces(pattern):
        if kind == "lazy":
            seen_lazy = True
        elif kind == "greedy" and seen_lazy and not _FIXED_COUNT.fullmatch(piece):
            return offset
        offset += len(piece)
    return None


def _pieces(source: str, flags: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    """The pattern cut into escapes, classes, quantifiers and the rest; joined they are the source again."""
    out: list[tuple[str, str]] = []
    i = 0
    can_repeat = False
    while i < len(source):
        kind, end = _piece(source, i, can_repeat, "x" in flags)
        out.append((kind, source[i:end]))
        can_repeat = kind in ("escape", "class", "char", "close") or (kind == "blank" and can_repeat)
        i = end
    return out


def _piece(source: str, i: int, can_repeat: bool, verbose: bool) -> tuple[str, int]:
    """The kind of the piece at `i`, and its end."""
    char = source[i]
    if char == "\\":
        return "escape", min(i + 2, len(source))
    if char == "[":
        return "class", _class_end(source, i)
    if can_repeat and (quantifier := _QUANTIFIER.match(source, i)):
        end = quantifier.end()
        return ("lazy", end + 1) if source[end : end + 1] == "?" else ("greedy", end)
    if verbose and char in " \t\n\r\f\v":
        return "blank", i + 1
    if verbose and char == "#":
        end = source.find("\n", i)
        return "blank", len(source) if end < 0 else end + 1
    if char == "(":
        for opening in ("(?=", "(?!", "(?<=", "(?<!"):
            if source.startswith(opening, i):
                return "look", i + len(opening)
        group = _GROUP.match(source, i)
        return "open", group.end() if group else i + 1
    return {")": "close", "|": "bar", "^": "anchor", "$": "anchor"}.get(char, "char"), i + 1


def _class_end(source: str, start: int) -> int:
    """The end of the class that opens at `start`."""
    i = start + 1
    while i < len(source):
        if source[i] == "\\":
            i += 2
        elif source[i] == "]" and i > start + 1:
            return i + 1
        else:
            i += 1
    return len(source)
