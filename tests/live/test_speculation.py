"""Speculation with the default model: exactness, independence of others, a draft model in a whole server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue

import httpx
import pytest

from server.engine.core import Core
from server.engine.drafts import Drafts
from server.engine.intake import Intake
from server.engine.llama import LlamaBackend
from server.engine.messages import EngineRequest, Finished, ModelSpec, Sampling
from server.engine.sequence import Sequence
from tests.live_server import LiveServer
from tests.tiny_models import TinyModel, write_tiny_model

pytestmark = pytest.mark.live

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
TEXT = (
    "The old lighthouse at Cape Marrow was built in 1847 by a Scottish engineer named Alasdair Finch. Its lamp burned whale "
    "oil until 1902, when the keeper, a quiet woman called Ruth Okafor, replaced it with a kerosene mantle."
)
ASKED = [
    *(f"What is the number {number} good for?" for number in range(3)),
    *(f"Repeat this text {number} times: {TEXT}" for number in range(2, 5)),
]
N_TOKENS = 36
Key = tuple[int, int]
Guess = Callable[[Key, int], tuple[int, ...]]


class Recorder(Drafts):
    """Notes what is taken; with `guess`, a function of the choice and of how much it has, guesses by that."""

    def __init__(self, backend: LlamaBackend, guess: Guess | None) -> None:
        super().__init__(backend, is_on=True)
        self.guess = guess
        self.tokens: dict[Key, list[int]] = {}

    def take(self, sequence: Sequence, token: int) -> None:
        self.tokens.setdefault((sequence.job.id, sequence.index), []).append(token)
        super().take(sequence, token)

    def propose(self, sequences: Iterable[Sequence]) -> None:
        if self.guess is None:
            super().propose(sequences)
            return
        for sequence in sequences:
            if not sequence.draft and sequence.can_decode:
                key = sequence.job.id, sequence.index
                sequence.draft = self.guess(key, len(self.tokens[key]))
                sequence.n_drafted += len(sequence.draft)


class Run:
    """Requests with each kind of sampling, decoded together; whose every choice goes on to its last token."""

    def __init__(
        self, backend: LlamaBackend, ids: Iterable[int], *, guess: Guess | None = None, is_greedy: bool = False
    ) -> None:
        core, intake = Core(backend), Intake(backend, SimpleQueue(), lambda message: None)
        core._drafts = recorder = Recorder(backend, guess)
        for id in ids:
            sampling = Sampling(seed=id, temperature=0.8 if id % 3 else 0.0, repeat_penalty=1.0 + 0.1 * (id % 2))
            sampling = Sampling(temperature=0.0) if is_greedy else sampling
            request = EngineRequest(id, CHAT.format(ASKED[id]), n=1 + id % 2, max_tokens=N_TOKENS, sampling=sampling)
            core.add(intake.prepare(request))
        self.ends: list[Finished] = []
        while core.has_work:
            self.ends += [event for event in core.step() if isinstance(event, Finished)]
        self.tokens = recorder.tokens
        self.n_drafted = sum(end.n_drafted_tokens for end in self.ends)
        self.n_accepted = sum(end.n_accepted_tokens for end in self.ends)

    def counts(self, id: int) -> list[tuple[int, int, int]]:
        return sorted((end.index, end.n_drafted_tokens, end.n_accepted_tokens) for end in self.ends if end.id == id)


@pytest.fixture(scope="module")
def backend(default_model: Path) -> LlamaBackend:
    return LlamaBackend(ModelSpec(str(default_model), n_ctx=512, n_slots=4, n_threads=1))


def test_whatever_is_guessed_the_tokens_are_the_same(backend: LlamaBackend) -> None:
    """Where each decode has at least two tokens llama.cpp's sums are the same bits, and so must the tokens be: all but the
    last one, which nothing may be guessed after."""
    wrong = Run(backend, range(6), guess=lambda key, n_taken: (7,) if n_taken < N_TOKENS - 1 else ())
    assert wrong.n_accepted <= 2

    def mixed(key: Key, n_taken: int) -> tuple[int, ...]:
        right = wrong.tokens[key][n_taken : n_taken + 1 + hash((key, n_taken)) % 6]
        spoilt = [7 if hash((key, n_taken, place)) % 5 == 0 else token for place, token in enumerate(right)]
        return tuple(spoilt or [7])[: max(0, N_TOKENS - 1 - n_taken)]

    right = Run(backend, range(6), guess=mixed)
    assert right.n_accepted > 100
    assert {key: tokens[:-1] for key, tokens in right.tokens.items()} == {
        key: tokens[:-1] for key, tokens in wrong.tokens.items()
    }


def test_a_text_is_the_same_alone_and_beside_others(backend: LlamaBackend) -> None:
    together = Run(backend, range(6))
    assert together.n_accepted > 20
    for id in range(6):
        alone = Run(backend, [id])
        assert alone.counts(id) == together.counts(id)
        assert alone.tokens.items() <= together.tokens.items()


def test_the_model_as_its_own_draft(default_model: Path) -> None:
    """At costs at which that pays. With temperature 0 it is right but for last bits, alone and beside others."""
    path = str(default_model)
    backend = LlamaBackend(ModelSpec(path, n_ctx=512, n_slots=4, n_threads=1, draft_path=path))
    assert backend.draft is not None
    backend.decode_cost, backend.draft.share = 20.0, 0.02
    together = Run(backend, range(6), is_greedy=True)
    assert together.n_accepted > 0.9 * together.n_drafted > 100
    for id in (0, 1):
        alone = Run(backend, [id], is_greedy=True)
        assert alone.counts(id) == together.counts(id)
        assert alone.tokens.items() <= together.tokens.items()


def counters(server: LiveServer) -> dict[str, float]:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("gramserve_tokens")}


def test_a_server_whose_model_has_a_draft(tmp_path: Path) -> None:
    target = TinyModel(n_layers=24, chat_template="{% for m in messages %}{{ m.content }}{% endfor %}")
    write_tiny_model(tmp_path / "large.gguf", target)
    write_tiny_model(tmp_path / "small.gguf", TinyModel(seed=2))
    write_tiny_model(tmp_path / "other.gguf", TinyModel(vocabulary="sentencepiece"))
    models = tmp_path / "models.txt"
    models.write_text(
        "large large.gguf draft=small parallel=1\nsmall small.gguf\nodd large.gguf draft=other\nother other.gguf\n"
    )
    options = ("--models", str(models), "--threads", "1", "--ctx", "1024")
    replies = {}
    for switch in ("--speculation", "--no-speculation"):
        with LiveServer(Path("large"), switch, *options) as server:
            fields = {"max_tokens": 200, "temperature": 0, "ignore_eos": True}
            expected = {"type": "content", "content": "the cat"}
            replies[switch] = [server.chat(**fields), server.chat(**fields, prediction=expected), server.chat(**fields)]
            found = counters(server)
            assert (found["gramserve_tokens_drafted_total"] > 0) == (switch == "--speculation")
            assert found["gramserve_tokens_accepted_total"] <= found["gramserve_tokens_drafted_total"]
            reply = httpx.post(
                f"{server.url}/v1/chat/completions", json={"model": "odd", "messages": [{"role": "user", "content": "a"}]}
            )
            assert reply.status_code == (500 if switch == "--speculation" else 200)
            if reply.status_code == 500:
                assert "other.gguf can't draft for" in reply.json()["error"]["message"]
    texts = [[reply["choices"][0]["message"]["content"] for reply in several] for several in replies.values()]
    assert texts[0][0] == texts[0][2]
    assert len(set(texts[1])) == 1
