"""The target language: grammar expressions as values.

Frozen nodes with value equality, smart constructors that keep them in normal form (`seq`, `alt`, `rep`), the constants of
the extremes (`EMPTY` matches only the empty string, `NEVER` matches nothing) and the rule book that names rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, final

from converters.grammar.charset import CharSet
from converters.record import record

if TYPE_CHECKING:
    from converters.grammar.passes.look import Look


class _Node:
    """Room for what `passes.look` has found out about an expression. Not part of its value."""

    __slots__ = ("look",)
    look: Look


@final
@record
class Lit(_Node):
    """The characters of `text`, in order. Never empty (that is EMPTY)."""

    text: str


@final
@record
class Chars(_Node):
    """One character of `chars`. Never the empty set (that is NEVER)."""

    chars: CharSet


@final
@record
class Token(_Node):
    """One token of the model's vocabulary, by its whole text ("<think>", brackets included) or its id; `negated`: any other."""

    token: str | int
    negated: bool = False


@final
@record
class Ref(_Node):
    """The rule called `name`."""

    name: str


@final
@record
class Seq(_Node):
    """`items` one after the other."""

    items: tuple[Expr, ...]


@final
@record
class Alt(_Node):
    """One of `options`."""

    options: tuple[Expr, ...]


@final
@record
class Rep(_Node):
    """`item` repeated `min` to `max` times (None: without end)."""

    item: Expr
    min: int
    max: int | None


# There are no subclasses: `type(x) is Seq` asks what `isinstance` does, and where the answer is no, eight times as fast.
Expr: TypeAlias = Lit | Chars | Token | Ref | Seq | Alt | Rep

_LEGAL_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\Z")
_ILLEGAL_CHAR = re.compile(r"[^A-Za-z0-9-]")

_FEW = 4

EMPTY = Seq(())
NEVER = Alt(())


@record
class Grammar:
    """Rules by name, and the name of the entry rule."""

    rules: Mapping[str, Expr]
    root: str = "root"


def seq(*items: Expr) -> Expr:
    """`items` in order, flattened: NEVER absorbs, EMPTY vanishes, neighbouring literals join."""
    flat: list[Expr] = []
    text = ""  # of the literals at the end, where there is one
    for item in items:
        if type(item) is Alt and not item.options:
            return NEVER
        for part in item.items if type(item) is Seq else (item,):
            if type(part) is not Lit:
                text = ""
            elif text:
                text += part.text
                flat[-1] = Lit(text)
                continue
            else:
                text = part.text
            flat.append(part)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat)) if flat else EMPTY


def alt(*options: Expr) -> Expr:
    """One of `options`, flattened: NEVER vanishes, equal options count once."""
    flat: list[Expr] = []
    for option in options:
        if type(option) is Alt:
            flat += option.options
        else:
            flat.append(option)
    if len(flat) > _FEW:
        flat = list(dict.fromkeys(flat))
    elif len(flat) > 1:  # few are compared sooner than hashed
        flat = [part for i, part in enumerate(flat) if part not in flat[:i]]
    return flat[0] if len(flat) == 1 else Alt(tuple(flat)) if flat else NEVER


def rep(item: Expr, min: int = 0, max: int | None = None) -> Expr:
    """`item` `min` to `max` times; the trivial counts vanish."""
    if max is not None and max < min:
        raise ValueError(f"repetition {min} to {max}")
    if max == 0 or (type(item) is Seq and not item.items):
        return EMPTY
    if type(item) is Alt and not item.options:
        return EMPTY if min == 0 else NEVER
    return item if min == max == 1 else Rep(item, min, max)


def opt(item: Expr) -> Expr:
    """`item` or nothing. What is more than a symbol becomes an alternative: one level for llama.cpp, where `(…)?` is two."""
    return alt(item, EMPTY) if type(item) is Seq or type(item) is Alt else rep(item, 0, 1)


def lit(text: str) -> Expr:
    """The characters of `text`; EMPTY for the empty string."""
    return Lit(text) if text else EMPTY


def chars(charset: CharSet) -> Expr:
    """One character of `charset`; NEVER for the empty set."""
    return Chars(charset) if charset else NEVER


class RuleBook:
    """The rules of a grammar in the making. Gives out names; two sub-compilers can share one book without clashing."""

    def __init__(self) -> None:
        self._rules: dict[str, Expr] = {}
        self._taken: set[str] = {"root"}
        self._legal: dict[str, str] = {}  # hints as names
        self._numbers: dict[str, int] = {}  # the last number given out with a name
        self.libraries: dict[type, object] = {}
        """By its type, what a sub-compiler keeps with the book: rules that its several parts share."""

    def reserve(self, hint: str) -> Ref:
        """A fresh rule name like `hint` (made legal for llama.cpp), to be defined later: recursion needs it."""
        base = self._legal.get(hint)
        if base is None:
            base = self._legal[hint] = hint if _LEGAL_NAME.match(hint) else _ILLEGAL_CHAR.sub("-", hint).strip("-") or "rule"
        name, number = base, self._numbers.get(base, 1)
        while name in self._taken:
            number += 1
            name = f"{base}-{number}"
        self._numbers[base] = number
        self._taken.add(name)
        return Ref(name)

    def define(self, ref: Ref, expr: Expr) -> Ref:
        """Give the reserved rule its expression."""
        self._rules[ref.name] = expr
        return ref

    def add(self, hint: str, expr: Expr) -> Ref:
        """A new rule for `expr`."""
        return self.define(self.reserve(hint), expr)

    def build(self, root: Expr) -> Grammar:
        """The grammar whose entry rule, `root`, is `root`. Raises ValueError for a reserved rule without an expression."""
        missing = self._taken - self._rules.keys() - {"root"}
        if missing:
            raise ValueError(f"rules without an expression: {sorted(missing)}")
        return Grammar({"root": root, **self._rules})


def children(expr: Expr) -> Iterable[Expr]:
    """The expressions directly below `expr`."""
    match expr:
        case Seq(items):
            return items
        case Alt(options):
            return options
        case Rep(item):
            return (item,)
        case _:
            return ()
