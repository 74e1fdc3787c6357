"""The report of a constraint (spec section 4): what it compiles to, what it costs, what was relaxed, what it lets through."""

from __future__ import annotations

from converters.errors import ConversionError
from server.chat.constraint import ConstraintCompiler, compile_requested
from server.chat.types import JsonObject, RequestedConstraint

N_RANDOM = 3


async def report(compiler: ConstraintCompiler, requested: RequestedConstraint) -> JsonObject:
    """The report as a JSON object. Raises ConstraintRejected."""
    outcome = await compile_requested(compiler, requested)
    compiled = outcome.compiled
    try:
        shortest, *others = await compiler.examples(outcome, N_RANDOM)
        examples: JsonObject = {"shortest": shortest, "random": others}
    except ConversionError as error:
        examples = {"shortest": None, "random": [], "examples_error": str(error)}
    return {
        "gbnf": compiled.gbnf,
        "source": requested.source,
        "kind": requested.kind,
        "n_rules": compiled.stats.n_rules,
        "n_states": compiled.stats.n_states,
        "compile_ms": round(compiled.stats.compile_ms, 3),
        "cache": "hit" if outcome.is_cached else "miss",
        "relaxed": [{"path": entry.path, "reason": entry.reason} for entry in compiled.relaxed],
        "notes": list(compiled.notes),
        **examples,
    }
