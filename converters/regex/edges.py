"""What a pattern's edges mean: searching becomes matching, and anchors at the edges go away.

    search  foo$   →   [any]* foo        search  ^a|b   →   a [any]* | [any]* b        match  ^a$   →   a

Anchors that stay are inside, where only their surroundings decide (see `assertion`).
"""

from __future__ import annotations

from typing import Literal

from converters.grammar.charset import ANY
from converters.regex.tree import EMPTY, Anchor, At, Cat, Class, Look, Node, Or, Repeat, cat, either, repeat

Mode = Literal["match", "search"]
Side = Literal["left", "right"]

_ANY_TEXT = Repeat(Class(ANY), 0, None)
_EDGE_ANCHOR = {"left": Anchor.START, "right": Anchor.END}


def whole_text(node: Node, mode: Mode) -> Node:
    """A tree for the texts in which `node` is found (`search`), or which it matches from end to end (`match`)."""
    return _open(_open(node, "left", mode == "search"), "right", mode == "search")


def beside_any_text(node: Node, side: Side) -> Node:
    """A tree for `node` with any text on one side."""
    return _open(node, side, True)


def has_assertions(node: Node) -> bool:
    """Are there anchors or look-arounds in the tree?"""
    match node:
        case At() | Look():
            return True
        case Cat(parts) | Or(parts):
            return any(map(has_assertions, parts))
        case Repeat(item):
            return has_assertions(item)
        case _:
            return False


def _open(node: Node, side: Side, search: bool) -> Node:
    """`node` at the edge of the text; when searching, with any text between the edge and it."""
    match node:
        case At(anchor) if anchor is _EDGE_ANCHOR[side]:
            return EMPTY
        case Or(options) if has_assertions(node):
            return either([_open(option, side, search) for option in options])
        case Cat(items) if items:
            outer, others = (items[0], list(items[1:])) if side == "left" else (items[-1], list(items[:-1]))
            if outer == At(_EDGE_ANCHOR[side]):
                return _open(_without_anchor(node, side), side, False)
            if isinstance(outer, Or) and has_assertions(outer):
                opened = _open(outer, side, search)
                return cat([opened, *others] if side == "left" else [*others, opened])
    return _after_any_text(node, side) if search else node


def _without_anchor(node: Cat, side: Side) -> Node:
    """`node` without the anchors at its edge, however often they stand there."""
    items = list(node.items if side == "left" else reversed(node.items))
    anchor = At(_EDGE_ANCHOR[side])
    first = next((i for i, item in enumerate(items) if item != anchor), len(items))
    return cat(items[first:] if side == "left" else items[first:][::-1])


def _after_any_text(node: Node, side: Side) -> Node:
    """`node` beside any text, which swallows what `node` would only repeat there: `x{2,5}` is as good as `x{2}`."""
    trimmed = _trimmed(node, side)
    return cat([_ANY_TEXT, trimmed] if side == "left" else [trimmed, _ANY_TEXT])


def _trimmed(node: Node, side: Side) -> Node:
    """`node` without what it may repeat beside any text. What has assertions stays as it is."""
    match node:
        case Or(options):
            return either([_trimmed(option, side) for option in options])
        case Repeat(item, low) if not has_assertions(item):
            return repeat(item, low, low)
        case Cat(items):
            return _trimmed_sequence(list(items), side)
        case _:
            return node


def _trimmed_sequence(items: list[Node], side: Side) -> Node:
    """Items at the edge that come to nothing go; the first that doesn't is trimmed."""
    if side == "right":
        items.reverse()
    for i, item in enumerate(items):
        trimmed = _trimmed(item, side)
        if trimmed != EMPTY:
            kept = [trimmed, *items[i + 1 :]]
            return cat(kept if side == "left" else kept[::-1])
    return EMPTY
