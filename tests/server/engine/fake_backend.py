"""A backend whose model is a script: byte tokens, a KV cache that only counts, and draws that follow a given text."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from server.engine.backend import BackendError, Batch, Grammar, GrammarRejected, Logits, Reference, SavedSequence
from server.engine.messages import ModelInfo, Pooling, RankFrame, Sampling, TokenLogprob, TokenLogprobs

END = 256
MARKUP = 257
N_TOKENS = 258


class FakeVocabulary:
    """Token i is byte i; 256 ends a reply, 257 is markup."""

    n_tokens = N_TOKENS
    longest_piece = len(b"<markup>")
    fallback_start: int | None = MARKUP

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        return tuple(text.encode())

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < END else b"<end>" if token == END else b"<markup>"

    def begins_token(self, text: bytes) -> bool:
        return False

    def byte_token(self, byte: int) -> int | None:
        return byte

    def is_eog(self, token: int) -> bool:
        return token == END

    def is_control(self, token: int) -> bool:
        return token >= END


@dataclass(slots=True)
class FakeGrammar:
    """Permits exactly `text`; one that begins with `!` is refused, one that ends with `?` has a dead end there."""

    text: str
    named_tokens: frozenset[int] = frozenset()


@dataclass(slots=True)
class FakeSampler:
    """Draws `script`, then END for ever."""

    script: list[int]
    grammar: FakeGrammar | None = None
    n_drawn: int = 0
    prompt: tuple[int, ...] = ()
    is_free: bool = False
    n_ruled: int = 0  # of the grammar's text
    reference: Reference | None = None
    n_rejected: int = 0

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        self.prompt = tuple(tokens)

    def draw(self, logits: Logits) -> int | None:
        assert not self.is_free
        if self.grammar is None:
            return self.script[self.n_drawn] if self.n_drawn < len(self.script) else END
        text = self.grammar.text.encode()
        return None if text[self.n_ruled : self.n_ruled + 1] in (b"?", b"") else text[self.n_ruled]

    def accept(self, token: int) -> None:
        assert not self.is_free
        self.n_drawn += 1
        self.n_ruled += 1

    def force(self, token: int) -> bool:
        if self.grammar is not None and self.grammar.text.encode()[self.n_ruled : self.n_ruled + 1] != bytes([token]):
            return False
        self.n_ruled += 1
        return True

    def must_end(self) -> bool:
        return self.grammar is not None and self.n_ruled == len(self.grammar.text.encode())

    def set_grammar(self, grammar: Grammar | None, offered: int | None = None) -> None:
        assert grammar is None or isinstance(grammar, FakeGrammar)
        self.grammar, self.n_ruled = grammar, 0

    def set_reference(self, reference: Reference | None) -> None:
        self.reference = reference

    def free(self) -> None:
        assert not self.is_free, "freed twice"
        self.is_free = True


@dataclass(slots=True)
class FakeEmbeddings:
    """A token's vector is (token, position); a sequence's the sum of these, and its score the sum of its tokens."""

    n_ctx: int
    n_batch: int
    n_sequences: int
    is_pooled: bool
    token_s: float = 0.0
    batches: list[Batch] = field(default_factory=list)
    cells: dict[int, int] = field(default_factory=dict)
    is_free: bool = False

    def decode(self, batch: Batch) -> float:
        assert not self.is_free
        assert 0 < len(batch) <= self.n_batch
        assert len(set(batch.seq_ids)) <= self.n_sequences
        self.batches.append(batch)
        if any(token == 99 for token in batch.tokens):
            raise BackendError("the fake was told to fail")
        for position, seq_id in zip(batch.positions, batch.seq_ids, strict=True):
            assert position == self.cells.get(seq_id, 0)
            self.cells[seq_id] = position + 1
        assert sum(self.cells.values()) <= self.n_ctx
        time.sleep(self.token_s * len(batch))
        return self.token_s * len(batch)

    def row(self, index: int) -> np.ndarray:
        assert not self.is_pooled
        batch = self.batches[-1]
        return np.array([batch.tokens[index], batch.positions[index]], dtype=np.float32)

    def pooled(self, seq_id: int) -> np.ndarray:
        assert self.is_pooled
        batch = self.batches[-1]
        rows = [(t, p) for t, p, s in zip(batch.tokens, batch.positions, batch.seq_ids, strict=True) if s == seq_id]
        total: np.ndarray = np.array(rows, dtype=np.float32).sum(axis=0)
        return total

    def clear(self) -> None:
        self.cells.clear()

    def free(self) -> None:
        self.is_free = True


@dataclass(slots=True)
class FakeDraft:
    """A draft model that guesses by a function of its text: a token, and how sure it is. Counts cells as FakeBackend does."""

    guess: Callable[[tuple[int, ...]], tuple[int, float]]
    share: float = 0.05
    n_batch: int = 64
    fail_at: frozenset[int] = frozenset()
    batches: list[Batch] = field(default_factory=list)
    cells: dict[int, list[int]] = field(default_factory=dict)

    def n_held(self, seq_id: int) -> int:
        return len(self.cells.get(seq_id, ()))

    def decode(self, batch: Batch) -> None:
        assert 0 < len(batch) <= self.n_batch
        counts = Counter(batch.seq_ids)
        assert batch.seq_ids == sorted(batch.seq_ids), "in rising order"
        assert len(set(counts.values())) == 1, "as many tokens of each"
        self.batches.append(batch)
        if len(self.batches) in self.fail_at:
            raise BackendError("the fake was told to fail")
        for token, position, seq_id in zip(batch.tokens, batch.positions, batch.seq_ids, strict=True):
            cells = self.cells.setdefault(seq_id, [])
            assert position == len(cells), "a sequence's positions follow each other"
            cells.append(token)

    def likeliest(self, index: int) -> tuple[int, float]:
        batch = self.batches[-1]
        assert batch.outputs[index], "logits that weren't asked for"
        return self.guess(tuple(self.cells[batch.seq_ids[index]][: batch.positions[index] + 1]))

    def rewind(self, seq_id: int, n_tokens: int) -> None:
        assert n_tokens < len(self.cells[seq_id])
        del self.cells[seq_id][n_tokens:]

    def clear(self, seq_id: int) -> None:
        self.cells.pop(seq_id, None)


@dataclass(slots=True)
class FakeBackend:
    """`script` maps a seed to what is drawn. `decode` checks positions and counts KV cells as llama.cpp would."""

    n_ctx_slot: int = 64
    n_slots: int = 4
    n_batch: int = 64
    n_outputs: int = 64
    script: Callable[[int], str] = lambda seed: "x" * 10_000
    token_s: float = 0.0
    fail_at: frozenset[int] = frozenset()  # numbers of the decodes that fail
    copies_fail: bool = False
    can_rewind: bool = True
    rewinding_fails: bool = False
    decode_cost: float = 1.2
    draft: FakeDraft | None = None
    add_space_prefix: bool = False
    batches: list[Batch] = field(default_factory=list)
    cells: dict[int, list[int]] = field(default_factory=dict)
    samplers: list[FakeSampler] = field(default_factory=list)
    busy: list[bool] = field(default_factory=list)
    vocabulary: FakeVocabulary = field(default_factory=FakeVocabulary)
    can_generate: bool = True
    pooling: Pooling = "mean"
    embeddings: list[FakeEmbeddings] = field(default_factory=list)

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            name="fake",
            n_vocab=N_TOKENS,
            n_ctx_slot=self.n_ctx_slot,
            n_ctx_train=self.n_ctx_slot,
            n_slots=self.n_slots,
            n_params=0,
            size_bytes=0,
            description="a script",
            chat_template=None,
            bos_token="<markup>",
            eos_token="<end>",
            add_bos=False,
            add_space_prefix=self.add_space_prefix,
            can_generate=self.can_generate,
            is_causal=self.can_generate,
            n_embd=2,
            n_ctx_embed=2 * self.n_ctx_slot,
            pooling=self.pooling,
            rank_frame=RankFrame((1,), (2, 3), (4,)) if self.pooling == "rank" else None,
        )

    @property
    def n_cells(self) -> int:
        """KV cells in use."""
        return sum(len(cells) for cells in self.cells.values())

    def decode(self, batch: Batch) -> None:
        assert 0 < len(batch) <= self.n_batch
        assert sum(batch.outputs) <= self.n_outputs
        if len(set(batch.seq_ids)) > 1:
            assert batch.seq_ids == sorted(batch.seq_ids), "in rising order"
            assert len(set(Counter(batch.seq_ids).values())) == 1, "as many tokens of each"
        self.batches.append(batch)
        if self.token_s:
            time.sleep(self.token_s * len(batch))
        if len(self.batches) in self.fail_at:
            raise BackendError("the fake was told to fail")
        for token, position, seq_id in zip(batch.tokens, batch.positions, batch.seq_ids, strict=True):
            assert 0 <= seq_id < self.n_slots
            cells = self.cells.setdefault(seq_id, [])
            assert position == len(cells), "a sequence's positions follow each other"
            cells.append(token)
            assert len(cells) <= self.n_ctx_slot, "the KV cache is full"

    def logits(self, index: int) -> Logits:
        assert self.batches[-1].outputs[index], "logits that weren't asked for"
        return index

    def keep(self, logits: Logits) -> Logits:
        return logits

    def score(self, logits: Logits, token: int, n_top: int) -> TokenLogprobs:
        entry = TokenLogprob(token, self.vocabulary.piece(token), -1.0)
        return TokenLogprobs(entry, (entry,) * n_top)

    def save_sequence(self, seq_id: int) -> SavedSequence:
        if self.copies_fail:
            raise BackendError("the fake was told to fail")
        return tuple(self.cells[seq_id]), None if self.draft is None else tuple(self.draft.cells.get(seq_id, ()))

    def load_sequence(self, seq_id: int, saved: SavedSequence) -> None:
        assert isinstance(saved, tuple)
        assert not self.cells.get(seq_id), "the slot is in use"
        cells, draft_cells = saved
        self.cells[seq_id] = list(cells)
        if self.draft is not None:
            assert not self.draft.cells.get(seq_id), "the draft model's slot is in use"
            self.draft.cells[seq_id] = list(draft_cells)

    def truncate_sequence(self, seq_id: int, n_tokens: int) -> bool:
        assert n_tokens <= len(self.cells[seq_id])
        del self.cells[seq_id][n_tokens:]
        if self.draft is not None:
            del self.draft.cells.get(seq_id, [])[n_tokens:]
        return True

    def rewind_sequence(self, seq_id: int, n_tokens: int) -> None:
        assert self.can_rewind
        assert 0 < n_tokens < len(self.cells[seq_id])
        if self.rewinding_fails:
            raise BackendError("the fake was told to fail")
        del self.cells[seq_id][n_tokens:]

    def remove_sequence(self, seq_id: int) -> None:
        self.cells.pop(seq_id, None)
        if self.draft is not None:
            self.draft.clear(seq_id)

    def compile_grammar(self, gbnf: str) -> Grammar:
        if gbnf.startswith("!"):
            raise GrammarRejected("the fake refuses this grammar")
        return FakeGrammar(gbnf)

    def new_sampler(self, sampling: Sampling, seed: int, grammar: Grammar | None) -> FakeSampler:
        assert grammar is None or isinstance(grammar, FakeGrammar)
        script = [MARKUP if byte == 0x60 else byte for byte in self.script(seed).encode()]  # ` stands for markup
        sampler = FakeSampler(script, grammar)
        self.samplers.append(sampler)
        return sampler

    def open_embeddings(self, n_ctx: int, n_batch: int, n_sequences: int, *, is_pooled: bool) -> FakeEmbeddings:
        self.embeddings.append(FakeEmbeddings(n_ctx, n_batch, n_sequences, is_pooled, token_s=self.token_s))
        return self.embeddings[-1]

    def set_busy(self, busy: bool) -> None:
        self.busy.append(busy)
