"""Complete outputs over a public corpus of schemas: whatever `max_tokens` is, every reply parses and validates.

The vocabulary is the default model's, its logits are noise: so every way through a grammar is taken, and no time goes into
matrices. `python -m tests.conformance.test_complete_outputs [STEP [OFFSET]]` takes every STEP-th schema and prints problems.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from converters import ConversionError, JsonSchema, compile_constraint
from converters.constraint import Constraint, Tool, ToolCalls
from converters.tools.codecs import CODECS
from converters.tools.parts import ArgumentsDelta, CallEnded, CallStarted, joined
from converters.tools.splitter import Splitter
from server.engine.backend import Batch, Logits, SavedSequence
from server.engine.core import Core
from server.engine.intake import Intake, Refusal
from server.engine.llama import LlamaBackend
from server.engine.messages import EngineRequest, Failed, Finished, ModelSpec, PutGrammar, Sampling, TextChunk
from tests.conformance.schema_judge import Judge
from tests.conformance.test_schema_soundness import CORPUS, schemas
from tests.default_model import default_model_path

EXTRAS = (0, 1, 3, 8, 64)
LONGEST = 400  # tokens; schemas that need more are left out


class NoiseBackend(LlamaBackend):
    """A model that has no idea: every row of logits is noise."""

    random = np.random.default_rng(1)

    def decode(self, batch: Batch) -> None:
        pass

    def logits(self, index: int) -> Logits:
        return (self.random.standard_normal(self.vocabulary.n_tokens) * 4).astype(np.float32)

    def save_sequence(self, seq_id: int) -> SavedSequence:
        return None

    def load_sequence(self, seq_id: int, saved: SavedSequence) -> None:
        pass

    def remove_sequence(self, seq_id: int) -> None:
        pass


class Bench:
    """One request after the other, in this thread."""

    def __init__(self, path: Path) -> None:
        self.backend = NoiseBackend(ModelSpec(str(path), n_ctx=1024, n_slots=1, n_threads=1))
        self.core = Core(self.backend)
        self.intake = Intake(self.backend, SimpleQueue(), lambda message: None)
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    def check(self, row: dict[str, Any]) -> None:
        """Every number of tokens for one schema."""
        try:
            compiled = compile_constraint(self.constraint(row))
        except ConversionError:
            self.counts["not compiled"] += 1
            return
        self.intake._put_grammar(PutGrammar(row["id"], compiled.gbnf, compiled.tables))
        least = self.needed(row["id"])
        if least is None or least > LONGEST:
            self.counts["too long"] += 1
        else:
            self.counts["schemas"] += 1
            judge = Judge(row["schema"])
            for seed, extra in enumerate(EXTRAS):
                self.judge(row, judge, least + extra, seed)
            if least > 1 and self.reply(row["id"], least - 1, 0) != least:
                self.problems.append(f"{row['id']}: {least - 1} tokens aren't refused")
        self.intake._rulings.clear()

    def constraint(self, row: dict[str, Any]) -> Constraint:
        return JsonSchema(row["schema"])

    def errors(self, judge: Judge, text: str) -> list[str]:
        return judge.errors(text)

    def needed(self, key: str) -> int | None:
        return self.intake._ruling(key).cost

    def judge(self, row: dict[str, Any], judge: Judge, n_tokens: int, seed: int) -> None:
        text = self.reply(row["id"], n_tokens, seed)
        self.counts["replies"] += 1
        errors = self.errors(judge, text) if isinstance(text, str) else ["refused"]
        if errors:
            self.problems.append(f"{row['id']} {n_tokens} {seed}: {str(text)[-200:]!r} {errors[0]}")

    def reply(self, key: str, n_tokens: int, seed: int) -> str | int:
        """The text of a reply with at most that many tokens, or how many the refusal says are needed."""
        sampling = Sampling(seed=seed, temperature=1.5)
        try:
            job = self.intake.prepare(EngineRequest(1, (5,), sampling=sampling, grammar_key=key, max_tokens=n_tokens))
        except Refusal as refusal:
            return refusal.detail["n_needed"]
        self.core.add(job)
        text = ""
        while self.core.has_work:
            for event in self.core.step():
                match event:
                    case TextChunk(text=more):
                        text += more
                    case Finished(n_completion_tokens=n_taken, reason=reason):
                        assert n_taken <= n_tokens
                        self.counts[reason.value] += 1
                    case Failed(message=message):
                        text += f" {message}"
        return text


class CallBench(Bench):
    """The schemas as those of tools, whose call is forced."""

    def constraint(self, row: dict[str, Any]) -> Constraint:
        return ToolCalls((Tool("get.it", row["schema"]), Tool("other")), "hermes")

    def errors(self, judge: Judge, text: str) -> list[str]:
        splitter = Splitter(CODECS["hermes"], self.constraint_tools)
        parts = joined([*splitter.feed(text), *splitter.finish()])
        names = {part.index: part.name for part in parts if isinstance(part, CallStarted)}
        if not names or len(names) != sum(isinstance(part, CallEnded) and part.is_whole for part in parts):
            return ["no whole call"]
        arguments = {part.index: part.text for part in parts if isinstance(part, ArgumentsDelta)}
        others = [text for index, text in arguments.items() if names[index] == "other" and text != "{}"]
        given = [judge.errors(text) for index, text in arguments.items() if names[index] == "get.it"]
        return [*others, *(error for errors in given for error in errors)]

    constraint_tools = (Tool("get.it"), Tool("other"))


@pytest.mark.conformance
@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus isn't here")
def test_forced_calls_are_complete(default_model: Path) -> None:
    bench = CallBench(default_model)
    rows = [row for row in schemas(9, offset=2) if row["id"].startswith("BFCL")]
    for row in rows[:50]:
        bench.check(row)
    assert bench.counts["schemas"] >= 45
    assert not bench.problems


@pytest.mark.conformance
@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus isn't here")
def test_replies_are_complete(default_model: Path) -> None:
    bench = Bench(default_model)
    for row in schemas(35, offset=3):
        bench.check(row)
    assert bench.counts["schemas"] >= 200
    assert not bench.problems


if __name__ == "__main__":
    found = Bench(default_model_path())
    for entry in schemas(int(sys.argv[1]) if sys.argv[1:] else 35, int(sys.argv[2]) if sys.argv[2:] else 0):
        found.check(entry)
    print(*found.problems, sep="\n")
    print(dict(found.counts), len(found.problems), "problems")
