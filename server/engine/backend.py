"""The seam between the step loop and a model: what the engine's core needs of llama.cpp, and what a test's fake provides.

Nothing here imports llama_cpp; `llama.py` is the real thing. A backend belongs to the thread that runs the step loop,
but for the methods of `Vocabulary` and `compile_grammar`, which any thread may call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from server.engine.messages import ModelInfo, Sampling, TokenLogprobs

Logits: TypeAlias = object
"""A row of raw logits. Only the backend that made it looks inside; valid until the next decode unless kept by `keep`."""


Vector: TypeAlias = Any
"""A numpy array of float32, which this module need not know."""

SavedSequence: TypeAlias = object
"""KV cells outside the cache. Only the backend that made it looks inside."""


class BackendError(Exception):
    """A decode failed; the sequences of that batch are lost, the model is not."""


class GrammarRejected(Exception):
    """The native parser, or the vocabulary, can't take a grammar. The text is for the client."""


@dataclass(slots=True)
class Batch:
    """Tokens for one decode: of some sequences, one after the other in rising order of their ids.

    A `Backend` gets as many tokens of each, an `EmbeddingContext` need not. `outputs` says for which of them logits are wanted.
    """

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    seq_ids: list[int] = field(default_factory=list)
    outputs: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, token: int, position: int, seq_id: int, output: bool) -> int:
        """Append a token; returns its index in the batch."""
        self.tokens.append(token)
        self.positions.append(position)
        self.seq_ids.append(seq_id)
        self.outputs.append(output)
        return len(self.tokens) - 1


class Vocabulary(Protocol):
    """The model's tokens. Safe to use from any thread."""

    @property
    def n_tokens(self) -> int:
        """How many there are."""

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        """Token ids of `text`."""

    def piece(self, token: int) -> bytes:
        """The bytes that a token spells, a control token its name."""

    @property
    def longest_piece(self) -> int:
        """The most bytes that one token spells."""

    def begins_token(self, text: bytes) -> bool:
        """Whether a token of text that is longer than `text` begins with it."""

    def byte_token(self, byte: int) -> int | None:
        """The token that spells this one byte."""

    def is_eog(self, token: int) -> bool:
        """Whether the token ends a reply."""

    def is_control(self, token: int) -> bool:
        """Whether the token is markup of the model and no text."""

    @property
    def fallback_start(self) -> int | None:
        """What stands for an empty prompt: the token that begins a text, else the one that ends it."""


class Grammar(Protocol):
    """A grammar in its first state, ready to be cloned for a sequence."""

    @property
    def named_tokens(self) -> frozenset[int]:
        """Tokens that the grammar asks for by name or id: a control token among them is part of the output."""


class Reference(Protocol):
    """A second opinion on a grammar, for what the native sampler gets wrong."""

    def permits(self, token: int) -> bool:
        """Whether `token` may come next."""

    def may_end(self) -> bool:
        """Whether the text so far is a sentence."""


class TokenSampler(Protocol):
    """The sampling state of one sequence: chain, RNG and grammar."""

    @property
    def n_rejected(self) -> int:
        """How often the grammar refused a drawn token."""

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        """Show the prompt to the penalties, as llama.cpp's server does."""

    def draw(self, logits: Logits) -> int | None:
        """The next token; None where the grammar permits none at all (a dead end)."""

    def accept(self, token: int) -> None:
        """Take the drawn token. Only what `draw` gave may be accepted."""

    def must_end(self) -> bool:
        """Whether nothing but the end of the reply is possible in this state."""

    def force(self, token: int) -> bool:
        """Take a token that wasn't drawn; False, and nothing changes, where the grammar doesn't permit it."""

    def set_grammar(self, grammar: Grammar | None, offered: int | None = None) -> None:
        """Go on with this grammar from its start, or with none. The token `offered` is permitted too, as the next one: after
        it the grammar must be set anew."""

    def set_reference(self, reference: Reference | None) -> None:
        """Heed a second opinion on the grammar. It must have taken a token before the sampler is asked about the next."""

    def free(self) -> None:
        """Give the native state back."""


