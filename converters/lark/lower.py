"""Rules to a grammar: templates instantiated, `%json` compiled, and what is ignored put between the tokens.

The ignored stands after every token and before the first (spec section 3; Lark's own lexers do the same), as one
deterministic rule; `ignored` says what stands before a token. A token that may be empty takes nothing with it when it is, so
that what is ignored can't be told in two ways. Terminals themselves are `terminals`'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from typing_extensions import assert_never

from converters.automata.dfa import Dfa
from converters.automata.lower import to_expr
from converters.constraint import JsonSchema
from converters.errors import ConversionError, InvalidSource, LimitExceeded, UnsupportedFeature
from converters.grammar.charset import NOTHING, CharSet
from converters.grammar.expr import (
    EMPTY,
    NEVER,
    Alt,
    Chars,
    Expr,
    Grammar,
    Lit,
    Ref,
    Rep,
    RuleBook,
    Seq,
    Token,
    alt,
    opt,
    rep,
    seq,
)
from converters.jsonschema import lower_schema
from converters.lark.definitions import Definitions, walk
from converters.lark.ignored import Ignored
from converters.lark.pattern import placed
from converters.lark.terminals import Terminals, checked_counts, without_empty
from converters.lark.tree import (
    Both,
    Call,
    Choice,
    Foreign,
    Json,
    Literal,
    Name,
    Node,
    Not,
    Repeat,
    Sequence,
    Span,
    Special,
    Structured,
    without_place,
)
from converters.limits import Budget
from converters.options import CompileOptions

MAX_INSTANCES = 2000
"""Uses of templates with different arguments."""

MAX_TOKEN_IDS = 4096
"""Tokens that all lists like `<[1-5,9]>` together may name: each costs llama.cpp a stack."""

_MAX_TOKEN_ID = 2**32 - 1

_JSON_STARTS = '{["-0123456789tfn'

_Scope = Mapping[str, Expr]  # what the parameters of a template stand for


@dataclass(frozen=True, slots=True)
class _Instance:
    """A rule, or a template with its arguments."""

    name: str
    args: tuple[Expr, ...]


def lower(definitions: Definitions, options: CompileOptions, budget: Budget) -> Grammar:
    """The grammar of the rule `start`."""
    return _Lowering(definitions, options, budget).run()


class _Lowering:
    """Works through the rules that are reached, one after the other: nothing recurses from rule to rule."""

    def __init__(self, definitions: Definitions, options: CompileOptions, budget: Budget) -> None:
        self.definitions = definitions
        self.options = options
        self.budget = budget
        self.book = RuleBook()
        self.terminals = Terminals(definitions, self.book, budget)
        self.refs: dict[_Instance, Ref] = {}
        self.todo: deque[_Instance] = deque()
        self.tokens: dict[Node, Expr] = {}
        self.specials: dict[str, Expr] = {}
        self.before: dict[CharSet, Expr] = {}
        self.n_instances = 0
        self.n_token_ids = 0
        self.ignored = self._ignored()
        self.between = EMPTY if self.ignored is None else self._added("ignored", self.ignored.between())

    def run(self) -> Grammar:
        """Everything that is reached from `start`."""
        start = self._rule(_Instance("start", ()))
        while self.todo:
            instance = self.todo.popleft()
            definition = self.definitions.rules[instance.name]
            scope = dict(zip(definition.params, instance.args, strict=True))
            self.book.define(self.refs[instance], self._lower(definition.body, scope))
        return self.book.build(seq(self.between, start, self._before_unspelled(NOTHING)))

    def _rule(self, instance: _Instance) -> Ref:
        """The rule of `instance`, to be lowered later."""
        if instance not in self.refs:
            self.refs[instance] = self.book.reserve(instance.name)
            self.todo.append(instance)
        return self.refs[instance]

    def _lower(self, node: Node, scope: _Scope) -> Expr:
        self.budget.tick()
        match node:
            case Name(name) if name in scope:
                return scope[name]
            case Name(name) if not node.is_terminal:
                return self._rule(_Instance(name, ()))
            case Name() | Literal() | Span() | Structured():
                return self._token(node)
            case Call():
                return self._call(node, scope)
            case Special(text):
                if text not in self.specials:
                    self.specials[text] = self._special(node)
                return self._around(self.specials[text], NOTHING)
            case Json():
                return self._around(self._json(node), CharSet.of(_JSON_STARTS))
            case Sequence(items):
                return seq(*(self._lower(item, scope) for item in items))
            case Choice(options):
                return alt(*(self._lower(option, scope) for option in options))
            case Repeat(item):
                low, high = checked_counts(node, self.definitions)
                return rep(self._lower(item, scope), low, high)
            case Both() | Not() | Foreign():
                raise AssertionError(f"refused before: {node}")
            case _:
                assert_never(node)

    # -- tokens

    def _token(self, node: Node) -> Expr:
        """One use of a terminal, and what is ignored around it."""
        key = without_place(node)
        if key not in self.tokens:
            self.tokens[key] = self._lower_token(node)
        return self.tokens[key]

    def _lower_token(self, node: Node) -> Expr:
        dfa = None if self.ignored is None else self.terminals.automaton(node)
        if self.ignored is None or dfa is None:
            return seq(self.terminals.lower(node), self.between)
        spelled = without_empty(dfa)
        joined = self.ignored.before(spelled)
        if joined is None and spelled is dfa:
            expr = self.terminals.lower(node)
        else:
            hint = node.name if isinstance(node, Name) else "token"
            expr = self._added(hint, spelled if joined is None else joined)
        followed = seq(expr, self.between)
        return followed if spelled is dfa else opt(followed)

    def _added(self, hint: str, dfa: Dfa) -> Expr:
        """The expression of `dfa`, as a rule unless it is short."""
        expr = to_expr(dfa, self.book, hint)
        return expr if isinstance(expr, (Ref, Lit, Chars)) or expr in (EMPTY, NEVER) else self.book.add(hint, expr)

    def _around(self, expr: Expr, first_chars: CharSet) -> Expr:
        """Something that is no terminal, and what is ignored around it."""
        return seq(self._before_unspelled(first_chars), expr, self.between)

    def _before_unspelled(self, first_chars: CharSet) -> Expr:
        dfa = None if self.ignored is None else self.ignored.before_unspelled(first_chars)
        if dfa is None:
            return EMPTY
        if first_chars not in self.before:
            self.before[first_chars] = self._added("ignored", dfa)
        return self.before[first_chars]

    def _ignored(self) -> Ignored | None:
        terminals = self.terminals.ignored()
        if not terminals:
            return None
        return Ignored(terminals, self._first_chars(), self.definitions.skip_once, self.budget)

    def _first_chars(self) -> CharSet:
        """The characters that the tokens of all rules begin with. A token too large for an automaton is left out."""
        found = CharSet.of(_JSON_STARTS) if self.definitions.document.blocks else NOTHING
        ranges = list(found.ranges)
        for definition in self.definitions.rules.values():
            for node in walk(definition.body):
                is_token = isinstance(node, (Literal, Span, Structured)) or (isinstance(node, Name) and node.is_terminal)
                dfa = self.terminals.automaton(node) if is_token else None
                if dfa is not None:
                    ranges.extend(without_empty(dfa).first_chars().ranges)
        return CharSet.from_ranges(ranges)

    # -- templates

    def _call(self, call: Call, scope: _Scope) -> Ref:
        args = tuple(self._argument(self._lower(arg, scope)) for arg in call.args)
        instance = _Instance(call.name, args)
        if instance not in self.refs:
            self.n_instances += 1
            if self.n_instances > MAX_INSTANCES:
                raise LimitExceeded(
                    f"the templates need more than {MAX_INSTANCES} rules",
                    limit="template_instances", value=MAX_INSTANCES, position=self.definitions.position(call.offset),
                )  # fmt: skip
        return self._rule(instance)

    def _argument(self, expr: Expr) -> Expr:
        """Small enough to be written wherever the parameter stands: a longer argument gets a rule of its own."""
        return self.book.add("argument", expr) if isinstance(expr, (Seq, Alt, Rep)) else expr

    # -- special tokens

    def _special(self, node: Special) -> Expr:
        """`<name>`, `<[id]>`, `<[1-3,9]>`, `<[^id]>`, `<[*]>`."""
        if not node.text.startswith("<["):
            return Token(node.text)
        body = node.text[2:].removesuffix(">").removesuffix("]")
        if body == "*":
            return alt(Token(0), Token(0, negated=True))
        ids = self._token_ids(node, body.removeprefix("^"))
        if not body.startswith("^"):
            return Token(ids[0]) if len(ids) == 1 else self.book.add("tokens", alt(*map(Token, ids)))
        if len(ids) > 1:
            raise self._unsupported("a token set with more than one token left out", node)
        return Token(ids[0], negated=True)

    def _token_ids(self, node: Special, body: str) -> list[int]:
        ids: dict[int, None] = {}
        position = self.definitions.position(node.offset)
        for part in filter(None, map(str.strip, body.split(","))):
            ends = [end.strip() for end in part.split("-")]
            if len(ends) > 2 or not all(end.isascii() and end.isdigit() and len(end) <= 10 for end in ends):
                raise InvalidSource(f"{part!r} is not a token id or a range of them", position=position)
            low, high = int(ends[0]), int(ends[-1])
            if low > high or high > _MAX_TOKEN_ID:
                raise InvalidSource(f"{part!r} is not a range of token ids", position=position)
            self.n_token_ids += high - low + 1
            if self.n_token_ids > MAX_TOKEN_IDS:
                raise LimitExceeded(
                    f"token lists like {node.text} name more than {MAX_TOKEN_IDS} tokens",
                    limit="token_ids", value=MAX_TOKEN_IDS, position=position,
                )  # fmt: skip
            ids.update(dict.fromkeys(range(low, high + 1)))
        if not ids:
            raise InvalidSource(f"{node.text} lists no token", position=position)
        return list(ids)

    def _unsupported(self, what: str, node: Special | Json) -> UnsupportedFeature:
        return UnsupportedFeature(f"{what} is not supported", position=self.definitions.position(node.offset))

    # -- JSON

    def _json(self, node: Json) -> Expr:
        """The schema's rules come into this grammar."""
        position = self.definitions.position(node.offset)
        schema = JsonSchema(self.definitions.document.blocks[node.offset])
        line = f"%json in line {position.line}" if position else "%json"
        relaxed = self.budget.relaxed
        n_before = len(relaxed)
        try:
            expr, notes = lower_schema(schema, self.book, self.options, self.budget, "json")
        except ConversionError as error:
            raise placed(error, "%json", error.position or position) from None
        relaxed[n_before:] = [replace(entry, reason=f"{entry.reason}, in {line}") for entry in relaxed[n_before:]]
        for note in notes:
            self.definitions.note(f"{line}: {note}")
        return expr
