"""Soundness over a public corpus of schemas: random sentences of each compiled grammar are valid.

A sample by default; `python -m tests.conformance.test_schema_soundness [STEP [SENTENCES]]` takes every STEP-th schema (1: the
whole corpus) and prints what it finds.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from converters import ConversionError, JsonSchema, compile_constraint
from converters.grammar.match import Matcher
from tests.conformance.schema_judge import Judge
from tests.oracle import Oracle, OracleFailed

CORPUS = Path(__file__).parents[3] / "shared" / "data" / "maskbench-dev.jsonl.gz"
LENGTHS = (20, 100, 300, 800)


def schemas(step: int, offset: int = 0) -> Iterator[dict[str, Any]]:
    """Every `step`-th schema of the corpus."""
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        for i, line in enumerate(lines):
            if i % step == offset:
                yield json.loads(line)


def sentences(entry: dict[str, Any], n: int) -> tuple[str, list[str]] | None:
    """The grammar of a schema and random sentences of it; None when it is refused."""
    try:
        compiled = compile_constraint(JsonSchema(entry["schema"]))
    except ConversionError:
        return None
    matcher = Matcher.from_tables(compiled.tables)
    rng = random.Random(entry["id"])
    return compiled.gbnf, [matcher.random_sentence(rng, rng.choice(LENGTHS)) for _ in range(n)]


def violations(entry: dict[str, Any], texts: list[str]) -> list[tuple[str, str]]:
    """The sentences that aren't valid, each with the judge's reason."""
    judge = Judge(entry["schema"])
    return [(text, error) for text in texts for error in judge.errors(text)[:1]]


@pytest.mark.conformance
@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not part of the repository")
def test_sentences_are_valid_and_llama_cpp_takes_them(oracle: Oracle) -> None:
    n_compiled = 0
    for entry in schemas(151, 75):
        found = sentences(entry, 10)
        if found is None:
            continue
        gbnf, texts = found
        n_compiled += 1
        assert violations(entry, texts) == [], entry["id"]
        assert all(oracle.accepts(gbnf, texts)), entry["id"]
    assert n_compiled > 40


def refused(oracle: Oracle, gbnf: str, texts: list[str]) -> list[tuple[str, str]]:
    """The sentences that llama.cpp's sampler doesn't take, or not within the oracle's patience."""
    try:
        taken = oracle.accepts(gbnf, texts)
    except OracleFailed as error:
        return [(max(texts, key=len), str(error)[:60])]
    return [(text, "llama.cpp refuses it") for text, is_taken in zip(texts, taken, strict=True) if not is_taken]


def main(step: int, n: int) -> None:
    """Print every violation of the corpus, and how many there were."""
    n_schemas = n_sentences = n_violations = n_refused = n_unjudged = 0
    with Oracle() as oracle:
        for entry in schemas(step):
            found = sentences(entry, n)
            if found is not None:
                bad, not_taken = [], refused(oracle, *found)
                try:
                    bad = violations(entry, found[1])
                except (AttributeError, TypeError) as error:  # the judge trips over words that aren't what its draft says
                    n_unjudged += 1
                    print(entry["id"], "can't be judged", repr(error)[:200], sep="\t", flush=True)
                n_schemas, n_sentences = n_schemas + 1, n_sentences + n
                n_violations, n_refused = n_violations + len(bad), n_refused + len(not_taken)
                for text, reason in (*bad[:2], *not_taken[:2]):
                    print(entry["id"], reason, text[:200], sep="\t", flush=True)
            if n_schemas % 500 == 0:
                print(f"{n_schemas} schemas so far, {n_violations + n_refused} violations", flush=True)
    print(
        f"{n_schemas} schemas, {n_sentences} sentences, {n_violations} violations, {n_refused} that llama.cpp refuses,"
        f" {n_unjudged} schemas can't be judged"
    )


if __name__ == "__main__":
    step, n = (*map(int, sys.argv[1:]), *(1, 20)[len(sys.argv) - 1 :])
    main(step, n)
