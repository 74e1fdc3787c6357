"""What a Lark source says, as values: expressions, definitions and statements.

Nothing here reads text or knows what a name stands for: `syntax` builds these, `definitions` and the two lowerings read
them. Every `offset` counts code points from the start of the source; `LIBRARY` marks what came with an import instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

LIBRARY = -1


@dataclass(frozen=True, slots=True)
class Literal:
    """A string or a regex exactly as it is written, with its quotes or slashes and its flags."""

    raw: str
    offset: int


@dataclass(frozen=True, slots=True)
class Span:
    """`"a".."z"`: one character of a range. Both ends as they are written."""

    first: str
    last: str
    offset: int


@dataclass(frozen=True, slots=True)
class Name:
    """A use of a rule, a terminal or a template parameter."""

    name: str
    offset: int

    @property
    def is_terminal(self) -> bool:
        return is_terminal_name(self.name)


@dataclass(frozen=True, slots=True)
class Call:
    """A use of a template: `_sep{x, ","}`."""

    name: str
    args: tuple[Node, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Special:
    """A token of the vocabulary: `<|im_end|>`, `<[5]>`, `<[1-3,9]>`. `text` keeps the angle brackets."""

    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Json:
    """`%json {…}`: the block is at `offset`, in `Document.blocks`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Structured:
    """`%regex {…}`: the block is at `offset`, in `Document.blocks`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """Something that llguidance has and no grammar of ours can hold; `what` names it for the error."""

    what: str
    offset: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """`items` one after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of `options`."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item` repeated `min` to `max` times (None: without end)."""

    item: Node
    min: int
    max: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class Both:
    """`A & B`: what all of `items` match. Only in terminals."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """`~A`: every text that `item` does not match. Only in terminals."""

    item: Node
    offset: int


Node: TypeAlias = Literal | Span | Name | Call | Special | Json | Structured | Foreign | Sequence | Choice | Repeat | Both | Not


@dataclass(frozen=True, slots=True)
class Attribute:
    """`lazy` or `max_tokens=5` in `rule[…]`."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Definition:
    """A rule or a terminal. `params` makes it a template; `priority` says that it has one."""

    name: str
    params: tuple[str, ...]
    body: Node
    priority: bool
    attributes: tuple[Attribute, ...]
    offset: int

    @property
    def is_terminal(self) -> bool:
        return is_terminal_name(self.name)


@dataclass(frozen=True, slots=True)
class Ignore:
    """`%ignore body`."""

    body: Node
    offset: int


@dataclass(frozen=True, slots=True)
class Import:
    """`%import path (names…)`: (name, local name) pairs from the grammar at the dotted `path`."""

    path: str
    names: tuple[tuple[Name, str], ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Extend:
    """`%extend definition`: more options for something defined before."""

    definition: Definition


@dataclass(frozen=True, slots=True)
class Options:
    """`%llguidance {…}`: the block is at `offset`, in `Document.blocks`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A statement without a place in a context-free grammar; `what` names it."""

    what: str
    offset: int


Item: TypeAlias = Definition | Ignore | Import | Extend | Options | Refused


def is_terminal_name(name: str) -> bool:
    """Terminals are written in capitals, rules in small letters."""
    return name.lstrip("_")[:1].isupper()


def offset_of(node: Node) -> int:
    """Where `node` begins, as far as it is known."""
    while True:
        match node:
            case Sequence((first, *_)) | Choice((first, *_)) | Both((first, *_)) | Repeat(first):
                node = first
            case Sequence() | Choice() | Both():
                return LIBRARY
            case _:
                return node.offset


def without_place(node: Node) -> Node:
    """A terminal's use, the same for every place that it stands at. (A block is known by its place.)"""
    return replace(node, offset=LIBRARY) if isinstance(node, (Literal, Span, Name)) else node
