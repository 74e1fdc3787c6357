"""Speculation with llama.cpp and tiny models: a target, and small models that draft for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from server.engine.core import Core
from server.engine.intake import Intake
from server.engine.llama import LlamaBackend, LoadError
from server.engine.messages import EngineRequest, Finished, ModelSpec, Sampling, TextChunk
from tests.tiny_models import WORDS, TinyModel, write_tiny_model

TARGET = TinyModel(vocabulary="bpe", n_layers=2)
PROMPT = "the cat and the dog is one of two red, a blue world in the list of hello. "


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "target.gguf", TARGET)


def load(target: Path, draft: Path, *, share: float | None = None) -> LlamaBackend:
    """With costs at which guesses pay."""
    backend = LlamaBackend(ModelSpec(str(target), n_ctx=512, n_slots=3, n_threads=1, draft_path=str(draft)))
    backend.decode_cost = 20.0
    assert backend.draft is not None
    backend.draft.share = share or backend.draft.share
    return backend


def requests(n_requests: int, **fields: Any) -> list[EngineRequest]:
    return [
        EngineRequest(
            id,
            (PROMPT * 3)[: 30 + 17 * id],
            n=1 + id % 2,
            max_tokens=40,
            sampling=Sampling(seed=id, temperature=(0.0, 0.5, 1.0)[id % 3], repeat_penalty=(1.0, 1.1)[id % 2]),
            **fields,
        )
        for id in range(n_requests)
    ]


class Outcome:
    """What came of requests that ran together."""

    def __init__(self, backend: LlamaBackend, asked: list[EngineRequest], *, speculates: bool) -> None:
        core, intake = Core(backend, speculates=speculates), Intake(backend, SimpleQueue(), lambda message: None)
        self.texts: dict[tuple[int, int], str] = {}
        self.ends: dict[tuple[int, int], Finished] = {}
        for request in asked:
            core.add(intake.prepare(request))
        while core.has_work:
            for event in core.step():
                match event:
                    case TextChunk(id=id, index=index, text=text):
                        self.texts[id, index] = self.texts.get((id, index), "") + text
                    case Finished(id=id, index=index):
                        self.ends[id, index] = event

    @property
    def n_accepted(self) -> int:
        return sum(end.n_accepted_tokens for end in self.ends.values())

    @property
    def n_drafted(self) -> int:
        return sum(end.n_drafted_tokens for end in self.ends.values())


def counts(outcome: Outcome) -> dict[tuple[int, int], tuple[int, int, int]]:
    return {key: (end.n_completion_tokens, end.n_drafted_tokens, end.n_accepted_tokens) for key, end in outcome.ends.items()}


def test_a_model_that_drafts_for_itself_is_nearly_always_right(target: Path) -> None:
    backend = load(target, target, share=0.01)
    asked = [replace(request, sampling=Sampling(temperature=0.0)) for request in requests(6)]
    plain = Outcome(backend, asked, speculates=False)
    drafted = Outcome(backend, asked, speculates=True)
    assert drafted.texts == plain.texts
    assert drafted.n_accepted >= 0.95 * drafted.n_drafted > 100


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.conformance)])
def test_the_text_is_that_of_the_target(target: Path, tmp_path: Path, seed: int) -> None:
    """With the target's own weights and with others, alone and beside others. The toy's sums are the same bits for one token
    and for several as far as its texts show."""
    small = write_tiny_model(tmp_path / "small.gguf", replace(TARGET, n_layers=1, seed=seed))
    backend = load(target, small, share=0.1)
    asked = requests(12)
    plain = Outcome(backend, asked, speculates=False)
    together = Outcome(backend, asked, speculates=True)
    assert together.n_drafted > 0
    assert together.texts == plain.texts
    for request in asked:
        alone = Outcome(backend, [request], speculates=True)
        assert alone.texts.items() <= together.texts.items()
        assert counts(alone).items() <= counts(together).items()


def test_vocabularies_that_differ_are_an_error_that_names_both(target: Path, tmp_path: Path) -> None:
    cases = {
        "kinds": TinyModel(vocabulary="sentencepiece"),
        "tokens": replace(TARGET, user_defined=tuple(f"<{i}>" for i in range(200))),
        "token": replace(TARGET, words=(*WORDS[1:], "thf")),
    }
    for what, model in cases.items():
        path = write_tiny_model(tmp_path / f"{what}.gguf", model)
        with pytest.raises(LoadError, match=rf"{what}\.gguf can't draft for .*target\.gguf: .*{what}"):
            load(target, path)


def test_a_vocabulary_that_is_only_padded_is_the_same(target: Path, tmp_path: Path) -> None:
    padded = replace(TARGET, n_layers=1, user_defined=tuple(f"<unused{i}>" for i in range(50)))
    outcome = Outcome(load(target, write_tiny_model(tmp_path / "padded.gguf", padded), share=0.1), requests(3), speculates=True)
    assert set(outcome.ends) == {(0, 0), (1, 0), (1, 1), (2, 0)}


def test_a_draft_model_that_can_not_be_loaded(target: Path, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"missing\.gguf"):
        load(target, tmp_path / "missing.gguf")
