"""The sampling step against llama.cpp's own samplers over a tiny vocabulary: which tokens are drawn, and how often."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from server.engine.backend import GrammarRejected
from server.engine.llama import LlamaBackend
from server.engine.mask import Pool
from server.engine.messages import ModelSpec, Sampling
from server.engine.sampling import Screen, SequenceSampler
from tests.tiny_models import TinyModel, write_tiny_model

Row = NDArray[np.float32]

WIDE = 'root ::= [^a-h0-9{] [^}]* "}"'
NARROW = 'root ::= [a-f] [0-9]* "." | "the" [ a-z]* "." | "{" [^}]* "}"'
PLAIN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
TRUNCATED = Sampling(temperature=0.7, top_k=30, top_p=0.9, min_p=0.02)


@pytest.fixture(scope="module")
def backend(tiny_bpe: Path) -> LlamaBackend:
    return LlamaBackend(ModelSpec(str(tiny_bpe), n_ctx=256, n_threads=1))


@pytest.fixture(scope="module")
def sentencepiece(tiny_sentencepiece: Path) -> LlamaBackend:
    return LlamaBackend(ModelSpec(str(tiny_sentencepiece), n_ctx=256, n_threads=1))


def toy_row(backend: LlamaBackend, seed: int = 5, spread: float = 1.5) -> Row:
    return (np.random.default_rng(seed).standard_normal(backend.info.n_vocab) * spread).astype(np.float32)


def token(backend: LlamaBackend, text: str) -> int:
    (found,) = backend.vocabulary.tokenize(text, False, True)
    return found


def sampler(backend: LlamaBackend, sampling: Sampling = PLAIN, gbnf: str | None = None, seed: int = 7) -> SequenceSampler:
    return backend.new_sampler(sampling, seed, None if gbnf is None else backend.compile_grammar(gbnf))


def permitted(backend: LlamaBackend, gbnf: str, text: str = "") -> set[int]:
    """The tokens that the native grammar permits after `text`, asked one by one of a fresh instance each time."""
    state = backend._mask(backend.compile_grammar(gbnf), backend._scratch)
    for piece in backend.vocabulary.tokenize(text, False, True) if text else ():
        assert state.permits(piece)
        state.accept(piece)
    found = {t for t in range(backend.info.n_vocab) if state.permits(t)}
    state.free()
    return found - {t for t in found if is_markup(backend, t)}


def is_markup(backend: LlamaBackend, t: int) -> bool:
    """Neither text nor an end: control tokens, and the one that stands for what the vocabulary doesn't know."""
    vocabulary = backend.vocabulary
    return (vocabulary.is_control(t) and not vocabulary.is_eog(t)) or vocabulary.piece(t) == b"<unk>"


# ---- distributions


def candidates_of(backend: LlamaBackend, row: Row) -> NDArray[np.int64]:
    """All tokens but control and end-of-generation ones (the toy grammars can't end at the start)."""
    vocabulary = backend.vocabulary
    return np.array([t for t in range(len(row)) if not vocabulary.is_control(t) and not vocabulary.is_eog(t)])


def chain_distribution(backend: LlamaBackend, row: Row, sampling: Sampling, ids: NDArray[np.int64]) -> dict[int, float]:
    """What top-k, top-p, min-p and temperature leave of `ids`, computed here from their definitions."""
    ids = ids[np.argsort(-row[ids], kind="stable")]
    if sampling.top_k > 0:
        ids = ids[: sampling.top_k]
    p = softmax(row[ids])
    if sampling.top_p < 1:
        n_kept = int(np.searchsorted(np.cumsum(p), sampling.top_p)) + 1
        ids, p = ids[:n_kept], p[:n_kept]
    ids = ids[p >= sampling.min_p * p[0]]
    p = softmax(row[ids] / sampling.temperature)
    return dict(zip(ids.tolist(), p.tolist(), strict=True))


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    return np.asarray(weights / weights.sum())


def conditioned(distribution: dict[int, float], allowed: set[int]) -> dict[int, float]:
    kept = {t: p for t, p in distribution.items() if t in allowed}
    total = sum(kept.values())
    return {t: p / total for t, p in kept.items()}


def chi_square_is_plausible(counts: Counter[int], expected: dict[int, float], n_draws: int) -> bool:
    """Whether the counts agree with the probabilities (Wilson and Hilferty's normal approximation, 4 sigma)."""
    assert set(counts) <= set(expected), "a token outside the distribution was drawn"
    common = {t: p for t, p in expected.items() if p * n_draws >= 10}
    rest = 1 - sum(common.values())
    statistic = sum((counts[t] - p * n_draws) ** 2 / (p * n_draws) for t, p in common.items())
    freedom = len(common) - 1
    if rest * n_draws >= 10:
        n_rest = n_draws - sum(counts[t] for t in common)
        statistic += (n_rest - rest * n_draws) ** 2 / (rest * n_draws)
        freedom += 1
    assert freedom > 3, "the case is too small to mean anything"
    z: float = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return abs(z) < 4


