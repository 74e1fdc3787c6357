"""The step loop and its scheduler over a scripted model, step by step, without threads."""

from __future__ import annotations

from collections import Counter, defaultdict
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.backend import BackendError
from server.engine.core import Core
from server.engine.intake import Intake, Refusal
from server.engine.messages import (
    EngineEvent,
    EngineRequest,
    Failed,
    FailureKind,
    Finished,
    FinishReason,
    PromptScored,
    PutGrammar,
    Sampling,
    SetBusy,
    Started,
    TextChunk,
)
from server.engine.scheduler import PrefillPace
from tests.draws import draws
from tests.server.engine.fake_backend import FakeBackend, FakeSampler


class Bench:
    """A core over a fake backend, with what came of each request."""

    def __init__(self, backend: FakeBackend | None = None, max_waiting: int = 64) -> None:
        self.backend = backend or FakeBackend()
        self.core = Core(self.backend, max_waiting)
        self.intake = Intake(self.backend, SimpleQueue(), lambda message: None)
        self.events: list[EngineEvent] = []

    def add(self, id: int, prompt: str = "prompt", **fields: Any) -> None:
        fields.setdefault("max_tokens", 8)
        seed = fields.pop("seed", 0)
        self.core.add(self.intake.prepare(EngineRequest(id, prompt, sampling=Sampling(seed=seed), **fields)))

    def step(self) -> tuple[EngineEvent, ...]:
        events = self.core.step()
        self.events.extend(events)
        return events

    def run(self) -> None:
        for _ in range(10_000):
            if not self.core.has_work:
                return
            self.step()
        raise AssertionError("the core doesn't come to an end")

    def text(self, id: int, index: int = 0) -> str:
        chunks = [e for e in self.events if isinstance(e, TextChunk) and (e.id, e.index) == (id, index)]
        return "".join(chunk.text for chunk in chunks)

    def finished(self, id: int) -> list[Finished]:
        return [event for event in self.events if isinstance(event, Finished) and event.id == id]

    def failures(self, id: int) -> list[Failed]:
        return [event for event in self.events if isinstance(event, Failed) and event.id == id]

    def order(self, kind: type) -> list[int]:
        return [event.id for event in self.events if isinstance(event, kind)]

    def is_clean(self) -> bool:
        """Whether nothing is left of any request but prompts in idle slots."""
        idle = self.core._cells.idle
        return set(self.backend.cells) == idle and all(sampler.is_free for sampler in self.backend.samplers)


def script(*texts: str) -> FakeBackend:
    """A backend whose seed i writes the i-th text."""
    return FakeBackend(script=lambda seed: texts[seed % len(texts)])


# ---- one request


def test_a_reply_ends_with_its_end_token() -> None:
    bench = Bench(script("hello"))
    bench.add(1)
    bench.run()
    assert bench.text(1) == "hello"
    (finished,) = bench.finished(1)
    assert (finished.reason, finished.n_completion_tokens, finished.stop_string) == (FinishReason.STOP, 5, None)
    assert isinstance(bench.events[0], Started)
    assert bench.is_clean()


def test_a_reply_ends_at_max_tokens() -> None:
    bench = Bench(script("hello"))
    bench.add(1, max_tokens=3)
    bench.run()
    assert bench.text(1) == "hel"
    assert bench.finished(1)[0].reason is FinishReason.LENGTH


def test_without_max_tokens_a_reply_goes_to_the_end_of_the_slot() -> None:
    bench = Bench()
    bench.add(1, prompt="p" * 60, max_tokens=None)
    bench.run()
    assert bench.finished(1)[0].n_completion_tokens == 4


def test_a_stop_string_ends_a_reply_and_is_no_part_of_it() -> None:
    bench = Bench(script("one two three"))
    bench.add(1, stop=("two", "w"), max_tokens=13)
    bench.run()
    assert bench.text(1) == "one t"
    assert (bench.finished(1)[0].reason, bench.finished(1)[0].stop_string) == (FinishReason.STOP, "w")
    assert bench.is_clean()


def test_markup_is_no_text() -> None:
    bench = Bench(script("a`b"))
    bench.add(1)
    bench.run()
    assert bench.text(1) == "ab"
    assert bench.finished(1)[0].n_completion_tokens == 3


def test_half_characters_are_held_back() -> None:
    bench = Bench(script("é日"))
    bench.add(1)
    bench.run()
    assert [event.text for event in bench.events if isinstance(event, TextChunk)] == ["é", "日"]


