"""The one pipeline: constraint in, GBNF out; and the cache in front of it.

    source ─sub-compiler▶ Grammar ─prepare▶ Grammar ─┬print▶ GBNF text
                                                     └build_tables▶ the matcher's tables

Sub-compilers are imported where they are used, so that a choice list doesn't load the schema compiler.
"""

from __future__ import annotations

import gc
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from decimal import Decimal
from threading import Lock

from typing_extensions import assert_never

from converters.ambiguity import with_few_readings
from converters.constraint import AnyJson, Choice, Constraint, Gbnf, JsonSchema, Lark, Regex, StructuralTag, ToolCalls
from converters.errors import InvalidSource, LimitExceeded
from converters.grammar.expr import Expr, Grammar, RuleBook
from converters.grammar.gbnf import print_prepared
from converters.grammar.graft import Embed, graft
from converters.grammar.match import build_tables
from converters.grammar.match.probe import check_sentences
from converters.grammar.passes import prepare, printable
from converters.limits import Budget, Limits
from converters.options import CompileOptions, Relaxation, Whitespace

__all__ = [
    "CompileCache", "CompileOptions", "Compiled", "Relaxation", "Stats", "Whitespace", "cache_key", "compile_constraint",
]  # fmt: skip

_LARGE = 512 * 1024  # bytes; schemas make few readings, but so large a grammar is made of alternatives that overlap


@dataclass(frozen=True, slots=True)
class Stats:
    """What the compile cost and made. `n_states` counts automaton states, 0 where none was built."""

    n_rules: int
    n_states: int
    compile_ms: float


@dataclass(frozen=True, slots=True)
class Compiled:
    """A constraint as llama.cpp takes it: `gbnf` (entry rule `root`), what was relaxed, notes for the caller, cost.

    `tables` are the reference matcher's tables (`converters.grammar.match`), made where the grammar is compiled.
    """

    gbnf: str
    relaxed: tuple[Relaxation, ...]
    notes: tuple[str, ...]
    stats: Stats
    tables: bytes = b""


def compile_constraint(constraint: Constraint, options: CompileOptions | None = None) -> Compiled:
    """`constraint` as a grammar that accepts exactly it.

    Raises a ConversionError (InvalidSource, UnsupportedFeature, Unsatisfiable, LimitExceeded) and nothing else.
    """
    options = options or CompileOptions()
    started = time.perf_counter()
    try:
        with _collector_paused():
            try:
                return _compile(constraint, options, Budget(options.limits), started)
            except LimitExceeded as error:  # its traceback keeps what has grown too large, for the collector to look through
                raise error.with_traceback(None) from error.__cause__
    except (RecursionError, MemoryError) as error:
        raise LimitExceeded("the constraint is nested too deep or too large", limit="nesting", value=200) from error
    except ValueError as error:
        raise InvalidSource(f"the constraint can't be read: {error}") from error


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Trees have no cycles: looking for garbage among them takes a seventh of a compile and finds none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _compile(constraint: Constraint, options: CompileOptions, budget: Budget, started: float) -> Compiled:
    source = _lower(constraint, options, budget)
    prepared = prepare(source.grammar, budget)
    text_form = printable(prepared, budget)
    if _holds_grammar(constraint):
        prepared, text_form = with_few_readings(prepared, text_form, budget)
    gbnf = print_prepared(text_form, budget)
    _check_size(gbnf, constraint, options.limits)
    if len(gbnf) > _LARGE and isinstance(constraint, JsonSchema):
        check_sentences(text_form, budget)
    budget.check_deadline()
    tables = build_tables(prepared, budget)
    budget.check_deadline()
    stats = Stats(len(text_form.rules), budget.n_states, (time.perf_counter() - started) * 1000)
    return Compiled(gbnf, tuple(budget.relaxed), source.notes, stats, tables)


def _holds_grammar(constraint: Constraint) -> bool:
    """True when someone else's grammar decides how ambiguous the result is."""
    if isinstance(constraint, ToolCalls):
        return any(isinstance(tool.input, (Gbnf, Lark)) for tool in constraint.tools)
    return isinstance(constraint, (Gbnf, Lark, StructuralTag))


@dataclass(frozen=True, slots=True)
class _Source:
    """What a sub-compiler made of a constraint."""

    grammar: Grammar
    notes: tuple[str, ...] = ()


