"""Free text up to the first of several words, as right-linear rules (Aho and Corasick, 1975): what follows depends on the word.

The automaton's states are the beginnings of words; deterministic, one rule a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from converters.grammar.charset import ANY, CharSet
from converters.grammar.expr import NEVER, Expr, Ref, RuleBook, alt, chars, rep, seq
from converters.limits import Budget


def until(words: Mapping[str, Expr], excluded: Iterable[str], ending: Expr, book: RuleBook, budget: Budget, start: Ref) -> Ref:
    """Defines `start` as free text, then the first of `words` in it and that word's expression.

    No word of `excluded` is in the text. Instead of a word `ending` may come at any place: EMPTY lets the text end, NEVER makes
    it go on. Words are not empty. Where several words end at one place, any of their expressions may follow.
    """
    return _Until(dict(words), frozenset(excluded), ending, book, budget, start).run()


class _Until:
    def __init__(
        self, words: Mapping[str, Expr], excluded: frozenset[str], ending: Expr, book: RuleBook, budget: Budget, start: Ref
    ) -> None:
        self.words = words
        self.excluded = excluded
        self.ending = ending
        self.book = book
        self.budget = budget
        self.refs = {"": start}
        self.known = {*words, *excluded}
        self.begins = {word[:n] for word in self.known for n in range(len(word))}
        self.alphabet = sorted(set("".join(self.known)))

    def run(self) -> Ref:
        todo = [""]
        n_edges = 0
        for state in todo:
            self.budget.tick()
            targets = self.targets(state)
            n_edges += len(targets) + 1
            self.budget.check_automaton(len(todo), n_edges, "the free text between tags")
            for target in targets:
                if target not in self.refs and not self.ended(target):
                    self.refs[target] = self.book.reserve("text")
                    todo.append(target)
            self.book.define(self.refs[state], self.rule(state, targets))
        return self.refs[""]

    def targets(self, state: str) -> dict[str, str]:
        """Where the characters of words lead from `state`, those that only begin anew left out: target → characters."""
        found: dict[str, str] = {}
        for char in self.alphabet:
            target = self.longest(state + char)
            if target:
                found[target] = found.get(target, "") + char
        return found

    def longest(self, text: str) -> str:
        """`text` if a word ends there, else its longest end that begins a word."""
        if self.ended(text):
            return text
        return next((text[i:] for i in range(len(text)) if text[i:] in self.begins), "")

    def ended(self, text: str) -> list[str]:
        """The words that `text` ends with."""
        return [text[i:] for i in range(len(text)) if text[i:] in self.known]

    def rule(self, state: str, targets: Mapping[str, str]) -> Expr:
        options: list[Expr] = [self.ending]
        for target, leading in targets.items():
            options.append(seq(chars(CharSet.of(leading)), self.after(target)))
        others = ANY - CharSet.of("".join(targets.values()))
        if state == "":
            return seq(rep(chars(others)), alt(*options))
        return alt(*options, seq(chars(others), self.refs[""]))

    def after(self, target: str) -> Expr:
        words = self.ended(target)
        if any(word in self.excluded for word in words):
            return NEVER
        return alt(*(self.words[word] for word in words)) if words else self.refs[target]