def test_the_leading_space_goes_only_where_the_vocabulary_puts_one() -> None:
    for prefix, grammar, expected in ((True, None, "hi"), (False, None, " hi"), (True, " hi", " hi")):
        backend = script(" hi")
        backend.add_space_prefix = prefix
        bench = Bench(backend)
        if grammar:
            bench.intake._put_grammar(PutGrammar("key", grammar))
        bench.add(1, grammar_key="key" if grammar else None)
        bench.run()
        assert bench.text(1) == expected


def test_max_tokens_zero_scores_the_prompt_and_ends() -> None:
    bench = Bench()
    bench.add(1, prompt="abc", max_tokens=0, prompt_logprobs=2, n=2)
    bench.run()
    (scored,) = (event for event in bench.events if isinstance(event, PromptScored))
    assert scored.first_token == (ord("a"), b"a")
    assert [entry and entry.chosen.token for entry in scored.tokens] == [None, ord("b"), ord("c")]
    assert {len(entry.top) for entry in scored.tokens if entry} == {2}
    assert [(f.index, f.reason, f.n_completion_tokens) for f in bench.finished(1)] == [
        (0, FinishReason.LENGTH, 0),
        (1, FinishReason.LENGTH, 0),
    ]
    assert bench.is_clean()


def test_a_scored_prompt_never_asks_for_more_outputs_than_there_are() -> None:
    bench = Bench(FakeBackend(n_ctx_slot=256, n_outputs=8, n_batch=64))
    bench.add(1, prompt="p" * 50, prompt_logprobs=0)
    bench.add(2, prompt="q" * 40, prompt_logprobs=0)
    bench.add(3)
    bench.run()
    assert [len(event.tokens) for event in bench.events if isinstance(event, PromptScored)] == [40, 50]


def test_logprobs_come_with_the_text_they_belong_to() -> None:
    bench = Bench(script("ab-stop"))
    bench.add(1, logprobs=1, stop=("-stop",))
    bench.run()
    chunks = [event for event in bench.events if isinstance(event, TextChunk)]
    assert b"".join(entry.chosen.bytes for chunk in chunks for entry in chunk.logprobs) == b"ab"


# ---- choices


def test_choices_share_the_prompt_and_each_has_its_seed() -> None:
    bench = Bench(script("one", "two", "three"))
    bench.add(1, prompt="a prompt", n=3)
    bench.run()
    assert [bench.text(1, index) for index in range(3)] == ["one", "two", "three"]
    assert sum(position < 8 for batch in bench.backend.batches for position in batch.positions) == 8
    assert bench.order(Started) == [1]
    assert bench.is_clean()


def test_more_choices_than_slots_run_in_turn() -> None:
    bench = Bench(FakeBackend(script=lambda seed: f"text {seed}", n_slots=2))
    bench.add(1, n=7)
    bench.run()
    assert [bench.text(1, index) for index in range(7)] == [f"text {index}" for index in range(7)]
    assert sum(position < 6 for batch in bench.backend.batches for position in batch.positions) == 6
    assert bench.is_clean()


def test_a_wide_request_does_not_starve_others() -> None:
    bench = Bench()
    bench.add(1, n=16)
    bench.step()
    bench.add(2)
    bench.add(3)
    bench.run()
    last_of_first = bench.events.index(bench.finished(1)[-1])
    assert bench.events.index(bench.finished(2)[0]) < last_of_first
    assert bench.events.index(bench.finished(3)[0]) < last_of_first
    assert bench.events.index(bench.finished(2)[0]) < bench.events.index(bench.finished(1)[7])
    assert len(bench.finished(1)) == 16


def test_a_stream_of_narrow_requests_does_not_starve_a_wide_one() -> None:
    bench = Bench(FakeBackend(n_slots=2))
    bench.add(0, n=4)
    for id in range(1, 40):
        bench.add(id)
        for _ in range(4):
            bench.step()
    assert len(bench.finished(0)) == 4


# ---- slots


def test_requests_start_in_order() -> None:
    bench = Bench(FakeBackend(n_slots=2))
    for id in range(6):
        bench.add(id, prompt="p" * (20 - 3 * id))
    bench.run()
    assert bench.order(Started) == list(range(6))


