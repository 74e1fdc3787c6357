"""What the names of a Lark source stand for: imports resolved, statements carried out, every use checked.

Nothing is lowered here; the expressions stay as they were parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources

from converters.constraint import JsonValue
from converters.errors import InvalidSource, Position, UnsupportedFeature
from converters.lark.syntax import Document, parse
from converters.lark.tree import (
    LIBRARY,
    Both,
    Call,
    Choice,
    Definition,
    Extend,
    Foreign,
    Ignore,
    Import,
    Json,
    Literal,
    Name,
    Node,
    Not,
    Options,
    Refused,
    Repeat,
    Sequence,
    Span,
    Special,
    Structured,
)
from converters.limits import Budget

COMMON = "common"
"""The one grammar that can be imported from: the `lark` package's `common.lark`."""

_HARMLESS_ATTRIBUTES = ("capture", "temperature")
_NARROWING_ATTRIBUTES = ("lazy", "max_tokens", "stop", "suffix", "stop_capture")
_HARMLESS_OPTIONS = ("no_forcing",)


@dataclass(slots=True)
class Definitions:
    """Rules and terminals by name, what is ignored between tokens, and notes for the caller.

    `skip_once`: the ignored stands at most once in a row (llguidance's `skip_repetition`).
    """

    document: Document
    rules: dict[str, Definition] = field(default_factory=dict)
    terminals: dict[str, Definition] = field(default_factory=dict)
    ignored: list[Ignore] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skip_once: bool = False

    def table(self, definition: Definition | Name) -> dict[str, Definition]:
        """Where a definition of this kind of name is."""
        return self.terminals if definition.is_terminal else self.rules

    def note(self, text: str) -> None:
        """Tell the caller something, once."""
        if text not in self.notes:
            self.notes.append(text)

    def position(self, offset: int) -> Position | None:
        """The place of `offset` in the source."""
        return self.document.position(offset)


def collect(document: Document, budget: Budget) -> Definitions:
    """Carry out the statements of `document` and check every name. Raises InvalidSource and UnsupportedFeature."""
    found = Definitions(document)
    for item in document.items:  # imports first, as Lark does: a definition can extend what is imported further down
        if isinstance(item, Import):
            _import(found, item)
    for item in document.items:
        budget.tick()
        match item:
            case Definition():
                _define(found, item)
            case Ignore():
                found.ignored.append(item)
            case Extend(definition):
                _extend(found, definition)
            case Options(offset):
                _set_options(found, document.blocks[offset], offset)
            case Refused(what, offset):
                raise UnsupportedFeature(f"{what} is not supported", position=found.position(offset))
            case Import():
                pass
    _check_names(found, budget)
    start = found.rules.get("start")
    if start is None or start.params:
        raise InvalidSource("the Lark grammar has no rule 'start'", position=Position.at(document.text, 0))
    return found


def _import(found: Definitions, statement: Import) -> None:
    if statement.path != COMMON:
        what = f"%import from {statement.path!r}" if statement.path else "%import without a grammar to import from"
        raise UnsupportedFeature(
            f"{what} is not supported: only {COMMON} can be imported from", position=found.position(statement.offset)
        )
    library = _library()
    found.terminals.update(library)
    for name, local in statement.names:
        position = found.position(name.offset)
        if _inner(name.name) not in library:
            raise InvalidSource(f"{COMMON} has no terminal {name.name!r}", position=position)
        definition = Definition(local, (), Name(_inner(name.name), LIBRARY), False, (), name.offset)
        if not definition.is_terminal:
            raise InvalidSource(f"a terminal can't be imported under the rule name {local!r}", position=position)
        known = found.terminals.get(local)
        if known is not None and known.body != definition.body:
            raise InvalidSource(f"{local!r} is imported twice, as different terminals", position=position)
        found.terminals[local] = definition


def _inner(name: str) -> str:
    """The name that a terminal of the library has here; no source can write it."""
    return f"{name}.{COMMON}"


@cache
def _library() -> Mapping[str, Definition]:
    """The terminals of the packaged `common.lark`, as if they were defined in a place of their own."""
    text = (resources.files("lark") / "grammars" / f"{COMMON}.lark").read_text(encoding="utf-8")
    items = parse(text, Budget()).items
    return {
        _inner(item.name): replace(item, name=_inner(item.name), body=_moved(item.body), offset=LIBRARY)
        for item in items
        if isinstance(item, Definition)
    }


def _moved(node: Node) -> Node:
    """`node` with the names of the library and without places."""
    match node:
        case Name(name):
            return Name(_inner(name), LIBRARY)
        case Literal(raw):
            return Literal(raw, LIBRARY)
        case Span(first, last):
            return Span(first, last, LIBRARY)
        case Sequence(items):
            return Sequence(tuple(map(_moved, items)))
        case Choice(options):
            return Choice(tuple(map(_moved, options)))
        case Repeat(item, low, high):
            return Repeat(_moved(item), low, high, LIBRARY)
        case _:
            raise AssertionError(f"the library of common terminals has {node}")


def _define(found: Definitions, definition: Definition) -> None:
    table, position = found.table(definition), found.position(definition.offset)
    if definition.name in table:
        first = found.position(table[definition.name].offset)
        where = f", first in line {first.line}" if first else ""
        raise InvalidSource(f"{_kind(definition)} {definition.name!r} is defined more than once{where}", position=position)
    if definition.is_terminal and definition.params:
        raise UnsupportedFeature(f"terminal {definition.name!r} has parameters: only rules can be templates", position=position)
    _check_params(found, definition)
    _check_attributes(found, definition)
    if definition.priority:
        found.note(f"the priority of {_kind(definition)} {definition.name} is ignored")
    table[definition.name] = definition


