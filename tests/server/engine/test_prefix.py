"""Prompts that idle slots keep: which slot a request gets, and that its reply is the same bit for bit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import llama_cpp as lib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.backend import Batch
from server.engine.core import Core, Inbox
from server.engine.intake import Intake
from server.engine.llama import LlamaBackend
from server.engine.messages import EngineRequest, ModelSpec, Sampling, Shutdown, Started, TextChunk
from server.engine.prefix import Prefixes, n_reusable
from tests.draws import draws
from tests.server.engine.fake_backend import FakeBackend

LONG = tuple(range(100))


def test_which_slot() -> None:
    prefixes = Prefixes()
    assert prefixes.choose(LONG, [0, 1]) == 0
    prefixes.keep(0, LONG[:50])
    prefixes.keep(2, LONG[:80])
    assert prefixes.choose(LONG, [0, 1, 2]) == 2
    assert prefixes.choose(LONG, [0, 1]) == 0
    assert prefixes.choose((7, *LONG), [0, 1, 2]) == 1, "an empty one"
    assert prefixes.choose((7, *LONG), [0, 2]) == 0, "the one that was used longest ago"
    assert prefixes.choose(LONG[:10], [0, 1, 2]) == 1, "too little in common"
    assert prefixes.choose((*LONG[:20], *LONG), [0, 1, 2]) == 1, "20 of 50 or 80 tokens can be copied"
    assert prefixes.choose((*LONG[:20], *LONG), [0, 2]) == 0
    assert prefixes.find((*LONG[:60], *LONG)) == (2, 60)
    assert prefixes.find((*LONG[:10], *LONG))[1] == 0
    assert not prefixes.keep(1, LONG[:80])
    assert not prefixes.keep(1, LONG[:15])
    assert prefixes.take(2, LONG) == 80
    assert prefixes.take(2, LONG) is None
    assert prefixes.take(0, LONG[:50]) == 48, "two tokens are read where the logits are not known"
    assert prefixes.slots == frozenset()


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_what_two_prompts_have_in_common(n_same: int, n_held: int, n_asked: int) -> None:
    held, prompt = LONG[:n_same] + (-1,) * n_held, LONG[:n_same] + (-2,) * n_asked
    expected = min(n_same, len(prompt) - 2)
    assert n_reusable(held, prompt) == (expected if expected >= 16 else 0)


class Bench:
    def __init__(self, backend: LlamaBackend | FakeBackend) -> None:
        self.core = Core(backend)
        self.intake = Intake(backend, SimpleQueue(), lambda message: None)
        self.n_cached: dict[int, int] = {}
        self.texts: dict[int, str] = {}

    def add(self, id: int, prompt: tuple[int, ...], n: int = 1, max_tokens: int = 24) -> None:
        request = EngineRequest(id, prompt, n=n, max_tokens=max_tokens, sampling=Sampling(seed=4, temperature=1.0))
        self.core.add(self.intake.prepare(request))

    def run(self) -> None:
        while self.core.has_work:
            self.step()

    def step(self) -> None:
        for event in self.core.step():
            match event:
                case Started(id=id, n_cached_tokens=n_cached):
                    self.n_cached[id] = n_cached
                case TextChunk(id=id, index=0, text=text):
                    self.texts[id] = self.texts.get(id, "") + text


@pytest.fixture(scope="module")
def backend(tiny_bpe: Path) -> LlamaBackend:
    return LlamaBackend(ModelSpec(str(tiny_bpe), n_ctx=512, n_threads=1))


def alone(backend: LlamaBackend, prompt: tuple[int, ...]) -> str:
    """The reply of a model that holds nothing."""
    for slot in range(backend.info.n_slots):
        backend.remove_sequence(slot)
    bench = Bench(backend)
    bench.add(1, prompt)
    bench.run()
    for slot in range(backend.info.n_slots):
        backend.remove_sequence(slot)
    return bench.texts.get(1, "")


@draws(4, 12)
def test_a_reply_is_the_same_whatever_the_slots_hold(n_draws: int, backend: LlamaBackend) -> None:
    @settings(max_examples=n_draws, deadline=None)
    @given(data=st.data())
    def reply(data: st.DataObject) -> None:
        base = tuple((7 * i + 3) % 200 for i in range(120))
        cuts = data.draw(st.lists(st.integers(1, 120), min_size=2, max_size=6))
        prompts = [base[:cut] + tuple((11 * i + cut) % 200 for i in range(data.draw(st.integers(1, 60)))) for cut in cuts]
        expected = [alone(backend, prompt) for prompt in prompts]
        bench = Bench(backend)
        for i, prompt in enumerate(prompts):
            bench.add(i, prompt, n=data.draw(st.integers(1, 3)))
            for _ in range(data.draw(st.integers(0, 40))):
                bench.step()
            if data.draw(st.integers(0, 4)) == 0:
                bench.core.cancel(99)
        bench.run()
        assert [bench.texts.get(i, "") for i in range(len(prompts))] == expected

    reply()


def test_a_conversation_reads_only_what_is_new(backend: LlamaBackend) -> None:
    bench = Bench(backend)
    prompt = tuple(range(3, 103))
    for turn in range(4):
        bench.add(turn, prompt)
        bench.run()
        assert bench.n_cached[turn] == (0 if turn == 0 else len(prompt) - 20)
        prompt += tuple(range(100, 120))


def test_cancelled_and_short_prompts() -> None:
    bench = Bench(FakeBackend(n_ctx_slot=256))
    bench.add(1, LONG, max_tokens=100)
    for _ in range(6):
        bench.step()
    bench.core.cancel(1)
    bench.add(2, LONG, max_tokens=4)
    bench.add(3, LONG[:5], max_tokens=4)
    bench.run()
    assert bench.n_cached == {1: 0, 2: 100, 3: 0}
    assert bench.core._cells.idle == {0}


def n_read(backend: FakeBackend) -> int:
    """Prompt tokens that went through the model: a sequence that decodes has one in a batch."""
    return sum(n for batch in backend.batches for n in Counter(batch.seq_ids).values() if n > 1)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_the_same_prompt_again_needs_no_reading(n: int) -> None:
    bench = Bench(FakeBackend(n_slots=4, n_ctx_slot=256))
    bench.add(1, LONG, max_tokens=4)
    bench.run()
    assert isinstance(bench.core._backend, FakeBackend)
    n_before = n_read(bench.core._backend)
    bench.add(2, LONG, n=n, max_tokens=4)
    bench.add(3, (*LONG[:-1], 7), max_tokens=4)
    bench.run()
    assert n_read(bench.core._backend) == n_before + 2, "of the third request"
    assert bench.n_cached[2] == 100


@pytest.mark.parametrize("n_tokens", [16, 17, 18])
def test_the_same_prompt_again_goes_to_the_slot_that_holds_it(n_tokens: int) -> None:
    """However short it is."""
    bench = Bench(FakeBackend(n_slots=3, n_ctx_slot=256))
    for id in range(4):
        bench.add(id, LONG[:n_tokens], max_tokens=4)
        bench.run()
    assert bench.n_cached == {0: 0, 1: n_tokens, 2: n_tokens, 3: n_tokens}


def test_a_prompt_goes_to_its_own_slot_rather_than_to_a_longer_one() -> None:
    prefixes = Prefixes()
    prefixes.keep(1, LONG[:40], logits=1)
    prefixes.keep(0, LONG[:50], logits=2)
    assert prefixes.choose(LONG[:40], [0, 1]) == 1
    assert prefixes.choose(LONG[:50], [1, 0]) == 0
    assert (prefixes.logits(1, LONG[:40]), prefixes.logits(0, LONG[:40]), prefixes.logits(2, ())) == (1, None, None)


def test_a_flood_of_held_prompts_does_not_keep_a_stream_from_its_decodes() -> None:
    backend = FakeBackend(n_slots=2, n_ctx_slot=256)
    core = Core(backend)
    inbox: Inbox = SimpleQueue()
    intake = Intake(backend, SimpleQueue(), lambda message: None)

    def ask(id: int, prompt: tuple[int, ...], max_tokens: int) -> None:
        inbox.put(intake.prepare(EngineRequest(id, prompt, max_tokens=max_tokens, sampling=Sampling(seed=4))))

    ask(1, LONG, 1)
    ask(2, (5, *LONG), 100)
    for id in range(3, 503):
        ask(id, LONG, 1)
    inbox.put(Shutdown())
    n_events: list[int] = []
    core.run(inbox, lambda output: n_events.append(len(output.events)))
    assert len(backend.batches) > 8
    assert max(n_events) < 120


def test_the_same_prompt_again_is_answered_before_the_next_decode() -> None:
    """But requests that come one after another, and need none, don't keep others from theirs."""
    backend = FakeBackend(n_slots=2, n_ctx_slot=256)
    bench = Bench(backend)
    bench.add(1, LONG, max_tokens=4)
    bench.run()
    bench.add(9, (5, *LONG), max_tokens=100)
    bench.step()
    n_decodes = len(backend.batches)
    for id in range(10, 20):
        bench.add(id, LONG, max_tokens=1)
        bench.step()
        assert id in bench.texts
    assert len(backend.batches) >= n_decodes + 5