def test_every_slot_has_room_for_a_whole_context() -> None:
    bench = Bench(FakeBackend(n_ctx_slot=32, n_slots=4))
    for id in range(12):
        bench.add(id, prompt="p" * (5 + id), max_tokens=27 - id, n=1 + id % 5)
    bench.run()
    assert all(len(bench.finished(id)) == 1 + id % 5 for id in range(12))
    assert bench.is_clean()


def test_running_sequences_move_together_when_one_between_them_ends() -> None:
    bench = Bench(FakeBackend(script=lambda seed: f"{seed}" * 40))
    for id, max_tokens in enumerate((30, 3, 30, 6)):
        bench.add(id, seed=id, max_tokens=max_tokens)
    bench.run()
    assert [batch.seq_ids for batch in bench.backend.batches[-5:]] == [[0, 1]] * 5
    assert [bench.text(id) for id in range(4)] == ["0" * 30, "1" * 3, "2" * 30, "3" * 6]
    together = [list(dict.fromkeys(batch.seq_ids)) for batch in bench.backend.batches if len(set(batch.seq_ids)) > 1]
    assert all(slots == list(range(len(slots))) for slots in together)


@pytest.mark.parametrize(("n_prompt", "max_tokens"), [(60, 5), (64, None), (65, 0), (1, 64), (100, 1)])
def test_what_can_not_fit_is_refused_before_it_starts(n_prompt: int, max_tokens: int | None) -> None:
    bench = Bench()
    with pytest.raises(Refusal) as refused:
        bench.add(1, prompt="p" * n_prompt, max_tokens=max_tokens)
    assert refused.value.kind is FailureKind.CONTEXT_OVERFLOW
    assert refused.value.detail["n_prompt_tokens"] == n_prompt
    assert refused.value.detail["n_ctx"] == 64


def test_what_just_fits_is_taken() -> None:
    bench = Bench()
    bench.add(1, prompt="p" * 60, max_tokens=4)
    bench.run()
    assert bench.finished(1)[0].n_completion_tokens == 4


def test_waiting_is_bounded() -> None:
    bench = Bench(FakeBackend(n_slots=2), max_waiting=3)
    for id in range(6):
        bench.add(id)
    bench.run()
    assert [failed.kind for failed in bench.failures(5)] == [FailureKind.QUEUE_FULL]
    assert [len(bench.finished(id)) for id in range(6)] == [1, 1, 1, 1, 1, 0]
    assert bench.is_clean()


# ---- prefill


def test_a_long_prompt_is_read_in_chunks_beside_running_sequences() -> None:
    bench = Bench(FakeBackend(n_ctx_slot=512, n_batch=512, token_s=0.001))
    bench.add(1, max_tokens=100)
    bench.step()
    bench.add(2, prompt="p" * 300)
    n_before = len(bench.backend.batches)
    while not bench.finished(2):
        bench.step()
    batches = [batch.seq_ids for batch in bench.backend.batches[n_before:]]
    chunks = [i for i, seq_ids in enumerate(batches) if len(seq_ids) > 2]
    assert len(chunks) > 3
    assert all(0 in batches[i - 1] for i in chunks), "before every chunk the running sequence gets its token"


def test_a_prompt_is_never_cut_so_that_one_token_stands_alone() -> None:
    for n_prompt in range(1, 70):
        bench = Bench(FakeBackend(n_ctx_slot=256, n_outputs=8, n_batch=16, token_s=0))
        for id in range(3):
            bench.add(id, prompt="p" * (n_prompt + id), max_tokens=1, prompt_logprobs=0 if id == 1 else None)
        bench.run()
        for batch in bench.backend.batches:
            is_prompt = batch.positions[-1] < n_prompt + 2
            assert len(batch) > 1 or not is_prompt or n_prompt == 1


@pytest.mark.parametrize("n_batch", [16, 32, 33, 64, 512])
def test_prompts_are_read_side_by_side(n_batch: int) -> None:
    bench = Bench(FakeBackend(n_ctx_slot=4096, n_batch=n_batch))
    bench.add(1, prompt="p" * 3000)
    bench.add(2, prompt="q" * 20)
    bench.run()
    assert bench.order(Finished) == [2, 1]


def test_short_prompts_do_not_keep_a_long_one_from_being_read() -> None:
    bench = Bench(FakeBackend(n_ctx_slot=4096, n_batch=16))
    bench.add(0, prompt="p" * 320, max_tokens=1)
    for id in range(1, 60):
        bench.add(id, prompt=f"{id:02}" + "q" * 14, max_tokens=1)
        bench.step()
    bench.run()
    assert bench.order(Finished).index(0) < 45


