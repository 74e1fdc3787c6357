"""Forced text: at temperature 0 a reply should be the same with fast-forward and without, and validate.

`python -m tests.conformance.test_fast_forward [N [STEP]] [flash]` takes N schemas of a public corpus with the default model,
and explains every difference: other tokens for the same text before it, a space that the reply's style decided, or other
numbers, since llama.cpp sums a decode of one token otherwise than one of several. With `flash` (flash attention, one thread) it
does not, for weights such as the default model's, so that what differs there is all that is ours.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from converters import ConversionError, JsonSchema, compile_constraint
from server.engine.backend import Logits
from server.engine.core import Core
from server.engine.intake import Intake, Refusal
from server.engine.llama import LlamaBackend
from server.engine.messages import EngineRequest, Failed, Finished, FinishReason, ModelSpec, PutGrammar, Sampling, TextChunk
from server.engine.sequence import Sequence
from tests.conformance.schema_judge import Judge
from tests.conformance.test_schema_soundness import CORPUS, schemas
from tests.default_model import default_model_path

PROMPT = "<|im_start|>user\nWrite an example of this schema in JSON:\n{}<|im_end|>\n<|im_start|>assistant\n"
N_SHOWN = 1000  # characters of the schema
N_TOKENS = 160

FEW: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 20},
            "class": {"enum": ["warrior", "mage", "rogue"]},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
        },
        "required": ["name", "class", "age"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": ["red", "green", "blue", None, True]}, "minItems": 3, "maxItems": 3},
    {
        "type": "object",
        "properties": {f"measurement_{i}": {"type": "boolean"} for i in range(5)},
        "required": [f"measurement_{i}" for i in range(5)],
        "additionalProperties": False,
    },
    {"const": {"a fixed text": ["with", {"nothing": "free"}], "日本": 1}},
    {"type": "array", "prefixItems": [{"const": "x"}, {"type": "string", "pattern": "^[a-c], ?[0-9]$"}], "items": False},
]


class RecordingCore(Core):
    """Notes every token that is taken."""

    tokens: list[int]

    def _accept(self, sequence: Sequence, token: int, logits: Logits | None) -> None:
        self.tokens.append(token)
        super()._accept(sequence, token, logits)


@dataclass
class Reply:
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    n_forced: int = 0
    is_cut: bool = False


class Bench:
    """One request after the other, with and without fast-forward."""

    def __init__(self, path: Path, n_threads: int | None = None, flash_attention: bool | None = None) -> None:
        n_batch = 32 if flash_attention else 512  # chunks of 64 tokens and more have other sums with flash attention
        spec = ModelSpec(
            str(path), n_ctx=1024, n_slots=1, n_threads=n_threads, n_batch=n_batch, flash_attention=flash_attention
        )
        self.backend = LlamaBackend(spec)
        self.core = RecordingCore(self.backend)
        self.intakes = {on: Intake(self.backend, SimpleQueue(), lambda message: None, fast_forward=on) for on in (True, False)}

    def reply(self, schema: object, on: bool) -> Reply:
        """The greedy reply. Raises Refusal where none has room."""
        prompt = PROMPT.format(json.dumps(schema)[:N_SHOWN])
        request = EngineRequest(1, prompt, grammar_key="key", max_tokens=N_TOKENS, sampling=Sampling(temperature=0))
        job = self.intakes[on].prepare(request)
        reply = Reply()
        self.core.tokens = reply.tokens
        self.core.add(job)
        while self.core.has_work:
            for event in self.core.step():
                match event:
                    case TextChunk(text=text):
                        reply.text += text
                    case Failed(message=message):
                        reply.failures.append(message)
                    case Finished(n_forced_tokens=n_forced, reason=reason):
                        reply.n_forced, reply.is_cut = n_forced, reason is FinishReason.LENGTH
        return reply

    def both(self, schema: Any) -> tuple[Reply, Reply] | None:
        """The replies with fast-forward and without; None where the schema isn't taken."""
        try:
            compiled = compile_constraint(JsonSchema(schema))
            for intake in self.intakes.values():
                intake._rulings.clear()
                intake._put_grammar(PutGrammar("key", compiled.gbnf, compiled.tables))
            return self.reply(schema, True), self.reply(schema, False)
        except (ConversionError, Refusal):
            return None

    def explanation(self, on: Reply, off: Reply) -> str:
        """Why two texts differ."""
        n_same = next((i for i, (a, b) in enumerate(zip(on.text, off.text, strict=False)) if a != b), None)
        if n_same is None:
            return "cut elsewhere" if on.is_cut or off.is_cut else "unexplained"
        before = len(on.text[:n_same].encode())
        if list(self._ends(on.tokens, before)) != list(self._ends(off.tokens, before)):
            return "other tokens"
        if " " in (on.text[n_same], off.text[n_same]) and on.text[n_same - 1] in ",:":
            return "spacing"
        return "other numbers"

    def _ends(self, tokens: Iterable[int], n_bytes: int) -> Iterator[int]:
        """Where the tokens of the first `n_bytes` end."""
        end = 0
        for token in tokens:
            end += len(self.backend.vocabulary.piece(token))
            if end > n_bytes:
                return
            yield end


def check(bench: Bench, rows: Iterable[Any], n_wanted: int) -> tuple[Counter[str], list[str]]:
    """How the replies to `n_wanted` schemas compare, and what is wrong with any of them."""
    counts: Counter[str] = Counter()
    problems: list[str] = []
    for schema in rows:
        if (replies := bench.both(schema)) is None:
            continue
        on, off = replies
        counts["schemas"] += 1
        counts["tokens"] += len(on.tokens)
        counts["forced"] += on.n_forced
        judge = Judge(schema)
        for reply in replies:
            problems.extend(f"{reply.text!r}: {error}" for error in (*reply.failures, *judge.errors(reply.text)))
        reason = "same" if on.text == off.text else bench.explanation(on, off)
        counts[reason] += 1
        if reason != "same":
            print(f"{reason}:\n  on  {on.text!r}\n  off {off.text!r}")
        if counts["schemas"] == n_wanted:
            break
    return counts, problems


@pytest.mark.conformance
def test_replies_are_the_same_and_validate(default_model: Path) -> None:
    counts, problems = check(Bench(default_model, n_threads=1), FEW, len(FEW))
    print(counts)
    assert not problems
    assert counts["schemas"] == len(FEW)
    assert counts["forced"] > counts["tokens"] // 3
    assert counts["same"] >= len(FEW) - 1
    assert not counts["unexplained"]


def main(n_wanted: int = 100, step: int = 71, *, flash: bool = False) -> None:
    """Prints differences, problems and counts."""
    bench = Bench(default_model_path(), n_threads=1, flash_attention=True) if flash else Bench(default_model_path())
    counts, problems = check(bench, (row["schema"] for row in schemas(step, offset=step // 2)), n_wanted)
    print(*problems, counts, f"{100 * counts['same'] / counts['schemas']:.0f} % the same", sep="\n")


if __name__ == "__main__":
    assert CORPUS.exists(), "the corpus isn't here"
    words = sys.argv[1:]
    main(*(int(word) for word in words if word != "flash"), flash="flash" in words)
