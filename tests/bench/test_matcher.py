"""How fast the matcher walks, over 100 schemas of the corpus: at most 1 µs a character once warm, 20 µs cold."""

from __future__ import annotations

import gc
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from converters.compile import compile_constraint
from converters.constraint import JsonSchema
from converters.errors import ConversionError
from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import Matcher

CORPUS = Path(__file__).parents[3] / "shared" / "data" / "maskbench-dev.jsonl.gz"
N_GRAMMARS = 100

pytestmark = [pytest.mark.bench, pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not here")]


def compiled_schemas(n: int) -> Iterator[tuple[str, bytes]]:
    """The first `n` schemas that compile: text and tables."""
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        for line in lines:
            try:
                compiled = compile_constraint(JsonSchema(json.loads(line)["schema"]))
            except ConversionError:
                continue
            yield compiled.gbnf, compiled.tables
            n -= 1
            if not n:
                return


def walk_us(matcher: Matcher, texts: list[str]) -> float:
    started = time.perf_counter()
    for text in texts:
        assert matcher.accepts(text)
    return (time.perf_counter() - started) * 1e6


def test_walking_is_a_look_up_a_character() -> None:
    rng = Random(1)
    cold = warm = load = parse = 0.0
    n_chars = 0
    for gbnf, tables in compiled_schemas(N_GRAMMARS):
        writer = Matcher.from_tables(tables)
        texts = [writer.random_sentence(rng, 400) for _ in range(5)]
        gc.collect()  # what the last grammar left counts for neither
        started = time.perf_counter()
        matcher = Matcher.from_tables(tables)
        load += time.perf_counter() - started
        started = time.perf_counter()
        parse_gbnf(gbnf)
        parse += time.perf_counter() - started
        n_chars += sum(map(len, texts))
        cold += walk_us(matcher, texts)
        warm += min(walk_us(matcher, texts) for _ in range(3))
    print(f"\ncold {cold / n_chars:.2f} µs, warm {warm / n_chars:.3f} µs a character over {n_chars} characters; ", end="")
    print(f"loading the tables {load / N_GRAMMARS * 1e3:.2f} ms, parsing the text {parse / N_GRAMMARS * 1e3:.2f} ms a grammar")
    assert warm / n_chars <= 1.0
    assert cold / n_chars <= 20.0
    assert load < parse / 5
