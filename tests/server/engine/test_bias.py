"""logit_bias of the whole vocabulary costs no more than one of a few tokens."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from server.engine.backend import Batch
from server.engine.bias import LogitBias
from server.engine.llama import LlamaBackend, NativeCandidates
from server.engine.messages import ModelSpec, Sampling


def test_biases_are_added_where_their_tokens_are() -> None:
    candidates = NativeCandidates(5)
    candidates.fill(np.array([4, 1, 2], dtype=np.int32), np.zeros(5, dtype=np.float32))
    LogitBias(((1, 2.5), (4, -100.0), (3, 7.0)), 5).apply(candidates)
    assert candidates.logits.tolist() == [-100.0, 2.5, 0.0]


def test_a_bias_of_many_tokens_is_quick() -> None:
    n_vocab = 150_000
    candidates = NativeCandidates(n_vocab)
    candidates.fill(np.arange(0, n_vocab, 2, dtype=np.int32), np.zeros(n_vocab, dtype=np.float32))
    stage = LogitBias(tuple((token, -100.0) for token in range(n_vocab)), n_vocab)
    begun = time.monotonic()
    stage.apply(candidates)
    assert time.monotonic() - begun < 0.5
    assert set(candidates.logits.tolist()) == {-100.0}


def test_a_strong_bias_decides_the_draw(tiny_bpe: Path) -> None:
    backend = LlamaBackend(ModelSpec(str(tiny_bpe), n_ctx=64, n_slots=1, n_threads=1))
    batch = Batch()
    batch.add(1, 0, 0, output=True)
    backend.decode(batch)
    sampler = backend.new_sampler(Sampling(logit_bias=((40, 100.0),), repeat_penalty=1.1), 0, None)
    assert sampler.draw(backend.logits(0)) == 40
    sampler.free()
