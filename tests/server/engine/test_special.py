"""Long prompts: cut at special tokens they have the same tokens, soon; what can't fit is refused before it is tokenized."""

from __future__ import annotations

import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from server.engine.intake import Intake, Refusal
from server.engine.llama import LlamaBackend
from server.engine.messages import EngineRequest, FailureKind, ModelSpec
from server.engine.special import SpecialCuts
from tests.server.engine.fake_backend import FakeBackend, FakeVocabulary

SPECIALS = ("<a>", "<ab>", "<")
TURN = "<|im_start|>user\nthe cat é\n<|im_end|> \n"


@pytest.mark.parametrize("text", ["", "<a>", "x<a>y", "<a><ab><<a>  ", "x" * 50, "<a>x" * 30, "a<" * 31])
def test_parts_are_the_text_and_begin_with_a_special_token(text: str) -> None:
    parts = list(SpecialCuts(SPECIALS).parts(text, per_part=3))
    assert "".join(parts) == text
    assert all(part.startswith(SPECIALS) for part in parts[1:])


def test_a_text_without_special_tokens_is_one_part() -> None:
    assert list(SpecialCuts(()).parts("<a>" * 9, per_part=2)) == ["<a>" * 9]


@pytest.mark.parametrize("kind", ["tiny_bpe", "tiny_sentencepiece"])
def test_the_tokens_are_those_of_the_whole_text(kind: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(kind)
    vocabulary: Any = LlamaBackend(ModelSpec(str(path), n_ctx=64, n_slots=1, n_threads=1)).vocabulary
    for text in (TURN * 700, "the cat " * 900, "  " + TURN * 300 + " the <|im_end", "<|im_end|>" * 900):
        for add_special in (False, True):
            assert vocabulary.tokenize(text, add_special, True) == vocabulary._tokenize(text, add_special, True)
    begun = time.process_time()  # not the clock: what else the machine does is no fault of the server
    vocabulary.tokenize("<|im_start|>a" * 10_000, True, True)
    assert time.process_time() - begun < 3


def test_a_prompt_that_cannot_fit_is_refused_untokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend()
    intake = Intake(backend, SimpleQueue(), lambda message: None)
    most = backend.info.n_ctx_slot * backend.vocabulary.longest_piece
    monkeypatch.setattr(FakeVocabulary, "tokenize", lambda *_: (1,))
    intake.prepare(EngineRequest(1, "x" * most, max_tokens=1))
    with pytest.raises(Refusal) as refused:
        intake.prepare(EngineRequest(2, "é" * (most // 2 + 1), max_tokens=1))
    assert refused.value.kind is FailureKind.CONTEXT_OVERFLOW
    intake.close()
