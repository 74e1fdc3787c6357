"""A request's constraint on its way to the engine: compiled, logged, its notes and errors put in the caller's terms."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from converters.compile import Compiled, CompileOptions
from converters.constraint import Constraint
from converters.errors import ConversionError, InvalidSource, LimitExceeded, Unsatisfiable, UnsupportedFeature
from server.chat.types import Notice, RequestedConstraint, ToolPlace
from server.errors import ConstraintRejected

logger = logging.getLogger("gramserve.constraint")

MAX_HEADER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class CompileOutcome:
    """A compiled constraint, the key that engines know it by, and whether it came from the cache."""

    key: str
    compiled: Compiled
    is_cached: bool


class ConstraintCompiler(Protocol):
    """Whoever compiles off the event loop, one at a time, with a bounded cache."""

    async def compile(self, constraint: Constraint, options: CompileOptions) -> CompileOutcome:
        """Raises `converters.errors.ConversionError`. Cancelling the wait never harms another's."""

    async def examples(self, outcome: CompileOutcome, n_random: int) -> tuple[str, ...]:
        """The shortest sentence and up to `n_random` others; fewer where there are no more."""


async def compile_requested(compiler: ConstraintCompiler, requested: RequestedConstraint) -> CompileOutcome:
    """Compile, and write the one log line per constrained request. Raises ConstraintRejected in the request's terms."""
    prefix = f"source={requested.source} type={requested.kind}"
    try:
        outcome = await compiler.compile(requested.constraint, requested.options)
    except ConversionError as error:
        rejected = reject(error, requested.param, requested.places, requested.whitespace_param)
        logger.info("%s rejected=%s param=%s", prefix, rejected.code, rejected.param)
        raise rejected from None
    log_outcome(prefix, outcome)
    return in_request(outcome, requested.places)


def log_outcome(prefix: str, outcome: CompileOutcome) -> None:
    """The one log line of a constrained request; `prefix` says where the constraint comes from."""
    stats = outcome.compiled.stats
    cache = "hit" if outcome.is_cached else "miss"
    logger.info("%s compile_ms=%.1f cache=%s rules=%d", prefix, stats.compile_ms, cache, stats.n_rules)


def in_request(outcome: CompileOutcome, places: Sequence[ToolPlace]) -> CompileOutcome:
    """The outcome with what was relaxed in a tool's schema pointed at from the request's root."""
    if not places or not outcome.compiled.relaxed:
        return outcome
    relaxed = tuple(replace(entry, path=_pointer(entry.path, places)) for entry in outcome.compiled.relaxed)
    return replace(outcome, compiled=replace(outcome.compiled, relaxed=relaxed))


def _pointer(path: str, places: Sequence[ToolPlace]) -> str:
    param, rest = _placed(path, "", places)
    return "".join(f"/{step}" for step in re.findall(r"[^.\[\]]+", param)) + rest


def _placed(path: str, param: str, places: Sequence[ToolPlace]) -> tuple[str, str]:
    """A place in the source: a path in the request, and the pointer behind it."""
    number, slash, rest = path.removeprefix("/").partition("/")
    if places and number.isdigit() and int(number) < len(places):
        return places[int(number)].inside(slash + rest)
    return param, path


_CODES: dict[type[ConversionError], str] = {
    InvalidSource: "invalid_constraint",
    UnsupportedFeature: "unsupported_constraint",
    Unsatisfiable: "unsatisfiable_constraint",
    LimitExceeded: "limit_exceeded",
}
_SETTINGS = {"grammar_bytes": "compiled_grammar_bytes", "regex_grammar_bytes": "compiled_regex_bytes"}
"""What the command line calls the compiler's limits whose names a request's limits have too."""


def reject(
    error: ConversionError, param: str, places: Sequence[ToolPlace] = (), whitespace_param: str = "whitespace_pattern"
) -> ConstraintRejected:
    """A compiler's error as one of the request: `param` is extended by the path inside the source.

    With `places`, a path that begins with a number is inside the tool of that number: `/1/parameters`. The options
    have no path in the source: the only one that can be wrong is the pattern of whitespace, of the field `whitespace_param`.
    """
    is_option = error.option is not None
    param, path = (whitespace_param, "") if is_option else _placed(error.path or "", param, places)
    full = param + dotted(path)
    position = f" (line {error.position.line}, column {error.position.column})" if error.position is not None else ""
    limit = f" [{_SETTINGS.get(error.limit, error.limit)} = {error.value:.21g}]" if isinstance(error, LimitExceeded) else ""
    return ConstraintRejected(f"{full}: {error.reason}{position}{limit}", param=full, code=_CODES.get(type(error)))


def dotted(pointer: str) -> str:
    """A JSON pointer as the path that API errors use: "/properties/a/items/0" → ".properties.a.items[0]"."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts)


def constraint_notices(compiled: Compiled, stop: Sequence[str]) -> tuple[Notice, ...]:
    """What the caller should know: what was relaxed, the compiler's notes, and stop strings that may cut a sentence."""
    relaxed = tuple(Notice(f"relaxed: {entry.reason}", entry.path) for entry in compiled.relaxed)
    notes = tuple(Notice(note) for note in compiled.notes)
    cut = Notice("a stop string may end the reply before the constraint is complete")
    return (*relaxed, *notes, *((cut,) if stop else ()))


def encode_notices(notices: Sequence[Notice], max_bytes: int = MAX_HEADER_BYTES) -> str:
    """The value of the X-Constraint-Warnings header: an ASCII JSON list, as many entries as fit and the number of the rest."""
    entries = [{"message": n.message, "path": n.path} if n.path else {"message": n.message} for n in notices]
    for n_kept in range(len(entries), -1, -1):
        n_left_out = len(entries) - n_kept
        tail = [{"message": f"{n_left_out} more"}] if n_left_out else []
        text = json.dumps([*entries[:n_kept], *tail], ensure_ascii=True, separators=(",", ":"))
        if len(text) <= max_bytes:
            return text
    return "[]"