@pytest.mark.parametrize("n", [1, 2, 6])
def test_the_same_prompt_again_has_the_same_replies(backend: LlamaBackend, n: int) -> None:
    """Also where the first request still runs, and has more choices than there are slots."""
    prompt = tuple(range(3, 103))
    expected = alone(backend, prompt)
    bench = Bench(backend)
    for id, n_steps in ((1, 200), (2, 3), (3, 200)):
        bench.add(id, prompt, n=n)
        for _ in range(n_steps):
            bench.step()
    bench.run()
    assert bench.texts == {1: expected, 2: expected, 3: expected}
    assert bench.n_cached[2] == len(prompt)
    assert bench.core._cells.idle


def test_requests_that_come_together_read_what_they_have_in_common_once() -> None:
    backend = FakeBackend(n_ctx_slot=256, n_slots=8, n_batch=16)
    bench = Bench(backend)
    for id in range(8):
        bench.add(id, (*LONG, *range(id, id + 10)), n=1 + id % 2, max_tokens=5)
    bench.run()
    assert [bench.n_cached[id] for id in range(8)].count(0) == 1
    assert [bench.n_cached[id] for id in range(8)].count(100) >= 6
    assert n_read(backend) == 110 + 7 * 10


def test_a_beginning_is_copied_from_a_running_request_and_from_an_idle_slot() -> None:
    bench = Bench(FakeBackend(n_ctx_slot=256, n_slots=3))
    bench.add(1, LONG, max_tokens=150)
    for _ in range(9):
        bench.step()
    bench.add(2, (*LONG[:90], 7, 7, 7), max_tokens=5)
    for _ in range(20):
        bench.step()
    bench.add(3, (*LONG[:90], 7, 8, 8), max_tokens=5)
    bench.add(4, (*LONG[:40], 9, 9, 9), max_tokens=5)
    bench.run()
    assert bench.n_cached == {1: 0, 2: 90, 3: 91, 4: 40}


