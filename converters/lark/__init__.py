"""Lark grammars to grammars: `lark_grammar` compiles one, `detect.detect_grammar_kind` tells GBNF from Lark.

The source is Lark's, with what llguidance adds to it, and its language is a set of texts:

* **Rules** are context-free over *characters*: a text is in the language when it can be cut into terminals in any way. A
  lexer would commit itself to the longest or the first terminal, and then refuse `iffy` as `"if" NAME`; here that is
  accepted (llguidance's reading too, but for terminals that it takes greedily against each other).
* **Terminals** are regular languages of their own text: `A: "a" | "ab"` has both, whatever a backtracking engine would find
  first. Lookarounds and anchors see the text of the terminal only (a note says so). A regex is a unit: `/a|b/ "c"` is
  `(a|b)c` (lark 1.3 joins it to `a|bc`). A lazy quantifier makes the terminal, from the start of its sequence on, end where
  it first can: `/".*?"/` holds no inner quote. That is Lark's reading where only fixed text follows it; where a greedy
  quantifier follows, it is refused.
* **`%ignore`** stands before, between and after tokens, not inside terminals; each ignored terminal is taken as long as it
  goes, so that no token begins inside of a comment (see `ignored`).
* `.` is any character but LF, `^` and `$` with the flag m know LF only, as in Python and Rust. `\\d`, `\\w`, `\\s` and the
  flag i are those of our regexes (spec section 3), in strings the flag i also folds single letters outside ASCII.

Accepted: rules, terminals, `|`, `()`, `[]`, `?`, `*`, `+`, `~n`, `~n..m`, `{n}`, `{n,m}`, `{n,}`, `{,m}`, strings, regexes
(flags imsxu), ranges, templates of rules, `%ignore`, `%import common…`, `%extend`, `%json`, `%regex` (substrings), special
tokens, `&` and `~` in terminals, names with hyphens. Without effect on the language: `?rule`, `!rule`, `_rule`, aliases, and
with a note: priorities, `[capture]`, `[temperature]`, `no_forcing`. Refused by name: imports from elsewhere, `%declare`,
`%override`, templates of terminals, templates as arguments, attributes that change the text (`lazy`, `max_tokens`, `stop`,
`suffix`), `@other` grammars, escapes in strings that Lark and JSON read differently, sets of tokens with more than one left
out, back-references, and lookups of rules and terminals that aren't there. More than Lark: `""`, equal alternatives, and
terminals that may be empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from converters.lark.source import lark_grammar

__all__ = ["lark_grammar"]


def __getattr__(name: str) -> object:
    """Loads the compiler on first use: telling GBNF from Lark needs none of it."""
    if name != "lark_grammar":
        raise AttributeError(f"module 'converters.lark' has no attribute {name!r}")
    from converters.lark.source import lark_grammar

    return lark_grammar