def test_prompts_as_long_as_one_another_are_read_in_one_batch() -> None:
    bench = Bench()
    for id, letter in enumerate("abc"):
        bench.add(id, prompt=letter * 12, max_tokens=1, seed=id)
    bench.add(3, prompt="d" * 9, max_tokens=1)
    bench.run()
    assert sorted(sorted(Counter(batch.seq_ids).values()) for batch in bench.backend.batches) == [[9], [12, 12, 12]]
    assert [len(bench.finished(id)) for id in range(4)] == [1, 1, 1, 1]
    assert bench.is_clean()


def test_a_scored_prompt_is_read_alone() -> None:
    bench = Bench()
    for id, letter in enumerate("ab"):
        bench.add(id, prompt=letter * 12, max_tokens=1, prompt_logprobs=0)
    bench.run()
    assert [len(set(batch.seq_ids)) for batch in bench.backend.batches] == [1, 1]
    assert len(bench.order(PromptScored)) == 2


def test_the_pace_follows_the_measured_speed() -> None:
    pace = PrefillPace(n_batch=512)
    for _ in range(30):
        pace.learn(100, 0.05)  # 2000 tokens/s
    assert 120 <= pace.budget(n_decoding=1, n_unread=1) <= 160
    assert 120 <= pace.budget(n_decoding=8, n_unread=4) <= 160
    assert 240 <= pace.budget(n_decoding=2, n_unread=4) <= 320
    assert pace.budget(n_decoding=0, n_unread=1) == 512
    for _ in range(60):
        pace.learn(100, 10.0)
    assert pace.budget(n_decoding=1, n_unread=1) == pace.least


# ---- ends of other kinds


def test_cancel_frees_everything_at_once() -> None:
    bench = Bench()
    bench.add(1, n=6)
    bench.add(2, prompt="p" * 40)
    bench.add(3)
    bench.step()
    for id in (1, 2, 3, 99):
        bench.core.cancel(id)
    assert bench.is_clean()
    assert not bench.core.has_work
    bench.add(4)
    bench.run()
    assert len(bench.finished(4)) == 1


def test_a_failed_decode_fails_only_what_was_in_it() -> None:
    bench = Bench(FakeBackend(fail_at=frozenset({3}), n_slots=2))
    bench.add(1)
    bench.add(2)
    bench.add(3)
    bench.run()
    assert [failed.kind for id in (1, 2) for failed in bench.failures(id)] == [FailureKind.GENERATION_FAILED] * 2
    assert len(bench.finished(3)) == 1
    assert bench.is_clean()


def test_a_failed_copy_fails_only_its_request() -> None:
    bench = Bench(FakeBackend(copies_fail=True))
    bench.add(1, n=2)
    bench.add(2)
    bench.run()
    assert [failed.kind for failed in bench.failures(1)] == [FailureKind.GENERATION_FAILED]
    assert len(bench.finished(2)) == 1
    assert bench.is_clean()


def test_a_grammar_ends_its_reply_and_a_dead_end_fails_that_choice_only() -> None:
    bench = Bench()
    bench.intake._put_grammar(PutGrammar("good", "yes"))
    bench.intake._put_grammar(PutGrammar("bad", "ye?"))
    bench.add(1, grammar_key="good", n=2)
    bench.add(2, grammar_key="bad")
    bench.run()
    assert [bench.text(1, 0), bench.text(1, 1), bench.text(2)] == ["yes", "yes", "ye"]
    assert {(f.reason, f.n_completion_tokens) for f in bench.finished(1)} == {(FinishReason.STOP, 3)}
    (failed,) = bench.failures(2)
    assert (failed.kind, failed.index) == (FailureKind.GENERATION_FAILED, 0)
    assert bench.is_clean()


def test_a_dead_end_can_be_left_without_the_grammar() -> None:
    bench = Bench(script("abcdef"))
    bench.intake._put_grammar(PutGrammar("bad", "ye?"))
    bench.add(1, grammar_key="bad", unconstrained_on_failure=True)
    bench.run()
    assert bench.text(1) == "yecdef"
    assert not bench.failures(1)