def _kind(definition: Definition) -> str:
    return "terminal" if definition.is_terminal else "rule"


def _check_params(found: Definitions, definition: Definition) -> None:
    if len(set(definition.params)) < len(definition.params):
        raise InvalidSource(f"template {definition.name!r} has a parameter twice", position=found.position(definition.offset))


def _check_attributes(found: Definitions, definition: Definition) -> None:
    """Attributes of llguidance: those that only tell the caller something are noted, those that change the text are refused."""
    for attribute in definition.attributes:
        if attribute.name in _HARMLESS_ATTRIBUTES:
            found.note(f"the attribute {attribute.name} of rule {definition.name} is ignored")
            continue
        position = found.position(attribute.offset)
        if attribute.name in _NARROWING_ATTRIBUTES:
            raise UnsupportedFeature(f"the attribute {attribute.name} of a rule is not supported", position=position)
        raise InvalidSource(f"unknown attribute {attribute.name!r} of a rule", position=position)


def _extend(found: Definitions, more: Definition) -> None:
    table, position = found.table(more), found.position(more.offset)
    known = table.get(more.name)
    if known is None:
        raise InvalidSource(f"%extend of {_kind(more)} {more.name!r}, which is not defined before", position=position)
    if known.params != more.params:
        raise InvalidSource(f"%extend of {more.name!r} with different parameters", position=position)
    _check_attributes(found, more)
    table[more.name] = replace(known, body=Choice((more.body, known.body)))


def _set_options(found: Definitions, options: JsonValue, offset: int) -> None:
    """`%llguidance {…}`; several statements are merged, the last one wins."""
    assert isinstance(options, Mapping)
    for name, value in options.items():
        match name, value:
            case _, _ if name in _HARMLESS_OPTIONS and isinstance(value, bool):
                found.note(f"the option {name} of %llguidance is ignored")
            case "skip_repetition", "once" | "repeat":
                found.skip_once = value == "once"
            case "allow_invalid_utf8", False:
                pass
            case _:
                raise UnsupportedFeature(f"the option {name} of %llguidance is not supported", position=found.position(offset))


def _check_names(found: Definitions, budget: Budget) -> None:
    """Every name that is used must be defined, with the right number of arguments, and terminals hold no rules."""
    for definition in [*found.rules.values(), *found.terminals.values()]:
        for param in definition.params:
            if param in found.rules:
                raise InvalidSource(
                    f"the parameter {param!r} of template {definition.name!r} is the name of a rule",
                    position=found.position(definition.offset),
                )
        _check_body(found, definition.body, definition, budget)
    for ignore in found.ignored:
        _check_body(found, ignore.body, Definition("%IGNORE", (), ignore.body, False, (), ignore.offset), budget)


def _check_body(found: Definitions, body: Node, owner: Definition, budget: Budget) -> None:
    in_terminal = owner.is_terminal or owner.name == "%IGNORE"
    where = owner.name.lower() if owner.name == "%IGNORE" else f"{_kind(owner)} {owner.name!r}"
    for node in walk(body):
        budget.tick()
        match node:
            case Name(name, offset) if name not in owner.params:
                definition = found.table(node).get(name)
                if definition is None:
                    what = "terminal" if node.is_terminal else "rule"
                    raise InvalidSource(
                        f"{what} {name!r} is used but not defined (in {where})", position=found.position(offset)
                    )
                if in_terminal and not node.is_terminal:
                    raise InvalidSource(f"rule {name!r} is used inside {where}", position=found.position(offset))
                if definition.params:
                    raise InvalidSource(f"template {name!r} is used without arguments", position=found.position(offset))
            case Call(name, args, offset):
                _check_call(found, name, len(args), owner, in_terminal, found.position(offset))
            case Special(text, offset) if in_terminal:
                raise InvalidSource(f"the token {text} can't stand inside a terminal", position=found.position(offset))
            case Foreign(what, offset):
                raise UnsupportedFeature(f"{what} is not supported", position=found.position(offset))
            case Not(offset=offset) if not in_terminal:
                raise InvalidSource("the operator ~ (not) is for terminals only", position=found.position(offset))
            case Both() if not in_terminal:
                raise InvalidSource(f"the operator & is for terminals only (in {where})", position=found.position(owner.offset))
            case Json(offset) if in_terminal:
                raise InvalidSource("%json can't stand inside a terminal", position=found.position(offset))
            case _:
                pass


def _check_call(
    found: Definitions, name: str, n_args: int, owner: Definition, in_terminal: bool, position: Position | None
) -> None:
    if name in owner.params:
        raise UnsupportedFeature(f"the template parameter {name!r} is used as a template itself", position=position)
    template = found.rules.get(name)
    if template is None or not template.params:
        raise InvalidSource(f"template {name!r} is used but not defined", position=position)
    if in_terminal:
        raise InvalidSource(f"template {name!r} is used inside terminal {owner.name!r}", position=position)
    if n_args != len(template.params):
        raise InvalidSource(f"template {name!r} takes {len(template.params)} arguments, not {n_args}", position=position)


def walk(node: Node) -> Iterator[Node]:
    """`node` and everything below it."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        match node:
            case Sequence(items) | Both(items):
                todo.extend(items)
            case Choice(options):
                todo.extend(options)
            case Repeat(item) | Not(item):
                todo.append(item)
            case Call(args=args):
                todo.extend(args)
            case Literal() | Span() | Name() | Special() | Json() | Structured() | Foreign():
                pass


def names_in(node: Node) -> list[str]:
    """The names that are used in `node`."""
    return [part.name for part in walk(node) if isinstance(part, Name)]
