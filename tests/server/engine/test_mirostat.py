"""Mirostat at the ends of its parameters' ranges: never an error, always a candidate left."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from server.engine.backend import Batch
from server.engine.llama import LlamaBackend
from server.engine.messages import ModelSpec, Sampling


@pytest.mark.parametrize(("version", "tau", "eta"), list(itertools.product((1, 2), (0.0, 1000.0), (0.0, 100.0))))
def test_no_parameter_breaks_it(version: int, tau: float, eta: float, tiny_bpe: Path) -> None:
    backend = LlamaBackend(ModelSpec(str(tiny_bpe), n_ctx=64, n_slots=1, n_threads=1))
    batch = Batch()
    batch.add(1, 0, 0, output=True)
    backend.decode(batch)
    logits = backend.logits(0)
    sampler = backend.new_sampler(Sampling(mirostat=version, mirostat_tau=tau, mirostat_eta=eta, temperature=2.0), 0, None)
    for _ in range(40):
        token = sampler.draw(logits)
        assert token is not None
        sampler.accept(token)
    sampler.free()