def test_refused_grammars_tokens_and_prompts() -> None:
    bench = Bench()
    bench.intake._put_grammar(PutGrammar("refused", "!"))
    for request, kind in (
        (EngineRequest(1, "p", grammar_key="refused"), FailureKind.CONSTRAINT_REJECTED),
        (EngineRequest(1, "p", grammar_key="never sent"), FailureKind.GENERATION_FAILED),
        (EngineRequest(1, (1, 2, 300)), FailureKind.BAD_REQUEST),
        (EngineRequest(1, (-1,)), FailureKind.BAD_REQUEST),
        (EngineRequest(1, "p", sampling=Sampling(logit_bias=((258, 1.0),))), FailureKind.BAD_REQUEST),
    ):
        with pytest.raises(Refusal) as refused:
            bench.intake.prepare(request)
        assert refused.value.kind is kind


def test_an_empty_prompt_begins_with_what_begins_a_text() -> None:
    bench = Bench(script("x"))
    bench.add(1, prompt="")
    bench.run()
    assert bench.backend.batches[0].tokens == [257]


def test_busy_reaches_the_backend() -> None:
    bench = Bench()
    assert bench.core.handle(SetBusy(True))
    assert bench.backend.busy == [True]


# ---- whatever happens


@st.composite
def plans(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    """Steps, additions (prompt length, max_tokens, n) and cancels."""
    n_actions = draw(st.integers(5, 25))
    kinds = st.sampled_from(["add", "add", "step", "step", "cancel"])
    return [
        (draw(kinds), draw(st.integers(1, 40)), draw(st.integers(0, 24)), draw(st.integers(1, 6))) for _ in range(n_actions)
    ]


@draws(15, 60)
def test_every_request_ends_once_and_nothing_is_left(n_draws: int) -> None:
    @settings(deadline=None, max_examples=n_draws)
    @given(plans(), st.integers(1, 4))
    def end(plan: list[tuple[str, int, int, int]], n_slots: int) -> None:
        bench = Bench(FakeBackend(n_slots=n_slots, script=lambda seed: "y" * (seed % 30), n_batch=32), max_waiting=4)
        wanted: dict[int, int] = {}
        cancelled: set[int] = set()
        for id, (action, size, max_tokens, n) in enumerate(plan):
            if action == "add":
                bench.add(id, prompt="p" * size, max_tokens=max_tokens, n=n, seed=id)
                wanted[id] = n
            elif action == "cancel" and wanted:
                victim = sorted(wanted)[size % len(wanted)]
                bench.core.cancel(victim)
                cancelled.add(victim)
            else:
                bench.step()
        bench.run()
        ends: dict[int, list[int]] = defaultdict(list)
        for event in bench.events:
            if isinstance(event, Finished):
                ends[event.id].append(event.index)
        for id, n in wanted.items():
            if bench.failures(id):
                assert not ends[id]
            elif id not in cancelled:
                assert sorted(ends[id]) == list(range(n))
        assert bench.is_clean()

    end()


def test_a_request_is_the_same_alone_and_beside_others() -> None:
    def texts(n_others: int) -> list[str]:
        bench = Bench(script("alpha", "beta", "gamma"))
        bench.add(1, n=3)
        for id in range(2, 2 + n_others):
            bench.add(id, prompt="q" * 30, seed=1)
        bench.run()
        return [bench.text(1, index) for index in range(3)]

    assert texts(0) == texts(5)


def test_later_choices_that_can_not_be_begun_end_their_request_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(FakeBackend(n_slots=3, script=lambda seed: "xxx"))
    bench.add(1, n=6)
    bench.step()

    def fail(self: FakeBackend, seq_id: int, saved: object) -> None:
        raise BackendError("the fake was told to fail")

    monkeypatch.setattr(FakeBackend, "load_sequence", fail)
    bench.run()
    assert [failed.index for failed in bench.failures(1)] == [None]
    bench.add(2)
    bench.run()
    assert len(bench.finished(2)) == 1
    assert bench.is_clean()


def test_a_bug_in_one_choice_s_sampler_ends_that_choice_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.add(1, "broken")
    bench.add(2, "fine")
    broken = bench.core._scheduler.find(1)
    assert broken is not None

    def fail(self: FakeSampler, logits: Any) -> int | None:
        if self is broken.samplers[0]:
            raise OverflowError("too large")
        return draw(self, logits)

    draw = FakeSampler.draw
    monkeypatch.setattr(FakeSampler, "draw", fail)
    bench.run()
    assert [failed.index for failed in bench.failures(1)] == [0]
    assert len(bench.finished(2)) == 1
    assert bench.is_clean()
