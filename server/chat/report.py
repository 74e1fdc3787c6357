"""The report of a constraint (spec section 4): what it compiles to, what it costs, what was relaxed, what it lets through."""

from __future__ import annotations

from converters.errors import ConversionError
from server.chat.constraint import CompileOutcome, ConstraintCompiler, compile_requested
from server.chat.types import JsonObject, RequestedConstraint
from server.engine.client import EngineClient
from server.errors import BadRequest

N_RANDOM = 3


async def _check_vocabulary(outcome: CompileOutcome, requested: RequestedConstraint, engine: EngineClient) -> None:
    """Refuse what a request would be refused for: tokens by name or number that the vocabulary doesn't have."""
    await engine.put_grammar(outcome.key, outcome.compiled.gbnf, outcome.compiled.tables)
    try:
        await engine.check_grammar(outcome.key)
    except BadRequest as error:
        error.param = error.param or requested.param
        raise


async def report(
    compiler: ConstraintCompiler, requested: RequestedConstraint, engine: EngineClient | None = None
) -> JsonObject:
    """The report as a JSON object; with `engine`, of a constraint that its model's vocabulary has the tokens for.

    Raises ConstraintRejected.
    """
    outcome = await compile_requested(compiler, requested)
    compiled = outcome.compiled
    if engine is not None:
        await _check_vocabulary(outcome, requested, engine)
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
