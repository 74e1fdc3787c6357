"""Dear samplers are made once a request, and none costs more memory than the context needs."""

from __future__ import annotations

import time
from pathlib import Path

from server.engine.llama import LlamaBackend
from server.engine.messages import ModelSpec, Sampling
from server.engine.prototypes import Prototypes


def test_a_sampler_is_made_once_and_the_oldest_is_freed() -> None:
    made: list[str] = []
    freed: list[str] = []
    prototypes: Prototypes[str] = Prototypes(lambda sampler: f"clone of {sampler}", freed.append, n_kept=2)

    def take(key: str) -> str:
        return prototypes.take(key, lambda: made.append(key) or key)  # type: ignore[func-returns-value]

    assert [take(key) for key in "aabac"] == [f"clone of {key}" for key in "aabac"]
    assert (made, freed) == ([*"abc"], ["b"])


def test_many_choices_with_dry_and_huge_windows_are_soon_ready(tiny_bpe: Path) -> None:
    backend = LlamaBackend(ModelSpec(str(tiny_bpe), n_ctx=64, n_slots=1, n_threads=1))
    most = 2**31 - 1
    sampling = Sampling(
        dry_multiplier=1.0, dry_penalty_last_n=most, dry_allowed_length=most, repeat_penalty=1.1, repeat_last_n=most, top_k=most
    )
    begun = time.monotonic()
    for seed in range(128):
        sampler = backend.new_sampler(sampling, seed, None)
        sampler.accept_prompt((1, 2, 3) * 20)
        sampler.free()
    assert time.monotonic() - begun < 2
