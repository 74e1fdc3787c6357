"""Constraints whose shortest answer is longer than any context: refused at once, never written out."""

from __future__ import annotations

import time
from pathlib import Path
from queue import SimpleQueue

import pytest

from converters import Constraint, Gbnf, JsonSchema, Regex, compile_constraint
from server.compile.messages import ExamplesJob, Refused
from server.compile.worker import _answer
from server.engine.intake import Intake, Refusal
from server.engine.llama import LlamaBackend
from server.engine.messages import EngineRequest, FailureKind, ModelSpec, PutGrammar

LONG: dict[str, Constraint] = {
    "gbnf": Gbnf('root ::= (("a"{1000}){1000}){1000}'),
    "string": JsonSchema({"type": "string", "minLength": 10**9, "maxLength": 10**9}),
    "array": JsonSchema({"type": "array", "minItems": 10**6, "items": {"type": "null"}}),
    "regex": Regex("(a{1000}){400}"),
}


@pytest.mark.parametrize("name", LONG)
def test_an_answer_that_fits_no_context_is_refused_soon(name: str, tiny_bpe: Path) -> None:
    compiled = compile_constraint(LONG[name])
    intake = Intake(LlamaBackend(ModelSpec(str(tiny_bpe), n_ctx=256, n_slots=1, n_threads=1)), SimpleQueue(), lambda _: None)
    begun = time.monotonic()
    intake._put_grammar(PutGrammar("key", compiled.gbnf, compiled.tables))
    with pytest.raises(Refusal) as refused:
        intake.prepare(EngineRequest(1, "a", grammar_key="key", max_tokens=10))
    assert refused.value.kind is FailureKind.TOO_FEW_TOKENS
    assert isinstance(_answer(ExamplesJob(compiled.tables, 3)), Refused)
    assert time.monotonic() - begun < 1
    intake.close()
