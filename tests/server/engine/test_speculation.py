"""Speculation in the step loop: whatever is guessed, the text is what it is without guesses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.backend import Grammar, Logits
from server.engine.core import Core
from server.engine.drafts import Drafts
from server.engine.intake import Intake
from server.engine.messages import (
    EngineEvent,
    EngineRequest,
    Failed,
    Finished,
    FinishReason,
    PutGrammar,
    Sampling,
    TextChunk,
    TokenLogprob,
    TokenLogprobs,
)
from server.engine.sequence import Sequence as Choice
from tests.draws import draws
from tests.server.engine.fake_backend import END, FakeBackend, FakeDraft, FakeSampler

Rule = Callable[[int, tuple[int, ...]], int]
Guess = Callable[[tuple[int, ...]], tuple[int, ...]]


@dataclass(slots=True)
class RuledSampler(FakeSampler):
    """Draws by a rule of its seed, and of the text that the logits are of: which must be the prompt and what was taken."""

    rule: Rule = lambda seed, text: END
    seed: int = 0
    taken: list[int] = field(default_factory=list)
    n_draws: int = 0

    def draw(self, logits: Logits) -> int | None:
        assert logits == (*self.prompt, *self.taken)
        self.n_draws += 1
        return self.rule(self.seed + self.n_draws, (*self.prompt, *self.taken))

    def accept(self, token: int) -> None:
        self.taken.append(token)


@dataclass(slots=True)
class RuledBackend(FakeBackend):
    """A row of logits is the text that it comes after."""

    rule: Rule = lambda seed, text: END

    def logits(self, index: int) -> Logits:
        batch = self.batches[-1]
        assert batch.outputs[index], "logits that weren't asked for"
        return tuple(self.cells[batch.seq_ids[index]][: batch.positions[index] + 1])

    def score(self, logits: Logits, token: int, n_top: int) -> TokenLogprobs:
        entry = TokenLogprob(token, bytes([token]), -float(len(logits)))  # type: ignore[arg-type]
        return TokenLogprobs(entry, (entry,) * n_top)

    def new_sampler(self, sampling: Sampling, seed: int, grammar: Grammar | None) -> FakeSampler:
        sampler = RuledSampler([], rule=self.rule, seed=seed)
        self.samplers.append(sampler)
        return sampler


class Guesses(Drafts):
    """Guesses by a function of the text."""

    def __init__(self, backend: FakeBackend, guess: Guess) -> None:
        super().__init__(backend, is_on=True)
        self.backend = backend
        self.guess = guess

    def propose(self, sequences: Iterable[Choice]) -> None:
        for sequence in sequences:
            if sequence.draft or not sequence.can_decode:
                continue
            text = (*self.backend.cells[sequence.seq_id], *sequence.next_tokens)
            sequence.draft = self.guess(text)[: max(0, min(15, sequence.n_left - 1))]
            sequence.n_drafted += len(sequence.draft)


class Bench:
    def __init__(self, backend: FakeBackend, *, speculates: bool = True, guess: Guess | None = None) -> None:
        self.backend = backend
        self.core = Core(backend, speculates=speculates)
        if guess is not None:
            self.core._drafts = Guesses(backend, guess)
        self.intake = Intake(backend, SimpleQueue(), lambda message: None)
        self.events: list[EngineEvent] = []

    def add(self, id: int, prompt: str, seed: int = 0, **fields: Any) -> None:
        self.core.add(self.intake.prepare(EngineRequest(id, prompt, sampling=Sampling(seed=seed), **fields)))

    def run(self) -> Bench:
        while self.core.has_work:
            self.events.extend(self.core.step())
        idle = self.core._cells.idle
        assert set(self.backend.cells) == idle
        assert all(sampler.is_free for sampler in self.backend.samplers)
        return self

    @property
    def n_draws(self) -> list[int]:
        return [sampler.n_draws for sampler in self.backend.samplers if isinstance(sampler, RuledSampler)]

    def ends(self, id: int = 1) -> list[Finished]:
        return [event for event in self.events if isinstance(event, Finished) and event.id == id]

    def outcome(self, id: int, index: int = 0) -> tuple[object, ...]:
        """All that a client hears of a choice, but for when."""
        chunks = [e for e in self.events if isinstance(e, TextChunk) and (e.id, e.index) == (id, index)]
        text, scores = "".join(c.text for c in chunks), [score for c in chunks for score in c.logprobs]
        ends = [(e.reason, e.n_completion_tokens, e.stop_string) for e in self.ends(id) if e.index == index]
        return text, sum(c.n_tokens for c in chunks), scores, ends


def cyclic(period: int, length: int) -> Rule:
    """Repeats what stood `period` tokens before, and ends when the text has `length` tokens."""
    return lambda seed, text: END if len(text) >= length else text[-period]


@pytest.mark.parametrize(
    ("guess", "n_accepted"),
    [
        (lambda text: tuple(text[-4] if i == 0 else text[-4 + i % 4] for i in range(3)), 30),
        (lambda text: (text[-4], 0, 0), 20),
        (lambda text: (0, 0, 0), 0),
        (lambda text: (), 0),
    ],
    ids=["all", "some", "none", "no guess"],
)
def test_what_is_right_stays_and_what_is_wrong_goes(guess: Guess, n_accepted: int) -> None:
    plain = Bench(RuledBackend(rule=cyclic(4, 64)), speculates=False)
    drafted = Bench(RuledBackend(rule=cyclic(4, 64)), guess=guess)
    for bench in (plain, drafted):
        bench.add(1, "abcd", max_tokens=41)
        bench.run()
    assert drafted.outcome(1) == plain.outcome(1)
    assert drafted.outcome(1)[0] == ("abcd" * 11)[:41]
    end = drafted.ends()[0]
    assert end.reason == FinishReason.LENGTH
    assert end.n_accepted_tokens == n_accepted
    n_decodes = len(drafted.backend.batches) - 1
    assert n_decodes == 40 - n_accepted
    assert end.n_drafted_tokens == sum(max(0, sum(batch.outputs) - 1) for batch in drafted.backend.batches)


RULES = st.builds(
    lambda period, noise, salt: _noisy(period, noise, salt), st.integers(1, 6), st.integers(0, 6), st.integers(0, 1000)
)


def _noisy(period: int, noise: int, salt: int) -> Rule:
    """Mostly repeats itself; `noise` of 20 tokens come from the seed and the text."""

    def rule(seed: int, text: tuple[int, ...]) -> int:
        value = hash((seed, text[-8:], len(text), salt))
        if value % 20 >= noise:
            return text[-period] if len(text) >= period else 97
        return END if value % 23 == 0 else 97 + value % 4

    return rule


@st.composite
def guesses(draw: st.DrawFn) -> Guess | None:
    """Prompt look-up (None), garbage, or what mostly repeats."""
    kind = draw(st.sampled_from(["lookup", "garbage", "mixed"]))
    if kind == "lookup":
        return None
    salt, most = draw(st.integers(0, 1000)), draw(st.integers(0, 15))

    def guess(text: tuple[int, ...]) -> tuple[int, ...]:
        value = hash((salt, text[-5:]))
        n_tokens = value % (most + 1)
        if kind == "garbage":
            return tuple(hash((value, i)) % 258 for i in range(n_tokens))
        period = 1 + value % 6
        found = text[-period:]
        return tuple(found[i % len(found)] for i in range(n_tokens))

    return guess


BEGINNING = "abcdabcaabdabbdcad"  # is kept in slots, and copied between them
REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "prompt": st.text("abcd", min_size=1, max_size=24) | st.text("abcd", min_size=2, max_size=6).map(BEGINNING.__add__),
            "seed": st.integers(0, 50),
            "n": st.integers(1, 3),
            "max_tokens": st.integers(1, 39),
            "stop": st.sampled_from([(), ("bb",), ("abca", "dd")]),
            "logprobs": st.sampled_from([None, 0, 2]),
        }
    ),
    min_size=1,
    max_size=4,
)


@draws(20, 80)
def test_any_guess_leaves_the_text_as_it_is(n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None)
    @given(RULES, guesses(), REQUESTS, st.data())
    def agree(rule: Rule, guess: Guess | None, requests: list[Any], data: st.DataObject) -> None:
        plain = Bench(RuledBackend(rule=rule), speculates=False)
        cost = data.draw(st.sampled_from([1.2, 3.0, 50.0]))
        drafted = Bench(RuledBackend(rule=rule, decode_cost=cost, n_outputs=data.draw(st.sampled_from([16, 64]))), guess=guess)
        for bench in (plain, drafted):
            for id, request in enumerate(requests):
                bench.add(id, **request)
        gone = data.draw(st.integers(0, 2 * len(requests)))
        for _ in range(data.draw(st.integers(0, 12))):
            drafted.events.extend(drafted.core.step())
        drafted.core.cancel(gone)
        plain.run()
        drafted.run()
        for id, request in enumerate(requests):
            if id != gone:
                assert [drafted.outcome(id, i) for i in range(request["n"])] == [
                    plain.outcome(id, i) for i in range(request["n"])
                ]
        if gone >= len(requests):
            assert sorted(drafted.n_draws) == sorted(plain.n_draws), "as many random numbers for each"

    agree()


@draws(8, 30)
def test_how_much_is_guessed_depends_on_the_sequence_alone(n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None)
    @given(RULES, REQUESTS)
    def agree(rule: Rule, requests: list[Any]) -> None:
        together = Bench(RuledBackend(rule=rule))
        for id, request in enumerate(requests):
            together.add(id, **request)
        together.run()
        for id, request in enumerate(requests):
            alone = Bench(RuledBackend(rule=rule))
            alone.add(id, **request)
            alone.run()
            counts = [sorted((e.index, e.n_drafted_tokens, e.n_accepted_tokens) for e in b.ends(id)) for b in (alone, together)]
            assert counts[0] == counts[1]

    agree()


def test_a_text_that_repeats_itself_takes_few_decodes() -> None:
    bench = Bench(RuledBackend(rule=cyclic(5, 1000), n_ctx_slot=256))
    bench.add(1, "abcde", max_tokens=200)
    bench.run()
    end = bench.ends()[0]
    assert end.n_completion_tokens == 200
    assert len(bench.backend.batches) < 50
    assert end.n_accepted_tokens == end.n_drafted_tokens > 150


def test_each_token_of_a_decode_is_told_in_one_event() -> None:
    bench = Bench(RuledBackend(rule=cyclic(5, 1000), n_ctx_slot=256))
    bench.add(1, "abcde" * 6, max_tokens=100)
    for _ in range(12):
        events = bench.core.step()
        assert len([event for event in events if isinstance(event, TextChunk)]) <= 1


def test_the_last_cell_of_a_slot_is_not_exceeded() -> None:
    """The fake checks that no cell is beyond the slot's context."""
    bench = Bench(RuledBackend(rule=cyclic(3, 1000)), guess=lambda text: (text[-3], text[-2], text[-1]) * 5)
    bench.add(1, "abc")
    bench.run()
    assert bench.ends()[0].n_completion_tokens == 61