class EmbeddingContext(Protocol):
    """A context that gives vectors, with cells of its own. Belongs to the thread that runs the step loop."""

    @property
    def n_ctx(self) -> int:
        """Tokens that it has room for."""

    @property
    def n_batch(self) -> int:
        """Most tokens of one decode."""

    def decode(self, batch: Batch) -> float:
        """Run the model over `batch`; returns the seconds that took. Raises BackendError."""

    def row(self, index: int) -> Vector:
        """The vector of the batch's token `index`; only where the context doesn't pool."""

    def pooled(self, seq_id: int) -> Vector:
        """The vector (or the scores) of a sequence of the batch; only where the context pools."""

    def clear(self) -> None:
        """Empty the cells."""

    def free(self) -> None:
        """Give the native state back."""


class DraftModel(Protocol):
    """A small model of the same vocabulary, with slots of its own.

    They follow the backend's: what that does to a slot's cells, decodes and rewinds left out, is done to the slot here too.
    """

    @property
    def share(self) -> float:
        """Its size as a share of the target's."""

    @property
    def n_batch(self) -> int:
        """Most tokens of one decode."""

    def n_held(self, seq_id: int) -> int:
        """Tokens in the slot."""

    def decode(self, batch: Batch) -> None:
        """Run the model over `batch`. Raises BackendError."""

    def likeliest(self, index: int) -> tuple[int, float]:
        """The likeliest token after the batch's token `index`, of those that the target has, and its probability."""

    def rewind(self, seq_id: int, n_tokens: int) -> None:
        """Keep only the slot's first `n_tokens` tokens. Raises BackendError."""

    def clear(self, seq_id: int) -> None:
        """Empty the slot."""


class Backend(Protocol):
    """A loaded model with a KV cache of its own for each of its slots; a sequence's id is its slot's number."""

    @property
    def info(self) -> ModelInfo:
        """What is known of the model."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Its tokens."""

    @property
    def n_batch(self) -> int:
        """Most tokens of one decode."""

    @property
    def n_outputs(self) -> int:
        """Most tokens of one decode for which logits may be asked."""

    def decode(self, batch: Batch) -> None:
        """Run the model over `batch`. Raises BackendError."""

    def logits(self, index: int) -> Logits:
        """The logits after the batch's token `index`."""

    def keep(self, logits: Logits) -> Logits:
        """A copy that outlives the next decode."""

    def score(self, logits: Logits, token: int, n_top: int) -> TokenLogprobs:
        """Log-probabilities of `token` and of the `n_top` likeliest under the raw distribution of `logits`."""

    def save_sequence(self, seq_id: int) -> SavedSequence:
        """A copy of the KV cells of `seq_id`."""

    def load_sequence(self, seq_id: int, saved: SavedSequence) -> None:
        """Fill the empty slot `seq_id` with saved KV cells."""

    def truncate_sequence(self, seq_id: int, n_tokens: int) -> bool:
        """Keep only the first `n_tokens` of the slot's cells; False where this model can't."""

    def remove_sequence(self, seq_id: int) -> None:
        """Empty the slot `seq_id`."""

    @property
    def draft(self) -> DraftModel | None:
        """The model that guesses, where there is one."""

    @property
    def decode_cost(self) -> float:
        """What a decode costs before it has any tokens, in tokens. Not measured, but fixed."""

    @property
    def can_rewind(self) -> bool:
        """Whether tokens that were decoded last can be taken back: not where cells hold a state of the whole text."""

    def rewind_sequence(self, seq_id: int, n_tokens: int) -> None:
        """Take back what the last decode put into a slot after its first `n_tokens` cells. Raises BackendError."""

    def compile_grammar(self, gbnf: str) -> Grammar:
        """Read a grammar (from any thread). Raises GrammarRejected."""

    def new_sampler(self, sampling: Sampling, seed: int, grammar: Grammar | None) -> TokenSampler:
        """The sampling state of a new sequence; takes its own copy of `grammar` (from any thread)."""

    def open_embeddings(self, n_ctx: int, n_batch: int, n_sequences: int, *, is_pooled: bool) -> EmbeddingContext:
        """Another context of the model, for vectors. Raises BackendError."""

    def set_busy(self, busy: bool) -> None:
        """Leave a core to others, or take it back."""