def test_a_request_waits_no_longer_for_another_than_it_would_read() -> None:
    bench = Bench(FakeBackend(n_ctx_slot=4096, n_batch=32))
    bench.add(1, (*LONG, *((3,) * 2000)))
    bench.step()
    bench.add(2, (*LONG, 5, 5))
    n_steps = 0
    while bench.texts.get(2, "") == "":
        bench.step()
        n_steps += 1
    assert n_steps < 8
    assert bench.texts.get(1, "") == ""


def test_requests_do_not_wait_for_what_a_slot_holds_already() -> None:
    """Only a little more than that would be read for them: they read side by side."""
    backend = FakeBackend(n_ctx_slot=256, n_slots=8)
    bench = Bench(backend)
    bench.add(1, LONG, max_tokens=1)
    bench.run()
    backend.batches.clear()
    for id in range(2, 6):
        bench.add(id, (*LONG, 7, 7, 7, *range(id, id + 9)), max_tokens=1)
    bench.run()
    assert [bench.n_cached[id] for id in range(2, 6)] == [100] * 4
    assert [sorted(Counter(batch.seq_ids).values()) for batch in backend.batches] == [[12] * 4]


def test_a_request_whose_leader_is_cancelled_reads_for_itself() -> None:
    bench = Bench(FakeBackend(n_ctx_slot=4096, n_batch=32))
    bench.add(1, LONG)
    bench.add(2, (*LONG, 5, 5))
    bench.step()
    bench.core.cancel(1)
    bench.run()
    assert bench.texts[2]
    assert bench.n_cached[2] == 0