@pytest.mark.parametrize("backend", [{"can_rewind": False}, {"decode_cost": 0.0}], ids=["no tail goes", "too dear"])
def test_nothing_is_guessed_where_it_can_not_be_or_does_not_pay(backend: dict[str, Any]) -> None:
    bench = Bench(RuledBackend(rule=cyclic(4, 1000), **backend))
    bench.add(1, "abcd" * 4, max_tokens=40)
    bench.run()
    assert bench.ends()[0].n_drafted_tokens == 0


def test_a_constrained_reply_has_no_guesses() -> None:
    bench = Bench(FakeBackend())
    bench.intake._rulings["key"] = bench.intake._read_grammar(PutGrammar("key", "abababababababab"))
    bench.add(1, "abababab", grammar_key="key", max_tokens=16)
    bench.run()
    assert bench.ends()[0].n_drafted_tokens == 0


def test_cells_that_can_not_be_taken_back_end_the_choice() -> None:
    bench = Bench(RuledBackend(rule=cyclic(4, 1000), rewinding_fails=True), guess=lambda text: (0,))
    bench.add(1, "abcd", n=2, max_tokens=20)
    bench.run()
    assert [event.index for event in bench.events if isinstance(event, Failed)] == [0, 1]


def test_a_decode_that_fails_ends_its_request_and_no_other() -> None:
    backend = RuledBackend(rule=cyclic(4, 1000), fail_at=frozenset({4}))
    bench = Bench(backend)
    bench.add(1, "abcd" * 4, max_tokens=30)
    bench.run()
    bench.add(2, "abcd" * 4, max_tokens=30)
    bench.run()
    assert [event.id for event in bench.events if isinstance(event, Failed)] == [1]
    assert bench.ends(2)[0].n_completion_tokens == 30


