"""Forced text: which tokens it has, what is left to be drawn, how a reply keeps to its spacing, what is decoded together."""

from __future__ import annotations

import json
import re
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converters import Constraint, Gbnf, JsonSchema, Regex
from converters.grammar.match import Matcher
from server.engine.backend import BackendError, Batch
from server.engine.core import Core
from server.engine.fast_forward import Beginnings, FastForward, Spacing
from server.engine.intake import Intake
from server.engine.llama import LlamaBackend
from server.engine.messages import EngineRequest, Failed, Finished, FinishReason, ModelSpec, PutGrammar, Sampling, TextChunk
from server.engine.spelling import Speller
from server.engine.walk import Walk
from tests.draws import draws
from tests.server.engine.compiled import compiled

PIECES = [b"a", b"ab", b"abc", b"b", b"ba", b'"', b'":', b'": ']

OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {f"key_{i}": {"enum": [f"first {i}", f"second {i}", i, None]} for i in range(6)},
    "required": [f"key_{i}" for i in range(6)],
    "additionalProperties": False,
}


@draws(30, 100)
def test_beginnings(n_draws: int) -> None:
    @settings(max_examples=n_draws)
    @given(st.text("ab", max_size=4))
    def begin(text: str) -> None:
        begun = any(piece.startswith(text.encode()) and len(piece) > len(text) for piece in PIECES)
        assert Beginnings(PIECES).begins(text.encode()) == begun

    begin()


class CountingBackend(LlamaBackend):
    """Notes what is decoded together: how many tokens of how many sequences."""

    shapes: list[tuple[int, int]]

    def decode(self, batch: Batch) -> None:
        self.shapes.append((len(batch), len(set(batch.seq_ids))))
        super().decode(batch)


class Bench:
    def __init__(self, path: Path) -> None:
        self.backend = CountingBackend(ModelSpec(str(path), n_ctx=512, n_slots=4, n_threads=1))
        self.backend.shapes = []
        self.core = Core(self.backend)
        self.intakes = {on: Intake(self.backend, SimpleQueue(), lambda message: None, on) for on in (True, False)}
        self.texts: dict[int, list[str]] = {}
        self.ends: dict[int, Finished] = {}
        self.chunks: list[TextChunk] = []
        self.failures: list[int] = []

    def add(self, id: int, constraint: Constraint, *, on: bool = True, n: int = 1, **fields: Any) -> None:
        key = repr(constraint)
        made = compiled(constraint)
        self.intakes[on]._put_grammar(PutGrammar(key, made.gbnf, made.tables))
        sampling = fields.pop("sampling", Sampling(seed=id, temperature=1.5, top_k=0, top_p=1.0, min_p=0.0))
        request = EngineRequest(id, "the cat", n=n, sampling=sampling, grammar_key=key, **fields)
        self.texts[id] = [""] * n
        self.core.add(self.intakes[on].prepare(request))

    def step(self) -> None:
        for event in self.core.step():
            if isinstance(event, TextChunk):
                self.texts[event.id][event.index] += event.text
                self.chunks.append(event)
            if isinstance(event, Finished):
                self.ends[event.id] = event
            if isinstance(event, Failed):
                self.failures.append(event.id)

    def ask(self, constraint: Constraint, **fields: Any) -> tuple[str, Finished]:
        self.add(1, constraint, **fields)
        while self.core.has_work:
            self.step()
        return self.texts[1][0], self.ends[1]


@pytest.fixture
def bpe(tiny_bpe: Path) -> Bench:
    return Bench(tiny_bpe)


