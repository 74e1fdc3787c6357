"""What rules begin with, written where the rules are called: llama.cpp pays for every rule level that a stack goes through.

It works out what follows every live stack at every character, whether the character fits that stack or not. So a rule that
begins with a character costs each of its callers a level that a longer text doesn't. For printing only: the text grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from converters.grammar.expr import EMPTY, Alt, Chars, Expr, Grammar, Lit, Ref, Rep, Seq, alt, lit, rep, seq
from converters.grammar.passes.ending import drop_unreachable
from converters.grammar.passes.prefix import factor
from converters.grammar.passes.walk import below, nodes, replace_rules, rewrite
from converters.limits import Budget

MAX_HEAD = 4
"""Of a literal that is longer than this, only the first character is written at the calls."""
MAX_RANGES = 2
MAX_CHAIN = 20
"""So many rules may begin with one another to have one head."""
MAX_OPTIONS = 14
"""A rule of so many alternatives is written out where it is an alternative itself."""
MAX_SIZE = 48
"""The same in parts of expressions."""
MAX_GROWTH = 2000
"""The parts that all of them may add."""


def hoist_heads(grammar: Grammar, budget: Budget) -> Grammar:
    """Write the character that a rule begins with at its calls; a rule of which nothing is left but a name vanishes.

    Before → after: `root ::= x | "a" x; x ::= "[" y; y ::= z "]"` → `root ::= "[" y | "a[" y; y ::= z "]"`
    """
    heads: dict[str, Expr] = {}
    for name in grammar.rules:
        if name != grammar.root:
            _find_head(name, grammar, heads, MAX_CHAIN)
    heads = {name: head for name, head in heads.items() if head != EMPTY}
    if not heads:
        return grammar
    bare = {name: _without_head(grammar.rules[name], head) for name, head in heads.items()}
    names = {name: rest for name, rest in bare.items() if isinstance(rest, Ref) and rest.name not in heads}
    calls = {name: seq(head, names.get(name, Ref(name))) for name, head in heads.items()}

    def put(leaf: Expr) -> Expr:
        return calls.get(leaf.name, leaf) if isinstance(leaf, Ref) else leaf

    rules: dict[str, Expr] = {}
    for name, expr in grammar.rules.items():
        budget.check_deadline()
        if name in names:
            continue
        if name not in heads or not isinstance(_first(expr), Ref):
            new = rewrite(bare.get(name, expr), put)
        else:
            first, *rest = _items(expr)
            assert isinstance(first, Ref)
            new = seq(names.get(first.name, first), *(rewrite(item, put) for item in rest))
        rules[name] = expr if new is expr else factor(new)
    return Grammar(rules, grammar.root)


def _find_head(name: str, grammar: Grammar, heads: dict[str, Expr], depth: int) -> Expr:
    """A character or short literal that the rule begins with, EMPTY when there is none: its own, or that of a rule it calls."""
    if name not in heads:
        expr = grammar.rules[name]
        first = _first(expr)
        head: Expr = EMPTY
        if name == grammar.root or not isinstance(expr, Seq) or len(expr.items) < 2:
            pass
        elif isinstance(first, Lit):
            head = lit(first.text if len(first.text) <= MAX_HEAD else first.text[:1])
        elif isinstance(first, Chars) and len(first.chars.ranges) <= MAX_RANGES:
            head = first
        elif isinstance(first, Ref) and depth:
            head = _find_head(first.name, grammar, heads, depth - 1)
        heads[name] = head
    return heads[name]


def _without_head(expr: Expr, head: Expr) -> Expr:
    """What follows `head` in an expression that begins with it; an expression that begins with a call is left as it is."""
    first, *rest = _items(expr)
    if isinstance(first, Ref):
        return expr
    if isinstance(first, Lit) and isinstance(head, Lit):
        return seq(lit(first.text[len(head.text) :]), *rest)
    return seq(*rest)


def _items(expr: Expr) -> tuple[Expr, ...]:
    return expr.items if isinstance(expr, Seq) else (expr,)


def splice_options(grammar: Grammar, budget: Budget) -> Grammar:
    """Write out, where they are an alternative, rules that are alternatives themselves and begin with characters.

    Before → after: `root ::= "a" | x "!"; x ::= "b" | "c" x` → `root ::= "a" | "b!" | "c" x "!"; x ::= "b" | "c" x`
    """
    able = {name: expr for name, expr in grammar.rules.items() if name != grammar.root and _is_spliceable(expr)}
    if not able:
        return grammar
    called: dict[str, list[str]] = {}
    for name, expr in grammar.rules.items():
        budget.tick()
        if found := [first for first in _called_first(expr) if first in able]:
            called[name] = found
    known = _worth_it(able, [first for found in called.values() for first in found])
    spliced = (
        (name, _splice(grammar.rules[name], known)) for name, found in called.items() if not known.keys().isdisjoint(found)
    )
    return drop_unreachable(replace_rules(grammar, spliced), budget)


def _worth_it(able: Mapping[str, Expr], calls: Iterable[str]) -> dict[str, Expr]:
    """The rules to write out at their `calls`: as many as MAX_GROWTH allows, those that add least first."""
    times = Counter(calls)
    sizes = {name: len(nodes(able[name])) for name in times}
    growth = {name: times[name] * size for name, size in sizes.items()}
    kept: dict[str, Expr] = {}
    left = MAX_GROWTH
    for name in sorted(growth, key=lambda name: growth[name]):
        left -= growth[name]
        if left < 0:
            break
        if sizes[name] <= MAX_SIZE:
            kept[name] = able[name]
    return kept


def _called_first(expr: Expr) -> list[str]:
    """The rules that alternatives begin with, once for each."""
    found: list[str] = []
    todo = [expr]
    while todo:
        node = todo.pop()
        if isinstance(node, Alt):
            firsts = map(_first, node.options)
            found.extend(first.name for first in firsts if isinstance(first, Ref))
            todo.extend(node.options)
        elif isinstance(node, Seq):
            todo.extend(item for item in node.items if isinstance(item, (Alt, Rep)))
        elif isinstance(node, Rep):
            todo.append(node.item)
    return found


def _is_spliceable(expr: Expr) -> bool:
    if not isinstance(expr, Alt) or not 1 < len(expr.options) <= MAX_OPTIONS:
        return False
    return all(isinstance(_first(option), (Lit, Chars)) for option in expr.options)


def _first(expr: Expr) -> Expr:
    return expr.items[0] if isinstance(expr, Seq) and expr.items else expr


def _splice(expr: Expr, known: Mapping[str, Expr]) -> Expr:
    parts = below(expr)
    if not parts:
        return expr
    new = [_splice(part, known) if isinstance(part, (Seq, Alt, Rep)) else part for part in parts]
    is_same = all(a is b for a, b in zip(new, parts, strict=True))
    if isinstance(expr, Alt):
        options = [option for part in new for option in _options(part, known)]
        return expr if is_same and len(options) == len(new) else alt(*options)
    if is_same:
        return expr
    return seq(*new) if isinstance(expr, Seq) else rep(new[0], expr.min, expr.max) if isinstance(expr, Rep) else expr


def _options(option: Expr, known: Mapping[str, Expr]) -> list[Expr]:
    first = _first(option)
    found = known.get(first.name) if isinstance(first, Ref) else None
    if not isinstance(found, Alt):
        return [option]
    rest = option.items[1:] if isinstance(option, Seq) else ()
    return [seq(each, *rest) for each in found.options]