def test_a_kept_prompt_holds_no_guessed_cells() -> None:
    """The fake's rows are the cells: one that is left over would be another text."""
    bench = Bench(RuledBackend(rule=cyclic(4, 1000)), guess=lambda text: (text[-4], 0, 0))
    for id in range(3):
        bench.add(id, "abcd" * 5, max_tokens=10 + id)
        bench.run()
    assert [bench.outcome(id)[0] for id in range(3)] == [("abcd" * 3)[: 10 + id] for id in range(3)]


@pytest.mark.parametrize("prediction", ["", "0123456789" * 6, "x123456789" + "0123456789" * 5, "no" * 30, "0"])
def test_what_the_client_predicts_is_guessed_from_the_start(prediction: str) -> None:
    """The fake tokenizer's tokens are bytes; the reply is the ten digits again and again, with a letter in the middle."""
    text = ("0123456789" * 3 + "a" + "0123456789" * 2).encode()
    rule: Rule = lambda seed, so_far: text[len(so_far) - 3] if len(so_far) - 3 < len(text) else END  # noqa: E731
    bench = Bench(RuledBackend(rule=rule, n_ctx_slot=128))
    bench.add(1, "abc", prediction=prediction, max_tokens=100)
    bench.run()
    assert bench.outcome(1)[0] == text.decode()
    end = bench.ends()[0]
    n_decodes = len(bench.backend.batches) - 1
    if prediction.startswith("0123"):
        assert n_decodes < 20
    assert n_decodes <= len(text) + 1
    assert (end.n_drafted_tokens > 0) == (n_decodes < len(text))


