"""Which tokens a grammar text names (`<think>`, `<[12]>`, `!<…>`): found by a scan, not a parse, so that 1 MB costs little.

The text has been checked before it comes here (`converters`); this only finds names and resolves them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from server.engine.backend import GrammarRejected

_LEXEMES = re.compile(
    r'"(?:[^"\\]|\\.)*"' r"|\[(?:[^\]\\]|\\.)*\]" r"|\#[^\r\n]*" r"|(?P<not>!?)<(?P<name>[^>]*)>",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class TokenNames:
    """Token ids that a grammar names; `asked` are those that it names without `!`, which permits every other token."""

    ids: frozenset[int] = frozenset()
    asked: frozenset[int] = frozenset()
    negates: bool = False


def find_tokens(gbnf: str, n_tokens: int, tokenize: Callable[[str], tuple[int, ...]]) -> TokenNames:
    """The tokens that `gbnf` names. Raises GrammarRejected for one that the vocabulary doesn't have."""
    if "<" not in gbnf:
        return TokenNames()
    asked: set[int] = set()
    excluded: set[int] = set()
    for found in _LEXEMES.finditer(gbnf):
        if (name := found["name"]) is not None:
            (excluded if found["not"] else asked).add(_resolve(name, n_tokens, tokenize))
    return TokenNames(frozenset(asked | excluded), frozenset(asked), bool(excluded))


def _resolve(name: str, n_tokens: int, tokenize: Callable[[str], tuple[int, ...]]) -> int:
    if numbered := re.fullmatch(r"\[(\d+)\]", name):
        token = int(numbered[1])
        if token >= n_tokens:
            raise GrammarRejected(f"the grammar names token {token}, but the model's vocabulary ends at {n_tokens - 1}")
        return token
    tokens = tokenize(f"<{name}>")
    if len(tokens) != 1:
        raise GrammarRejected(f"the grammar names the token <{name}>, which the model's vocabulary doesn't have")
    return tokens[0]
