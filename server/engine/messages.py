"""Everything that parent and model process say to each other, as frozen data.

Parent to child: Load first, then Add, Cancel, SetBusy, PutGrammar, DropGrammar, questions, Shutdown in any order.
Child to parent: Ready or LoadFailed once, then one StepOutput per step for all sequences, and a Reply per question.
Neither side's module needs the other's: this file imports nothing of llama.cpp, HTTP or converters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias


class FinishReason(str, Enum):
    """Why a sequence ended. STOP: an end-of-generation token, a stop string or a finished grammar; LENGTH: a token limit."""

    STOP = "stop"
    LENGTH = "length"


class FailureKind(str, Enum):
    """Which error of `server.errors` the parent raises for a Failed event."""

    CONTEXT_OVERFLOW = "context_overflow"
    CONSTRAINT_REJECTED = "constraint_rejected"
    TOO_FEW_TOKENS = "too_few_tokens"
    BAD_REQUEST = "bad_request"
    QUEUE_FULL = "queue_full"
    GENERATION_FAILED = "generation_failed"


_DEFAULT_CTX = 8192


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """How to load a model. `n_ctx` is per slot (None: the model's own, at most 8192); `n_threads` None: as many as pay.

    fast_forward: text that a grammar leaves no choice about isn't drawn (spec section 8.3). speculation: what repeats
    earlier text is guessed and checked several tokens at a time; draft_path: the file of a small model of the same
    vocabulary, which guesses too. flash_attention: None is on a GPU only, see `llama.LlamaBackend`. repack: weights
    are laid out anew for the processor, with other sums for some; None: unless that means AMX. hang_timeout_s: a call of the
    sampler that takes longer ends the child, with what runs there. embedding: only for vectors, without a KV cache for
    replies.
    """

    path: str
    n_ctx: int | None = None
    n_slots: int = 4
    n_gpu_layers: int = 0
    n_threads: int | None = None
    n_batch: int = 512
    embedding: bool = False
    max_waiting: int = 64
    fast_forward: bool = True
    speculation: bool = True
    draft_path: str | None = None
    flash_attention: bool | None = None
    repack: bool | None = None
    hang_timeout_s: float = 60.0

    def n_ctx_of(self, n_train: int) -> int:
        """Tokens of one slot's context for a model that was trained for `n_train` of them (0: its file doesn't say)."""
        return self.n_ctx or min(n_train or _DEFAULT_CTX, _DEFAULT_CTX)


Pooling: TypeAlias = Literal["mean", "cls", "last", "rank"]
"""How the vectors of an input's tokens become one; "rank": a score of a query and a document instead."""


