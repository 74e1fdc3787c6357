"""The matcher and llama.cpp agree on the grammars of corpus schemas, token by token, over the default model's vocabulary."""

from __future__ import annotations

from random import Random

import pytest

from converters.grammar.match import Matcher
from tests.bench.test_matcher import CORPUS, compiled_schemas
from tests.oracle import Oracle

N_GRAMMARS = 150
N_SENTENCES = 6

pytestmark = [pytest.mark.conformance, pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not here")]


def damaged(text: str, rng: Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice('"{}[],:0a\\ é') * rng.randint(0, 1) + text[at + rng.randint(0, 2) :]


def test_on_corpus_schemas(model_oracle: Oracle) -> None:
    rng = Random(5)
    pieces = model_oracle.token_pieces()
    n_sentences = 0
    for gbnf, tables in compiled_schemas(N_GRAMMARS):
        matcher = Matcher.from_tables(tables)
        sentences = [matcher.random_sentence(rng, 150) for _ in range(N_SENTENCES)]
        assert all(matcher.accepts(text) for text in sentences)
        drawn = [*sentences, *(damaged(text, rng) for text in sentences)]
        texts = [text for text, is_spelled in zip(drawn, model_oracle.spellable(drawn), strict=True) if is_spelled]
        mine = [matcher.check(text) for text in texts]
        stops = model_oracle.stops(gbnf, texts)
        assert [stop.accepted for stop in stops] == [verdict.accepted for verdict in mine], gbnf[:2000]
        # llama.cpp stops at the token in which the matcher stops.
        longest = max(map(len, pieces))
        for stop, verdict in zip(stops, mine, strict=True):
            assert stop.offset <= verdict.offset < stop.offset + longest + 1
        n_sentences += len(texts)
    assert n_sentences > 500