CASES = {
    "without truncation": (PLAIN, WIDE),
    "with truncation": (TRUNCATED, WIDE),
    "hot, top-p alone": (Sampling(temperature=1.5, top_k=0, top_p=0.95, min_p=0.0), WIDE),
    "without truncation, few permitted": (PLAIN, NARROW),
    "with truncation, none of its candidates permitted": (TRUNCATED, NARROW),
    "the grammar first": (replace(TRUNCATED, grammar_first=True), WIDE),
}


def expected_distribution(backend: LlamaBackend, row: Row, sampling: Sampling, gbnf: str) -> dict[int, float]:
    """Spec section 8, point 1, from its words."""
    allowed = permitted(backend, gbnf)
    chain = chain_distribution(backend, row, sampling, candidates_of(backend, row))
    if sampling.grammar_first or not allowed & set(chain):
        return chain_distribution(backend, row, sampling, np.array(sorted(allowed)))
    return conditioned(chain, allowed)


def draws_agree(backend: LlamaBackend, sampling: Sampling, gbnf: str, n_draws: int) -> bool:
    row = toy_row(backend)
    state = sampler(backend, sampling, gbnf)
    counts: Counter[int] = Counter()
    for _ in range(n_draws):
        drawn = state.draw(row)
        assert drawn is not None
        counts[drawn] += 1
    state.free()
    return chi_square_is_plausible(counts, expected_distribution(backend, row, sampling, gbnf), n_draws)


@pytest.mark.parametrize(("sampling", "gbnf"), CASES.values(), ids=CASES.keys())
def test_draws_follow_the_chain_conditioned_on_the_grammar(backend: LlamaBackend, sampling: Sampling, gbnf: str) -> None:
    assert draws_agree(backend, sampling, gbnf, 2_000 if gbnf == WIDE else 500)


@pytest.mark.conformance
@pytest.mark.parametrize(("sampling", "gbnf"), CASES.values(), ids=CASES.keys())
def test_many_draws_follow_it_too(backend: LlamaBackend, sampling: Sampling, gbnf: str) -> None:
    assert draws_agree(backend, sampling, gbnf, 100_000 if gbnf == WIDE else 20_000)


# ---- what is drawn


def peaked(backend: LlamaBackend, *texts: str) -> Row:
    """A row whose best tokens are these, in this order."""
    row = toy_row(backend, spread=0.1)
    for rank, text in enumerate(texts):
        row[token(backend, text)] = 50 - 5 * rank
    return row


GREEDY = Sampling(temperature=0)


def write(state: SequenceSampler, backend: LlamaBackend, rows: list[Row]) -> str:
    """What the sampler makes of these logits, one token each, until it must end."""
    text = b""
    for row in rows:
        drawn = state.draw(row)
        assert drawn is not None
        if backend.vocabulary.is_eog(drawn):
            break
        state.accept(drawn)
        text += backend.vocabulary.piece(drawn)
        if state.must_end():
            break
    state.free()
    return text.decode()


def test_greedy_takes_the_best_token(backend: LlamaBackend) -> None:
    assert sampler(backend, GREEDY).draw(peaked(backend, "q", "a")) == token(backend, "q")


def test_greedy_takes_the_best_permitted_token_of_the_whole_vocabulary(backend: LlamaBackend) -> None:
    row = toy_row(backend)
    state = sampler(backend, GREEDY, NARROW)
    assert state.draw(row) == max(permitted(backend, NARROW), key=lambda t: row[t])


def test_a_refused_draw_is_never_accepted(backend: LlamaBackend) -> None:
    rows = [peaked(backend, "q", "x", " world", "hello")] * 8
    assert write(sampler(backend, Sampling(seed=1), 'root ::= "yes" | "no"'), backend, rows) in ("yes", "no")


def test_control_tokens_are_no_text_unless_named(backend: LlamaBackend) -> None:
    row = peaked(backend, "<|im_start|>", "<")
    assert sampler(backend, PLAIN, r"root ::= [^\x00]+").draw(row) == token(backend, "<")
    assert sampler(backend, PLAIN, "root ::= <|im_start|> [a-z]+").draw(row) == token(backend, "<|im_start|>")
    assert sampler(backend, PLAIN).draw(row) == token(backend, "<|im_start|>")