@dataclass(frozen=True, slots=True)
class RankFrame:
    """The tokens around a query and a document that are to be ranked."""

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the child knows of its model once it is loaded.

    can_generate: False for one that only makes vectors. n_embd: length of its vectors; n_ctx_embed: most tokens of an input.
    is_causal: a token is seen only by those after it; else an input is read at once. rank_frame: None for one that can't rank.
    """

    name: str
    n_vocab: int
    n_ctx_slot: int
    n_ctx_train: int
    n_slots: int
    n_params: int
    size_bytes: int
    description: str
    chat_template: str | None
    bos_token: str
    eos_token: str
    add_bos: bool
    add_space_prefix: bool
    metadata: dict[str, str] = field(default_factory=dict)
    can_generate: bool = True
    is_causal: bool = True
    n_embd: int = 0
    n_ctx_embed: int = 0
    pooling: Pooling = "mean"
    rank_frame: RankFrame | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of the sampler chain, with llama.cpp's defaults. `temperature` 0 is greedy; `seed` None draws one.

    `mirostat` is 0, 1 or 2 and replaces the truncation samplers. `logit_bias` pairs a token id with what is added.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    grammar_first: bool = False


OnLength: TypeAlias = Literal["complete", "stop", "cut"]
"""What a constrained reply does at its last tokens: it is completed and says "length" or "stop", or it is cut off."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """A block of thinking before the answer; no constraint and no stop string counts in it.

    start, end: its markers, control tokens by name. gap: written between the end and an answer that a grammar holds.
    is_open: the prompt has begun it. is_forced: the reply begins with it; else the model has it or not.
    max_tokens: of what stands between the markers. grammar_key: of that and the end marker; None: it is free.
    """

    start: str
    end: str
    gap: str = ""
    is_open: bool = False
    is_forced: bool = False
    max_tokens: int | None = None
    grammar_key: str | None = None


@dataclass(frozen=True, slots=True)
class Trigger:
    """Where `text` appears in free text, the grammar holds what follows. `is_at_start`: only as the first of the answer."""

    text: str
    grammar_key: str
    is_at_start: bool = False


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A prompt and what to make of it: `n` choices that share the prompt's KV cache; choice i samples with `seed + i`.

    prompt: text, or token ids taken as they are. add_special/parse_special: as llama_tokenize has them, for text.
    max_tokens: None is to the end of the slot's context; with clips_to_context one past that is the same.
    grammar_key: of a grammar sent by PutGrammar before.
    logprobs: None for none, else how many alternatives to list beside the sampled token (0 to 20).
    prompt_logprobs: the same for the prompt's own tokens (echo), reported in Started.
    thinking: a block before the answer. triggers: what opens a call in an answer without a grammar; the text is free again
    after it, or with `ends_after_call` over. visible: names of control tokens that count as text.
    prediction: what the reply is thought to be, which speculation begins with.
    """

    id: int
    prompt: str | tuple[int, ...]
    add_special: bool = True
    parse_special: bool = True
    n: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    grammar_key: str | None = None
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    unconstrained_on_failure: bool = False
    thinking: Thinking | None = None
    triggers: tuple[Trigger, ...] = ()
    ends_after_call: bool = False
    visible: tuple[str, ...] = ()
    on_length: OnLength = "complete"
    clips_to_context: bool = False
    prediction: str = ""

    @property
    def grammar_keys(self) -> tuple[str, ...]:
        """The keys of all grammars that the request uses."""
        inside = self.thinking.grammar_key if self.thinking is not None else None
        keys = (self.grammar_key, inside, *(trigger.grammar_key for trigger in self.triggers))
        return tuple(key for key in keys if key is not None)


# ---- parent to child


@dataclass(frozen=True, slots=True)
class Load:
    """The first message: load this model."""

    spec: ModelSpec


@dataclass(frozen=True, slots=True)
class Add:
    """Queue a request."""

    request: EngineRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    """Forget a request, running or waiting. Unknown ids are ignored."""

    id: int


@dataclass(frozen=True, slots=True)
class PutGrammar:
    """Keep a grammar (text, and the reference matcher's tables) under `key` for requests to come."""

    key: str
    gbnf: str
    tables: bytes = b""


@dataclass(frozen=True, slots=True)
class DropGrammar:
    """Forget the grammar of that key; requests that use it already go on."""

    key: str


@dataclass(frozen=True, slots=True)
class SetBusy:
    """True while something heavy runs elsewhere in the server: decode with one thread fewer."""

    busy: bool


@dataclass(frozen=True, slots=True)
class Tokenize:
    """Ask for the tokens of `text`; answered by a Reply whose value is a tuple of ids."""

    question: int
    text: str
    add_special: bool = False
    parse_special: bool = True


@dataclass(frozen=True, slots=True)
class Detokenize:
    """Ask for the text of `tokens`; answered by a Reply whose value is bytes."""

    question: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenizeAll:
    """Ask for the tokens of each text; answered by a Reply whose value is a tuple of tuples of ids.

    A text that has more than `most` tokens for sure ends it: its entry is their least number, and nothing comes after.
    """

    question: int
    texts: tuple[str, ...]
    add_special: bool
    parse_special: bool
    most: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """Ask for the text of each of `tokens`; answered by a Reply whose value is a tuple of bytes."""

    question: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckGrammar:
    """Ask whether the grammar of that key can be used with this vocabulary; answered by a Reply without value, or an error."""

    question: int
    key: str