@pytest.mark.parametrize(
    ("prediction", "is_right", "is_wrong"),
    [("0123456789" * 4, True, False), ("01234567" + "x" * 30, True, True), ("abcdefgh" * 5, False, False), (" ", False, False)],
    ids=["right", "half right", "wrong from the start", "too short"],
)
def test_only_what_the_client_predicted_counts_as_predicted(prediction: str, is_right: bool, is_wrong: bool) -> None:
    """The reply repeats the prompt, which is guessed whatever the client predicts."""
    bench = Bench(RuledBackend(rule=cyclic(10, 70), n_ctx_slot=128))
    bench.add(1, "0123456789" * 2, prediction=prediction, max_tokens=100)
    end = bench.run().ends()[0]
    assert end.n_accepted_tokens > 20
    assert (end.n_fulfilled_tokens > 0) == is_right
    assert (end.n_predicted_tokens > end.n_fulfilled_tokens) == is_wrong
    assert end.n_drafted_tokens - end.n_accepted_tokens >= end.n_predicted_tokens - end.n_fulfilled_tokens >= 0


# ---- a draft model


def with_draft(rule: Rule, guess: Callable[[tuple[int, ...]], tuple[int, float]], **fields: Any) -> RuledBackend:
    """A target that costs much, so that guesses pay, with a draft model."""
    n_batch = fields.get("n_batch", 64)
    share = fields.pop("share", 0.05)
    fail_at = fields.pop("draft_fail_at", frozenset())
    draft = FakeDraft(guess, share=share, n_batch=n_batch, fail_at=fail_at)
    settings: dict[str, Any] = {"rule": rule, "decode_cost": 20.0, "draft": draft, **fields}
    return RuledBackend(**settings)


def letters(seed: int, text: tuple[int, ...]) -> int:
    """A text that never repeats itself for long: what a look-up doesn't find."""
    return 32 + hash((text[-1], len(text))) % 90


def test_a_draft_model_that_is_right_saves_decodes() -> None:
    backend = with_draft(letters, lambda text: (letters(0, text), 0.99), n_ctx_slot=256)
    bench = Bench(backend)
    bench.add(1, "0123456789" * 2, max_tokens=120)
    bench.run()
    end = bench.ends()[0]
    assert end.n_completion_tokens == 120
    assert end.n_accepted_tokens == end.n_drafted_tokens > 90
    assert len(backend.batches) < 20
    assert backend.draft is not None
    assert sum(len(batch) for batch in backend.draft.batches) < 20 + 120 + 10, "nothing is read twice"