def test_a_text_token_named_by_its_id_is_found_though_its_first_byte_is_refused(backend: LlamaBackend) -> None:
    hello = token(backend, "hello")
    for sampling in (GREEDY, PLAIN, TRUNCATED):
        assert sampler(backend, sampling, f'root ::= <[{hello}]> "!"').draw(toy_row(backend)) == hello


def test_a_negated_token_permits_any_other_text(backend: LlamaBackend) -> None:
    hello = token(backend, "hello")
    state = sampler(backend, GREEDY, f'root ::= !<[{hello}]> "!"')
    assert state.draw(peaked(backend, "hello", "<|im_start|>", " world")) == token(backend, " world")


def test_end_tokens_wait_for_the_grammar_and_end_it(backend: LlamaBackend) -> None:
    wants_end = peaked(backend, "<|im_end|>", "a")
    state = sampler(backend, PLAIN, 'root ::= "aa" [a-z]*')
    assert write(state, backend, [wants_end] * 9) in ("aa", "aaa", "aaaa")


def test_a_finished_grammar_ends_the_reply_without_another_token(backend: LlamaBackend) -> None:
    state = sampler(backend, GREEDY, 'root ::= "a" "b"?')
    for text, ends in (("a", False), ("b", True)):
        drawn = state.draw(peaked(backend, text))
        assert drawn == token(backend, text)
        state.accept(drawn)
        assert state.must_end() is ends


def test_the_empty_sentence_ends_at_once(backend: LlamaBackend) -> None:
    assert sampler(backend, PLAIN, 'root ::= ""').must_end()


@pytest.mark.parametrize("sampling", [Sampling(min_tokens=3), Sampling(ignore_eos=True)])
def test_the_constraint_wins_over_min_tokens_and_ignore_eos(backend: LlamaBackend, sampling: Sampling) -> None:
    assert write(sampler(backend, sampling, 'root ::= "a"'), backend, [peaked(backend, "b")] * 5) == "a"


def test_min_tokens_and_ignore_eos_hold_back_the_end(backend: LlamaBackend) -> None:
    row = peaked(backend, "<|im_end|>", "<|endoftext|>", "a")
    assert write(sampler(backend, Sampling(temperature=0, min_tokens=3)), backend, [row] * 9) == "aaa"
    assert write(sampler(backend, Sampling(temperature=0, ignore_eos=True)), backend, [row] * 5) == "aaaaa"
    constrained = sampler(backend, Sampling(temperature=0, min_tokens=3), "root ::= [a-z]+")
    assert write(constrained, backend, [row] * 9) == "aaa"


def test_bias_is_added_and_minus_infinity_bans(backend: LlamaBackend) -> None:
    a, b = token(backend, "a"), token(backend, "b")
    row = peaked(backend, "a", "b", "c")
    assert sampler(backend, Sampling(temperature=0, logit_bias=((b, 20.0),))).draw(row) == b
    assert sampler(backend, Sampling(temperature=0, logit_bias=((a, -math.inf),))).draw(row) == b
    assert sampler(backend, Sampling(temperature=0, logit_bias=((a, -math.inf),)), "root ::= [a-c]").draw(row) == b


@pytest.mark.parametrize("bias", [-100.0, -math.inf])
def test_the_constraint_wins_over_bias(backend: LlamaBackend, bias: float) -> None:
    state = sampler(backend, Sampling(logit_bias=((token(backend, "a"), bias),)), 'root ::= "a"')
    assert write(state, backend, [peaked(backend, "b")] * 3) == "a"


def test_penalties_see_the_prompt_and_the_text(backend: LlamaBackend) -> None:
    state = sampler(backend, Sampling(temperature=0, presence_penalty=2.0))
    row = toy_row(backend, spread=0.0)
    row[token(backend, "a")], row[token(backend, "b")], row[token(backend, "c")] = 9.0, 8.0, 7.5
    state.accept_prompt([token(backend, "a")])
    assert state.draw(row) == token(backend, "b")
    state.accept(token(backend, "b"))
    assert state.draw(row) == token(backend, "c")


def test_dry_breaks_a_loop(backend: LlamaBackend) -> None:
    state = sampler(backend, Sampling(temperature=0, dry_multiplier=5.0))
    state.accept_prompt([token(backend, text) for text in "abcdabcdabc"])
    assert state.draw(peaked(backend, "d", "x")) == token(backend, "x")


def test_same_seed_same_draws(backend: LlamaBackend) -> None:
    def drawn(seed: int) -> list[int | None]:
        state = sampler(backend, TRUNCATED, WIDE, seed)
        return [state.draw(toy_row(backend)) for _ in range(30)]

    assert drawn(5) == drawn(5) != drawn(6)


