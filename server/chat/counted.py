"""A compiler whose work is counted: how long, how often the cache had it, how often it was refused."""

from __future__ import annotations

from dataclasses import dataclass

from converters.compile import CompileOptions
from converters.constraint import Constraint
from converters.errors import ConversionError
from server.chat.constraint import CompileOutcome, ConstraintCompiler
from server.metrics import Metrics


@dataclass(frozen=True, slots=True)
class CountedCompiler:
    """A `ConstraintCompiler` around another one."""

    compiler: ConstraintCompiler
    metrics: Metrics

    async def compile(self, constraint: Constraint, options: CompileOptions) -> CompileOutcome:
        try:
            outcome = await self.compiler.compile(constraint, options)
        except ConversionError:
            self.metrics.n_rejected_constraints += 1
            raise
        self.metrics.cache["hit" if outcome.is_cached else "miss"] += 1
        if not outcome.is_cached:
            self.metrics.compile_s.add(outcome.compiled.stats.compile_ms / 1000)
        return outcome

    async def examples(self, outcome: CompileOutcome, n_random: int) -> tuple[str, ...]:
        return await self.compiler.examples(outcome, n_random)