def test_a_draft_model_that_is_wrong_is_left_alone() -> None:
    backend = with_draft(letters, lambda text: (1, 0.99), n_ctx_slot=1024)
    bench = Bench(backend)
    bench.add(1, "0123456789" * 2, max_tokens=900)
    bench.run()
    end = bench.ends()[0]
    assert end.n_accepted_tokens < 10, "what a look-up finds by chance"
    assert end.n_drafted_tokens < 150
    assert backend.draft is not None
    assert len(backend.draft.batches) < 200


def test_a_draft_model_that_is_unsure_is_put_to_the_test_when_it_has_been_right() -> None:
    n_drafted = []
    for guess in (lambda text: (1, 0.1), lambda text: (letters(0, text), 0.1)):
        bench = Bench(with_draft(letters, guess, n_ctx_slot=256))
        bench.add(1, "0123456789", max_tokens=100)
        bench.run()
        n_drafted.append(bench.ends()[0].n_drafted_tokens)
    assert n_drafted[0] == 0 < n_drafted[1]


def test_a_draft_model_that_is_too_large_is_never_asked() -> None:
    backend = with_draft(letters, lambda text: (letters(0, text), 0.99), share=1.0, decode_cost=1.2)
    bench = Bench(backend)
    bench.add(1, "0123456789", max_tokens=40)
    bench.run()
    assert backend.draft is not None
    assert backend.draft.batches == []


def test_a_draft_model_that_fails_is_done_without() -> None:
    for fail_at in range(1, 6):
        backend = with_draft(letters, lambda text: (letters(0, text), 0.99), draft_fail_at=frozenset({fail_at}))
        bench = Bench(backend)
        for id in range(2):
            bench.add(id, "0123456789" * (id + 1), max_tokens=30)
        bench.run()
        assert [bench.ends(id)[0].n_completion_tokens for id in range(2)] == [30, 30]


@st.composite
def draft_models(draw: st.DrawFn) -> Callable[[tuple[int, ...]], tuple[int, float]]:
    """Often what comes, with some probability that says little."""
    salt, n_right = draw(st.integers(0, 1000)), draw(st.integers(0, 20))
    rule = draw(RULES)

    def guess(text: tuple[int, ...]) -> tuple[int, float]:
        value = hash((salt, text[-6:]))
        token = rule(0, text) if value % 20 < n_right else value % 258
        return token, (value % 97) / 96

    return guess


@draws(15, 60)
def test_any_draft_model_leaves_the_text_as_it_is(n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None)
    @given(RULES, draft_models(), REQUESTS, st.data())
    def agree(rule: Rule, guess: Any, requests: list[Any], data: st.DataObject) -> None:
        plain = Bench(RuledBackend(rule=rule), speculates=False)
        n_batch = data.draw(st.sampled_from([4, 7, 64]))
        drafted = Bench(with_draft(rule, guess, n_batch=n_batch))
        for bench in (plain, drafted):
            for id, request in enumerate(requests):
                bench.add(id, **request)
        for _ in range(data.draw(st.integers(0, 12))):
            drafted.events.extend(drafted.core.step())
        if data.draw(st.booleans()):
            drafted.core.cancel(len(requests) - 1)
            requests = requests[:-1]
        plain.run()
        drafted.run()
        check_draft_cells(drafted.backend)
        for id, request in enumerate(requests):
            assert [drafted.outcome(id, i) for i in range(request["n"])] == [plain.outcome(id, i) for i in range(request["n"])]
            alone = Bench(with_draft(rule, guess, n_batch=n_batch))
            alone.add(id, **request)
            alone.run()
            counts = [sorted((e.index, e.n_drafted_tokens, e.n_accepted_tokens) for e in b.ends(id)) for b in (alone, drafted)]
            assert counts[0] == counts[1], "beside others as alone"

    agree()


def check_draft_cells(backend: FakeBackend) -> None:
    """What the draft model's slots hold is how the target's begin."""
    assert backend.draft is not None
    for slot, cells in backend.draft.cells.items():
        assert backend.cells.get(slot, [])[: len(cells)] == cells