def test_the_seed_that_means_random_to_llama_cpp_is_a_seed_too(backend: LlamaBackend) -> None:
    first, second = (sampler(backend, PLAIN, seed=0xFFFFFFFF) for _ in range(2))
    row = toy_row(backend)
    assert [first.draw(row) for _ in range(20)] == [second.draw(row) for _ in range(20)]


EVERY_SAMPLER = {
    "top_n_sigma": Sampling(top_n_sigma=1.0),
    "typical": Sampling(typical_p=0.5),
    "sigma and typical": Sampling(top_n_sigma=1.0, typical_p=0.5, top_k=0),
    "xtc": Sampling(xtc_probability=1.0, xtc_threshold=0.01),
    "dynamic temperature": Sampling(dynatemp_range=0.5),
    "mirostat 1": Sampling(mirostat=1),
    "mirostat 2": Sampling(mirostat=2),
    "penalties": Sampling(repeat_penalty=1.3, frequency_penalty=0.5, presence_penalty=0.5, repeat_last_n=-1),
    "dry": Sampling(dry_multiplier=0.8),
}


@pytest.mark.parametrize("sampling", EVERY_SAMPLER.values(), ids=EVERY_SAMPLER.keys())
@pytest.mark.parametrize("grammar_first", [False, True])
def test_every_sampler_obeys_the_grammar(backend: LlamaBackend, sampling: Sampling, grammar_first: bool) -> None:
    rows = [toy_row(backend, seed) for seed in range(12)]
    text = write(sampler(backend, replace(sampling, grammar_first=grammar_first), "root ::= [a-z]{20}"), backend, rows)
    assert text.isalpha()
    assert len(text) >= 12


@pytest.mark.parametrize("n_wide", [6, 40, 10**9])
def test_how_many_are_asked_changes_no_draw(backend: LlamaBackend, monkeypatch: pytest.MonkeyPatch, n_wide: int) -> None:
    monkeypatch.setattr("server.engine.sampling._SCREEN_FACTOR", 1)
    monkeypatch.setattr("server.engine.sampling._MIN_SCREEN", 1)
    sampling = replace(TRUNCATED, top_k=5, grammar_first=True)
    draws = []
    for n_asked in (n_wide, 10**9):
        monkeypatch.setattr("server.engine.sampling._WIDE_SCREEN", n_asked)
        states = [sampler(backend, sampling, NARROW, seed) for seed in range(40)]
        draws.append([state.draw(toy_row(backend, seed)) for seed, state in enumerate(states)])
    assert draws[0] == draws[1]
    assert len(set(draws[0])) > 5


def test_mirostat_aims_at_its_surprise(backend: LlamaBackend) -> None:
    """The mean surprise of what is drawn comes near tau, with and without refused draws."""
    for version in (1, 2):
        for gbnf in (None, "root ::= [ -~]{2000}"):
            state = sampler(backend, Sampling(mirostat=version, mirostat_tau=3.0, temperature=1.0, ignore_eos=True), gbnf)
            surprises = []
            for seed in range(150):
                row = toy_row(backend, seed, spread=3.0)
                drawn = state.draw(row)
                assert drawn is not None
                state.accept(drawn)
                surprises.append(-math.log2(softmax(row)[drawn]))
            assert 1.5 < float(np.mean(surprises[50:])) < 4.5
            state.free()


# ---- the mask


STATES = [
    ("root ::= [a-z]+", ""),
    ('root ::= "日本" [^x]* "!"', ""),
    ('root ::= "é" | "ü" | "yes"', ""),
    (WIDE, "z"),
    (NARROW, "the"),
    (r'root ::= "{\"" [^"]* "\":" ("true" | "false" | [0-9]+) "}"', '{"name":'),
    ('root ::= "a" [^a]* | "😀" "."', ""),
]


@pytest.mark.parametrize(("gbnf", "text"), STATES)
@pytest.mark.parametrize("model", ["backend", "sentencepiece"])
def test_the_index_finds_exactly_what_the_grammar_permits(
    gbnf: str, text: str, model: str, request: pytest.FixtureRequest
) -> None:
    backend = request.getfixturevalue(model)
    mask = backend._mask(backend.compile_grammar(gbnf), backend._scratch)
    singles = {backend.vocabulary.piece(t): t for t in backend.vocabulary.index.probes.tolist()}
    for byte in text.encode():
        assert mask.permits(singles[bytes([byte])])
        mask.accept(singles[bytes([byte])])
    found = set(mask.all_permitted().tolist())
    brute = {t for t in range(backend.info.n_vocab) if mask.permits(t)}
    assert found == brute - {t for t in brute if is_markup(backend, t)}
    assert mask.can_continue() == bool(found - set(backend.vocabulary.index.eog_ids.tolist()))
    mask.free()