@pytest.fixture(params=["tiny_bpe", "tiny_sentencepiece"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.getfixturevalue(request.param))


# ---- which tokens


def test_what_a_longer_token_begins_with_is_left_to_be_drawn(bench: Bench) -> None:
    speller = Speller(bench.backend.vocabulary)
    texts = [b'"name":', b"the cat", b'{"', b"zz", "日本".encode()]
    for text in texts:
        whole = speller.tokens(text)
        settled = speller.settled(text, True)
        assert whole is not None
        assert settled is not None
        assert speller.settled(text, False) == whole
        assert settled == whole[: len(settled)]
        rest = b"".join(map(speller.piece, whole[len(settled) :]))
        assert not rest or bench.backend.vocabulary.begins_token(rest)
        for n_kept in range(len(settled)):
            assert not bench.backend.vocabulary.begins_token(b"".join(map(speller.piece, whole[n_kept:])))


def walk_of(bench: Bench, constraint: Constraint) -> Walk:
    matcher = Matcher.from_tables(compiled(constraint).tables)
    speller = Speller(bench.backend.vocabulary)
    return Walk(matcher, speller, {}, FastForward(matcher, speller, {}))


def take(bench: Bench, walk: Walk, text: str) -> bool:
    tokens = Speller(bench.backend.vocabulary).tokens(text.encode())
    assert tokens is not None
    return all(walk.permits(token) and walk.take(token) for token in tokens)


def forced_text(bench: Bench, walk: Walk) -> str:
    return b"".join(map(bench.backend.vocabulary.piece, walk.forced())).decode()


def test_a_text_that_ends_the_reply_is_forced_to_the_end(bpe: Bench) -> None:
    walk = walk_of(bpe, Regex("ab(xyz|q)"))
    assert take(bpe, walk, "abx")
    assert forced_text(bpe, walk) == "yz"


@pytest.mark.parametrize("spaced", [False, True])
def test_the_first_space_decides(bpe: Bench, spaced: bool) -> None:
    walk = walk_of(bpe, JsonSchema({"type": "array", "items": {"enum": [1, 2]}, "minItems": 4, "maxItems": 4}))
    gap, other = (" ", "") if spaced else ("", " ")
    assert take(bpe, walk, f"[1,{gap}2")
    assert walk.spacing == Spacing(spaced)
    assert take(bpe, walk, ",")
    assert not take(bpe, walk, other + ("1" if not other else ""))
    assert take(bpe, walk, f"{gap}1,{gap}1]")


@pytest.mark.parametrize("spaced", [False, True])
def test_the_first_colon_decides_for_commas_too_until_a_completion_gives_it_up(bpe: Bench, spaced: bool) -> None:
    gap, other = (" ", "") if spaced else ("", " ")
    walk = walk_of(bpe, JsonSchema(OBJECT))
    assert take(bpe, walk, f'{{"key_0":{gap}null')
    assert walk.spacing == Spacing(spaced)
    assert take(bpe, walk, ",")
    assert forced_text(bpe, walk).startswith(f'{gap}"key_')
    assert not take(bpe, walk, f'{other}"' if spaced else other)
    assert walk.relax()
    assert walk.forced() == ()
    assert take(bpe, walk, f'{other}"key_1":{gap}null,{gap}"key_2":{other}')


def test_the_first_comma_decides_for_colons_too(bpe: Bench) -> None:
    walk = walk_of(bpe, JsonSchema({"type": "array", "prefixItems": [{"const": 1}, OBJECT], "minItems": 2, "items": False}))
    assert take(bpe, walk, '[1,{"key_0":')
    assert walk.spacing == Spacing(False)
    assert not take(bpe, walk, " ")
    assert take(bpe, walk, "0")


def test_what_follows_half_a_character_is_no_separation(bpe: Bench) -> None:
    walk = walk_of(bpe, Regex("a,𐍈 ?b"))
    assert take(bpe, walk, "a,𐍈 b")
    assert walk.spacing == Spacing()


@pytest.mark.parametrize("text", ["a, b", "a,b"])
def test_a_space_that_changes_what_follows_is_no_style(bpe: Bench, text: str) -> None:
    walk = walk_of(bpe, Gbnf('root ::= "a" ("," [a-z ]{2,9} | ", b")'))
    assert take(bpe, walk, text)
    assert walk.spacing == Spacing()


def test_spacing_is_per_choice(bench: Bench) -> None:
    bench.add(1, JsonSchema(OBJECT), n=24)
    while bench.core.has_work:
        bench.step()
    styles = set()
    for text in bench.texts[1]:
        json.loads(text)
        gaps = set(re.findall(r"[:,]( ?)[\"0-9n]", text))
        assert len(gaps) == 1, text
        styles |= gaps
    assert styles == {"", " "}


# ---- what is decoded


def test_forced_tokens_are_counted_and_join_one_decode(bench: Bench) -> None:
    text, end = bench.ask(JsonSchema(OBJECT))
    json.loads(text)
    assert end.reason is FinishReason.STOP
    assert end.n_forced_tokens > end.n_completion_tokens // 4
    n_decoded = sum(n for n, _ in bench.backend.shapes)
    assert len(bench.backend.shapes) < end.n_completion_tokens - end.n_forced_tokens // 2
    assert n_decoded <= end.n_completion_tokens + len("the cat") + 1


def test_without_it_every_token_is_drawn(bench: Bench) -> None:
    text, end = bench.ask(JsonSchema(OBJECT), on=False)
    json.loads(text)
    assert end.n_forced_tokens == 0


def test_a_reply_without_a_choice_is_hardly_drawn(bpe: Bench) -> None:
    text, end = bpe.ask(JsonSchema({"const": {"the cat sat on": ["the mat", 1]}}), sampling=Sampling(temperature=0))
    json.loads(text)
    assert end.n_completion_tokens - end.n_forced_tokens <= 6, "the first, a space, and what a longer token begins with"


def test_long_runs_are_cut(bpe: Bench) -> None:
    text, end = bpe.ask(Regex("a[bc](xq){120}"))
    assert len(text) == 242
    assert end.n_forced_tokens > 50
    assert max(n for n, _ in bpe.backend.shapes) <= 32


def test_a_decode_that_fails_ends_its_request_once_and_no_other(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choices of a request may be in several decodes of a step."""
    bench.add(1, JsonSchema(OBJECT), n=3)
    bench.add(2, JsonSchema(OBJECT))
    while len({len(sequence.next_tokens) for sequence in bench.core._scheduler.decoding if sequence.job.id == 1}) < 2:
        bench.step()
    monkeypatch.setattr(bench.backend, "decode", lambda batch: _fail_once(bench, monkeypatch))
    bench.step()
    assert 1 in bench.failures
    while bench.core.has_work:
        bench.step()
    assert bench.failures.count(1) == 1
    assert bench.failures.count(2) + (2 in bench.ends) == 1
    json.loads(bench.ask(JsonSchema(OBJECT))[0])


def _fail_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    raise BackendError("told to fail")


def test_the_same_text_alone_and_beside_others(bench: Bench) -> None:
    alone = [bench.ask(JsonSchema(OBJECT), sampling=Sampling(seed=seed, temperature=1.5))[0] for seed in range(3)]
    constraints: list[Constraint] = [JsonSchema(OBJECT), Regex("[ab]{3}(cde){9}"), JsonSchema(OBJECT), JsonSchema(OBJECT)]
    for id, (seed, constraint) in enumerate(zip((0, 7, 1, 2), constraints, strict=True)):
        bench.add(10 + id, constraint, sampling=Sampling(seed=seed, temperature=1.5))
        for _ in range(id):
            bench.step()
    while bench.core.has_work:
        bench.step()
    assert [bench.texts[10][0], bench.texts[12][0], bench.texts[13][0]] == alone


def test_with_logprobs_every_token_has_them(bench: Bench) -> None:
    text, end = bench.ask(JsonSchema(OBJECT), logprobs=2)
    entries = [entry for chunk in bench.chunks for entry in chunk.logprobs]
    assert len(entries) == end.n_completion_tokens
    assert b"".join(entry.chosen.bytes for entry in entries).decode() == text
    assert all(entry.chosen.logprob <= 0 and len(entry.top) == 2 for entry in entries)
    assert end.n_forced_tokens > 0


@pytest.mark.parametrize("extra", [0, 1, 2, 5, 9, 20])
def test_a_reply_is_whole_with_any_number_of_tokens(bench: Bench, extra: int) -> None:
    bench.add(1, JsonSchema(OBJECT))
    bench.core.cancel(1)
    cost = bench.intakes[True]._ruling(repr(JsonSchema(OBJECT))).cost
    assert cost is not None
    for id in range(4):
        bench.add(id, JsonSchema(OBJECT), max_tokens=cost + extra)
        while bench.core.has_work:
            bench.step()
        json.loads(bench.texts[id][0])
        assert bench.ends[id].n_completion_tokens <= cost + extra


def test_a_stop_string_inside_a_run_ends_the_reply(bpe: Bench) -> None:
    text, end = bpe.ask(JsonSchema(OBJECT), stop=("ey_1",))
    assert text.endswith('"k')
    assert end.stop_string == "ey_1"
    assert not bpe.core.has_work


def test_penalties_know_forced_tokens(bpe: Bench) -> None:
    """With a penalty that bans what was written, the free letter is none of the forced ones."""
    sampling = Sampling(temperature=0, repeat_penalty=1.0, presence_penalty=100.0, repeat_last_n=-1)
    text, _ = bpe.ask(Regex("[xy]qzqzqz[qzw]"), sampling=sampling)
    assert text.endswith("w")


# ---- how it is decoded


def tail_of(bench: Bench, walk: Walk) -> str:
    return b"".join(map(bench.backend.vocabulary.piece, walk.likely())).decode()


def test_the_end_of_forced_text_is_likely(bpe: Bench) -> None:
    """A longer token begins with it, so it is drawn: but what else could come?"""
    assert bpe.backend.vocabulary.begins_token(b'"')
    walk = walk_of(bpe, Regex('x"([abc]|k)'))
    assert take(bpe, walk, "x")
    assert (forced_text(bpe, walk), tail_of(bpe, walk)) == ("", '"')
    assert take(bpe, walk, '"')
    assert tail_of(bpe, walk) == ""
    assert walk.relax()
    assert tail_of(bpe, walk) == ""


ENDINGS = Regex('a[bc](xq"[de]){9}')


def test_guessed_ends_of_forced_text_save_decodes(bpe: Bench) -> None:
    text, plain = bpe.ask(ENDINGS)
    n_plain = len(bpe.backend.shapes)
    bpe.backend.shapes.clear()
    bpe.core = Core(bpe.backend, speculates=True)
    guessed_text, guessed = bpe.ask(ENDINGS)
    assert all(re.fullmatch('a[bc](xq"[de]){9}', reply) for reply in (text, guessed_text))
    assert (plain.n_drafted_tokens, guessed.n_drafted_tokens) == (0, 9)
    assert guessed.n_accepted_tokens == 9
    assert len(bpe.backend.shapes) == n_plain - 9


def test_the_same_text_alone_and_beside_others_with_guesses(bpe: Bench) -> None:
    bpe.core = Core(bpe.backend, speculates=True)
    alone = [bpe.ask(ENDINGS, sampling=Sampling(seed=seed, temperature=1.5))[0] for seed in range(3)]
    constraints: list[Constraint] = [ENDINGS, JsonSchema(OBJECT), ENDINGS, ENDINGS]
    for id, (seed, constraint) in enumerate(zip((0, 7, 1, 2), constraints, strict=True)):
        bpe.add(10 + id, constraint, sampling=Sampling(seed=seed, temperature=1.5))
        for _ in range(id):
            bpe.step()
    while bpe.core.has_work:
        bpe.step()
    assert [bpe.texts[10][0], bpe.texts[12][0], bpe.texts[13][0]] == alone


def test_single_tokens_wait_for_what_comes_out_of_runs(bench: Bench) -> None:
    """All that have one token to decode do so at once, next to one another, so that llama.cpp needs one go for them."""
    for id in range(4):
        bench.add(id, JsonSchema(OBJECT), sampling=Sampling(seed=id, temperature=1.5))
    while bench.core.has_work:
        bench.backend.shapes.clear()
        bench.step()
        singles = [n_sequences for n, n_sequences in bench.backend.shapes if n == n_sequences]
        assert len(singles) <= 1
