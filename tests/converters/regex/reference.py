"""Patterns of the dialect as Python's `re` reads them, its known differences from ECMA-262 written out.

The list of differences (with `re.ASCII`): `.` leaves out four line ends in ECMA-262 and only the newline in Python; `\\s` is
ECMA-262's set; `$` and `\\Z` match only at the very end; with `(?m)`, lines end at all four line ends; `\\B`
matches the empty text (Python before 3.14: no). `\\z`, `\\u{…}`,
`\\x{…}`, `\\cX`, `\\p{…}`, joined surrogate pairs and `[^]` are not in Python at all.
"""

from __future__ import annotations

import re

_ENDS = "\\n\\r\\u2028\\u2029"
_SPACES = "\\t\\n\\v\\f\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
_NO_SPACES = (
    "\\x00-\\x08\\x0e-\\x1f!-\\x9f\\u00a1-\\u167f\\u1681-\\u1fff\\u200b-\\u2027\\u202a-\\u202e\\u2030-\\u205e\\u2060-\\u2fff"
    "\\u3001-\\ufefe\\uff00-\\U0010ffff"
)
_PIECE = re.compile(r"\\.|\[\^?\]?|[\]^$.]|\(\?[a-z]*[)(:]?|.", re.DOTALL)


def reference(pattern: str) -> re.Pattern[str]:
    """`pattern` with the differences written out; raises re.error where Python doesn't read it. No `(?s)` in parts of it."""
    multi_line = bool(re.search(r"\(\?[ais]*m[a-z]*\)", pattern))
    dot_all = bool(re.search(r"\(\?[aim]*s[a-z]*\)", pattern))
    out: list[str] = []
    in_class = False
    for piece in _PIECE.findall(pattern):
        if in_class:
            out.append({"\\s": _SPACES, "\\S": _NO_SPACES}.get(piece, piece))
            in_class = piece != "]"
        elif piece.startswith("["):
            in_class = True
            out.append(piece)
        else:
            out.append(_outside(piece, multi_line, dot_all))
    return re.compile("".join(out), re.ASCII)


def _outside(piece: str, multi_line: bool, dot_all: bool) -> str:
    match piece:
        case "." if not dot_all:
            return f"[^{_ENDS}]"
        case "$":
            return f"(?=[{_ENDS}]|\\Z)" if multi_line else "\\Z"
        case "^" if multi_line:
            return f"(?:\\A|(?<=[{_ENDS}]))"
        case "\\s":
            return f"[{_SPACES}]"
        case "\\S":
            return f"[^{_SPACES}]"
        case "\\B":
            return "(?!\\b)"
        case "\\z":
            return "\\Z"
    return piece