def test_half_a_character_is_known_to_the_mask(backend: LlamaBackend) -> None:
    mask = backend._mask(backend.compile_grammar('root ::= "é" "."'), backend._scratch)
    first = int(backend.vocabulary.index.buckets[0xC3][0])
    assert backend.vocabulary.piece(first) == b"\xc3"
    mask.accept(first)
    assert [backend.vocabulary.piece(t) for t in mask.all_permitted().tolist()] == [b"\xa9"]
    mask.free()


def test_a_vocabulary_without_some_single_bytes_is_searched_all_the_same(tmp_path: Path) -> None:
    gone = (*b"tn", 0xE6)
    path = write_tiny_model(tmp_path / "gaps.gguf", TinyModel(vocabulary="bpe", without_bytes=gone))
    backend = LlamaBackend(ModelSpec(str(path), n_ctx=64, n_threads=1))
    assert not backend.vocabulary.index.is_byte_complete
    assert set(backend.vocabulary.index.unprobed_ids.tolist())
    for gbnf, text in (('root ::= "the" | "no"', "the"), ('root ::= "日本"', "日本"), ('root ::= "x" | "null"', "null")):
        mask = backend._mask(backend.compile_grammar(gbnf), backend._scratch)
        brute = {t for t in range(backend.info.n_vocab) if mask.permits(t)}
        assert set(mask.all_permitted().tolist()) == brute
        assert any(backend.vocabulary.piece(t).decode("utf-8", "replace") in text for t in brute)
        mask.free()


@pytest.mark.parametrize(
    ("gbnf", "word"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ('root ::= "a" <nope>', "<nope>"),
        ("root ::= <[99999]>", "99999"),
        ('root ::= "a', "read"),
        ("root ::= nothing", "read"),
        ("root ::= [z-a]", "spell"),
        ('root ::= "a"\0', "NUL"),
    ],
)
def test_what_can_not_be_enforced_is_refused_before_it_starts(backend: LlamaBackend, gbnf: str, word: str) -> None:
    with pytest.raises(GrammarRejected, match=word):
        backend.compile_grammar(gbnf)


def test_token_names_inside_texts_and_comments_are_no_names(backend: LlamaBackend) -> None:
    backend.compile_grammar('# <nope>\nroot ::= "<nope>" [<>] "\\"<nope>" # "<nope>')


def test_logprobs_are_those_of_the_raw_row(backend: LlamaBackend) -> None:
    row = toy_row(backend)
    scores = backend.score(row, 5, 3)
    expected = np.log(softmax(row))
    assert scores.chosen.logprob == pytest.approx(expected[5], abs=1e-5)
    assert [entry.token for entry in scores.top] == np.argsort(-row)[:3].tolist()
    assert scores.top[0].bytes == backend.vocabulary.piece(int(np.argmax(row)))


# ---- the screen


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 8.0, 300.0]), st.sampled_from([1, 5, 40]), st.booleans())
def test_a_screen_lets_the_best_tokens_through(seed: int, spread: float, n_best: int, is_pool_part: bool) -> None:
    """However wide the rows are that it has seen before, and whatever part of the vocabulary counts."""
    rng = np.random.default_rng(seed)
    ids = np.arange(2000, dtype=np.int32)
    pool = Pool(ids[rng.random(2000) < 0.3] if is_pool_part else ids, 2000)
    screen = Screen(n_best)
    for wide in (1.0, spread, 1.0):
        row = (wide * rng.standard_normal(2000)).astype(np.float32)
        found = screen.best(row, pool)
        if found is not None:
            best = pool.ids[np.argsort(-row[pool.ids], kind="stable")[:n_best]]
            assert set(best.tolist()) <= set(found.tolist()) <= set(pool.ids.tolist())
            assert found.tolist() == sorted(found.tolist())


def test_a_screen_widens_until_there_are_enough_and_gives_up_on_a_pool_that_is_too_small() -> None:
    ids = np.arange(100, dtype=np.int32)
    row = np.concatenate([np.zeros(60), np.full(40, -20.0)]).astype(np.float32)
    narrow = Screen(80)
    found = narrow.best(row, Pool(ids, 100))
    assert found is not None
    assert len(found) == 100
    for _ in range(2000):
        assert narrow.best(row, Pool(ids[:79], 100)) is None
    assert narrow.best(row, Pool(ids, 100)) is not None