@dataclass(frozen=True, slots=True)
class Embed:
    """Ask for a vector of each input, of length 1, as little-endian float32 bytes; or with `is_ranking` for one float of each.

    Answered by a Reply whose value is a tuple of bytes. A Cancel with the question's number forgets it.
    """

    question: int
    inputs: tuple[tuple[int, ...], ...]
    is_ranking: bool = False


@dataclass(frozen=True, slots=True)
class InspectSlots:
    """Ask what the slots are at; answered by a Reply whose value is a tuple of SlotState."""

    question: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End the process."""


# ---- child to parent


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded."""

    info: ModelInfo


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The model can't be loaded; the process ends."""

    message: str


@dataclass(frozen=True, slots=True)
class SlotState:
    """What a slot is at; `request` None: at nothing. Tokens: of the prompt, read of it, written, and still allowed."""

    slot: int
    request: int | None = None
    choice: int = 0
    n_prompt: int = 0
    n_prompt_read: int = 0
    n_decoded: int = 0
    n_left: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the question of that number; `error` is set instead of `value` when there is none, and `kind` is its."""

    question: int
    value: object = None
    error: str | None = None
    kind: FailureKind = FailureKind.BAD_REQUEST


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token and its log-probability under the model's raw distribution. `bytes` are what it adds to the output."""

    token: int
    bytes: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A sampled (or prompt) token with the likeliest alternatives, best first. `chosen` is None for a first prompt token."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """The request has a slot and its prompt is being read; errors that a client should see as a 4xx come before this."""

    id: int
    n_prompt_tokens: int
    n_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PromptScored:
    """The prompt's tokens with their log-probabilities (only asked for with prompt_logprobs); the first has None."""

    id: int
    tokens: tuple[TokenLogprobs | None, ...]
    first_token: tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Whole characters of choice `index`, stop strings and half characters held back. `text` may be "" with logprobs."""

    id: int
    index: int
    text: str
    n_tokens: int
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """Choice `index` has ended. `stop_string` is the one that ended it, if one did. Times are in seconds.

    n_rejected_tokens: how often the grammar refused a token that was drawn. n_drafted_tokens: guessed by speculation;
    n_accepted_tokens: of these, those that were what was drawn then. n_predicted_tokens and n_fulfilled_tokens: the same of
    those alone that the client predicted.
    """

    id: int
    index: int
    reason: FinishReason
    n_completion_tokens: int
    stop_string: str | None = None
    n_forced_tokens: int = 0
    n_rejected_tokens: int = 0
    n_drafted_tokens: int = 0
    n_accepted_tokens: int = 0
    n_predicted_tokens: int = 0
    n_fulfilled_tokens: int = 0
    n_reasoning_tokens: int = 0
    prompt_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Failed:
    """The request (index None) or one of its choices ended with an error."""

    id: int
    kind: FailureKind
    message: str
    index: int | None = None
    detail: dict[str, int] = field(default_factory=dict)


EngineEvent: TypeAlias = Started | PromptScored | TextChunk | Finished | Failed


@dataclass(frozen=True, slots=True)
class StepOutput:
    """All that one step produced, for every sequence of every request."""

    events: tuple[EngineEvent, ...]


Question: TypeAlias = Tokenize | TokenizeAll | Detokenize | Pieces | CheckGrammar | Embed | InspectSlots
ToChild: TypeAlias = Load | Add | Cancel | PutGrammar | DropGrammar | SetBusy | Question | Shutdown
ToParent: TypeAlias = Ready | LoadFailed | Reply | StepOutput
ModelState: TypeAlias = Literal["loading", "ready", "restarting", "failed", "stopped"]
