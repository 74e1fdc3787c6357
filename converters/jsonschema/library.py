"""The rules that all schemas of one book share: strings, numbers, keys. Sixty tools that use one format have it once.

Nothing here depends on a schema's options: what has whitespace inside (arrays, objects) is each schema's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import proxy

from converters.automata import JSON
from converters.grammar.expr import Expr, RuleBook
from converters.jsonschema.key_text import KeyTexts
from converters.jsonschema.string import Characters
from converters.limits import Budget


@dataclass(frozen=True, slots=True)
class Library:
    """`scalars` are finished expressions of strings and numbers by their facts."""

    keys: KeyTexts
    characters: Characters
    scalars: dict[object, Expr] = field(default_factory=dict)

    @staticmethod
    def of(book: RuleBook, budget: Budget) -> Library:
        """The library of `book`, which one compile with one budget fills."""
        found = book.libraries.get(Library)
        if not isinstance(found, Library):
            owner = proxy(book)  # which has the library: a cycle would keep all the rules until the collector finds it
            found = book.libraries[Library] = Library(KeyTexts(owner, budget), Characters(owner, JSON, "char"))
        return found