def test_copies_that_fail_cost_only_the_reading() -> None:
    bench = Bench(FakeBackend(n_ctx_slot=256, copies_fail=True))
    bench.add(1, LONG, max_tokens=100)
    for _ in range(9):
        bench.step()
    bench.add(2, (*LONG[:90], 7, 7, 7), max_tokens=5)
    bench.run()
    assert bench.n_cached == {1: 0, 2: 0}
    assert bench.texts[2] == "xxxxx"


@pytest.mark.parametrize("n_gpu_layers", [0, -1])
def test_logits_do_not_depend_on_chunks(tiny_bpe: Path, n_gpu_layers: int) -> None:
    """-1 is what `serve` loads with: without a GPU it must be the same as 0."""
    if n_gpu_layers and lib.llama_supports_gpu_offload():
        pytest.skip("not promised on a GPU")
    backend = LlamaBackend(ModelSpec(str(tiny_bpe), n_ctx=512, n_threads=1, n_gpu_layers=n_gpu_layers))
    assert {_last_logits(backend, n) for n in (200, 198, 100, 67, 33, 2)} == {_last_logits(backend, 200)}


def test_flash_attention_is_on_where_it_is_asked_for(tiny_bpe: Path) -> None:
    """On a CPU it makes other sums of the same attention."""
    if lib.llama_supports_gpu_offload():
        pytest.skip("on a GPU it is on unless it is asked not to be")
    rows = {}
    for wanted in (None, False, True):
        spec = ModelSpec(str(tiny_bpe), n_ctx=512, n_threads=1, flash_attention=wanted)
        rows[wanted] = np.frombuffer(_last_logits(LlamaBackend(spec), 200), dtype=np.float32)
    assert np.array_equal(rows[None], rows[False])
    assert not np.array_equal(rows[True], rows[False])
    assert np.allclose(rows[True], rows[False], atol=0.05)


@pytest.mark.parametrize(
    ("amx", "wanted", "repacks"), [(0, None, True), (1, None, False), (1, True, True), (0, False, False)], ids=str
)
def test_weights_are_not_laid_out_for_amx_unless_that_is_asked_for(
    tiny_bpe: Path, monkeypatch: pytest.MonkeyPatch, amx: int, wanted: bool | None, repacks: bool
) -> None:
    asked = []
    load = lib.llama_model_load_from_file

    def note(path: bytes, params: Any) -> Any:
        asked.append(params.use_extra_bufts)
        return load(path, params)

    monkeypatch.setattr(lib, "llama_model_load_from_file", note)
    monkeypatch.setattr(lib, "llama_print_system_info", lambda: f"CPU : AVX512 = 1 | AMX_INT8 = {amx} | ".encode())
    LlamaBackend(ModelSpec(str(tiny_bpe), n_ctx=512, n_threads=1, repack=wanted))
    assert asked == [repacks]


def _last_logits(backend: LlamaBackend, n_chunk: int) -> bytes:
    """The bits after a prompt of 200 tokens that was read in chunks of this many."""
    backend.remove_sequence(0)
    for start in range(0, 200, n_chunk):
        batch = Batch()
        for position in range(start, min(start + n_chunk, 200)):
            batch.add(position, position, 0, position == 199)
        backend.decode(batch)
    logits = backend.logits(len(batch) - 1)
    assert isinstance(logits, np.ndarray)
    return logits.tobytes()
