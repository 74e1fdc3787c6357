"""Word boundaries between neighbours that are known, written out: no state then has to remember what came before.

    a\\b[.b]   →   (a that is a word character)(. that is none) | (a that is none)(b that is a word character)

Other boundaries stay, for `assertion`.
"""

from __future__ import annotations

from typing_extensions import assert_never

from converters.regex.edges import has_assertions
from converters.regex.tree import EMPTY, Anchor, At, Cat, Class, Look, Node, Or, Repeat, cat, either, repeat
from converters.regex.unicode import WORD

_BOUNDARIES = {Anchor.BOUNDARY: True, Anchor.NO_BOUNDARY: False}
_MAX_BOUNDARIES = 4  # each may double the tree


def without_boundaries(node: Node) -> Node:
    """The tree of a whole text without the word boundaries that its outermost sequences decide."""
    match node:
        case Or(options):
            return either([without_boundaries(option) for option in options])
        case At(anchor) if anchor in _BOUNDARIES:
            return _sequence([node])
        case Cat(items):
            return _sequence(list(items))
        case _:
            return node


def _sequence(items: list[Node]) -> Node:
    places = [i for i, item in enumerate(items) if isinstance(item, At) and item.anchor in _BOUNDARIES]
    if not places or len(places) > _MAX_BOUNDARIES:
        return cat(items)
    for i in reversed(places):
        start = next((j for j in range(i - 1, -1, -1) if not _is_nullable(items[j])), 0)
        end = next((j for j in range(i + 1, len(items)) if not _is_nullable(items[j])), len(items) - 1) + 1
        left, right = cat(items[start:i]), cat(items[i + 1 : end])
        if has_assertions(left) or has_assertions(right):
            return cat(items)
        at = items[i]
        assert isinstance(at, At)
        items[start:end] = [_joined(left, right, _BOUNDARIES[at.anchor])]
    return cat(items)


def _joined(left: Node, right: Node, differ: bool) -> Node:
    """`left` and `right` where they meet at a boundary, or at none. Empty, they are the text's edge: no word character."""
    options: list[Node] = []
    for is_word in (True, False):
        before = _split(left, is_word, last=True)
        after = _split(right, is_word != differ, last=False)
        if not is_word and _is_nullable(left):
            before = either([before, EMPTY])
        if is_word == differ and _is_nullable(right):
            after = either([after, EMPTY])
        options.append(cat([before, after]))
    return either(options)


def _is_nullable(node: Node) -> bool:
    """Does the empty text match? Assertions count as never empty, so that nothing is split across them."""
    match node:
        case Class() | At() | Look():
            return False
        case Cat(items):
            return all(map(_is_nullable, items))
        case Or(options):
            return any(map(_is_nullable, options))
        case Repeat(item, low):
            return low == 0 or _is_nullable(item)
        case _:
            assert_never(node)


def _split(node: Node, is_word: bool, last: bool) -> Node:
    """The words of `node`, not empty, whose last (or first) character is a word character (or none)."""
    match node:
        case Class(chars):
            return Class(chars & WORD if is_word else chars - WORD)
        case Or(options):
            return either([_split(option, is_word, last) for option in options])
        case Repeat(item, low, high):
            others = repeat(item, max(low - 1, 0), None if high is None else high - 1)
            part = _split(item, is_word, last)
            return cat([others, part] if last else [part, others])
        case Cat(items):
            return _split_sequence(items, is_word, last)
        case At() | Look():
            raise AssertionError("assertions are not split")
        case _:
            assert_never(node)


def _split_sequence(items: tuple[Node, ...], is_word: bool, last: bool) -> Node:
    options: list[Node] = []
    for i in reversed(range(len(items))) if last else range(len(items)):
        part = _split(items[i], is_word, last)
        options.append(cat([*items[:i], part] if last else [part, *items[i + 1 :]]))
        if not _is_nullable(items[i]):
            break
    return either(options)
