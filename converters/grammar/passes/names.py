"""Rule names that llama.cpp can read."""

from __future__ import annotations

import re

from converters.grammar.expr import Expr, Grammar, Ref
from converters.grammar.passes.walk import FreshNames, rewrite

_LEGAL = re.compile(r"[A-Za-z0-9-]+\Z")
ROOT = "root"


def legal_names(grammar: Grammar) -> Grammar:
    """Rename rules so that llama.cpp reads their names, and the entry rule to `root`.

    Before → after: `root ::= line_char; line_char ::= "a"` → `root ::= line-char; line-char ::= "a"`
    """
    if grammar.root == ROOT and all(_LEGAL.match(name) for name in grammar.rules):
        return grammar
    fresh = FreshNames({name for name in grammar.rules if _LEGAL.match(name)} | {ROOT})
    new_names: dict[str, str] = {}
    for name in grammar.rules:
        if name == grammar.root:
            new_names[name] = ROOT
        elif name == ROOT or not _LEGAL.match(name):
            new_names[name] = fresh.make(re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-") or "rule")
        else:
            new_names[name] = name

    def rename(leaf: Expr) -> Expr:
        if isinstance(leaf, Ref) and new_names[leaf.name] != leaf.name:
            return Ref(new_names[leaf.name])
        return leaf

    return Grammar({new_names[name]: rewrite(expr, rename) for name, expr in grammar.rules.items()}, ROOT)