def _lower(constraint: Constraint, options: CompileOptions, budget: Budget) -> _Source:
    match constraint:
        case Choice(choices):
            from converters.choice import choice_grammar

            return _Source(choice_grammar(choices, budget))
        case Regex(pattern):
            from converters.regex import regex_grammar

            return _Source(regex_grammar(pattern, budget))
        case JsonSchema() | AnyJson():
            from converters.jsonschema import schema_grammar

            grammar, notes = schema_grammar(constraint, options, budget)
            return _Source(grammar, notes)
        case Gbnf(text):
            from converters.grammar.gbnf_parser import read_gbnf

            grammar, notes = read_gbnf(text)
            return _Source(grammar, notes)
        case Lark(text):
            from converters.lark import lark_grammar

            grammar, notes = lark_grammar(text, options, budget)
            return _Source(grammar, notes)
        case StructuralTag(spec):
            from converters.structural_tag import structural_tag_grammar

            grammar, notes = structural_tag_grammar(spec, options, budget, _embedder(budget))
            return _Source(grammar, notes)
        case ToolCalls():
            from converters.tools.lower import tool_calls_grammar

            grammar, notes = tool_calls_grammar(constraint, options, budget, _embedder(budget))
            return _Source(grammar, notes)
        case _:
            assert_never(constraint)


def _embedder(budget: Budget) -> Embed:
    """Compiles a constraint that stands inside another one, into the book of the outer grammar."""

    def embed(constraint: Constraint, options: CompileOptions, book: RuleBook, hint: str) -> tuple[Expr, tuple[str, ...]]:
        if isinstance(constraint, (JsonSchema, AnyJson)):
            from converters.jsonschema import lower_schema

            return lower_schema(constraint, book, options, budget, hint)
        source = _lower(constraint, options, budget)
        return graft(source.grammar, book, hint), source.notes

    return embed


def _check_size(gbnf: str, constraint: Constraint, limits: Limits) -> None:
    is_regex = isinstance(constraint, Regex)
    limit = limits.regex_grammar_bytes if is_regex else limits.grammar_bytes
    size = len(gbnf) if gbnf.isascii() else len(gbnf.encode())
    if size > limit:
        name = "regex_grammar_bytes" if is_regex else "grammar_bytes"
        what = f"the grammar of the regex {_clip(constraint.pattern)!r}" if isinstance(constraint, Regex) else "the grammar"
        reason = f"{what} has {size} bytes, more than the limit of {limit} ({limit // 1024} KiB)"
        raise LimitExceeded(reason, limit=name, value=limit)


def _clip(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def cache_key(constraint: Constraint, options: CompileOptions | None = None) -> str:
    """A name for the constraint under these options: equal JSON texts (key order and number types included) have equal names.

    Dict equality won't do: in Python `{"const": 1} == {"const": True} == {"const": 1.0}`. Raises InvalidSource for a value
    that has no JSON text.
    """
    parts = [type(constraint).__name__, _fields(constraint), asdict(options or CompileOptions())]
    try:
        text = json.dumps(parts, default=_encode_value)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidSource(f"the constraint is not a JSON value: {error}") from error
    return f"{type(constraint).__name__}-{hashlib.sha256(text.encode()).hexdigest()}"


def _fields(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in getattr(value, "__dataclass_fields__", ())}


def _encode_value(value: object) -> object:
    if isinstance(value, Decimal):
        return {"\0decimal": str(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    if hasattr(value, "__dataclass_fields__"):
        return {"\0type": type(value).__name__, **_fields(value)}
    raise TypeError(f"{type(value).__name__} is not a JSON value")


class CompileCache:
    """Compiled constraints by `cache_key`, the longest unused dropped first. Safe to use from several threads.

    `max_bytes` bounds the sum of the texts and tables kept; something larger than that is never kept.
    """

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.max_bytes = max_bytes
        self.n_bytes = 0
        self._entries: OrderedDict[str, Compiled] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Compiled | None:
        """What is kept under `key`; marks it as used."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: str, compiled: Compiled) -> None:
        """Keep `compiled`, dropping others to make room."""
        size = _size(key, compiled)
        with self._lock:
            if key in self._entries:
                self.n_bytes -= _size(key, self._entries.pop(key))
            if size > self.max_bytes:
                return
            self._entries[key] = compiled
            self.n_bytes += size
            while self.n_bytes > self.max_bytes:
                old_key, old = self._entries.popitem(last=False)
                self.n_bytes -= _size(old_key, old)

    def compile(self, constraint: Constraint, options: CompileOptions | None = None) -> tuple[Compiled, bool]:
        """The compiled constraint, and whether it was kept here already. Raises what `compile_constraint` raises."""
        key = cache_key(constraint, options)
        kept = self.get(key)
        if kept is not None:
            return kept, True
        compiled = compile_constraint(constraint, options)
        self.put(key, compiled)
        return compiled, False


_ENTRY_OVERHEAD = 512


def _size(key: str, compiled: Compiled) -> int:
    texts = [key, *compiled.notes, *(part for relaxed in compiled.relaxed for part in (relaxed.path, relaxed.reason))]
    width = 1 if compiled.gbnf.isascii() else 4
    return len(compiled.gbnf) * width + len(compiled.tables) + 4 * sum(map(len, texts)) + _ENTRY_OVERHEAD
