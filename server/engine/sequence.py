"""The state of what is being generated: a Job is a request, a Sequence one of its choices. No decisions are taken here."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from server.engine.backend import Batch, Logits, SavedSequence, TokenSampler
from server.engine.course import Course
from server.engine.lookup import PromptIndex
from server.engine.messages import EngineRequest, TokenLogprobs
from server.engine.prefix import n_reusable
from server.engine.route import Route
from server.engine.speculation import Drafter
from server.engine.text import TextAssembler

_LONGEST_RUN = 32  # tokens of a choice in one decode, which others wait for


@dataclass(slots=True, eq=False)
class Job:
    """A request with its prompt as tokens. `samplers[i]` is choice i's; `max_new` counts tokens of one choice.

    The first choice's slot reads the prompt; what it made of it is copied to the others, those that start later included.
    """

    request: EngineRequest
    prompt: tuple[int, ...]
    max_new: int
    samplers: list[TokenSampler]
    route: Route | None = None  # None: nothing rules the reply
    visible: frozenset[int] = frozenset()  # control tokens that count as text
    pending: deque[int] = field(default_factory=deque)  # choices that haven't started
    running: list[Sequence] = field(default_factory=list)
    n_prefilled: int = 0
    in_common: dict[int, int] = field(default_factory=dict)  # with other requests by their number, as far as it was asked
    prompt_cells: SavedSequence | None = None  # kept while choices are pending
    last_logits: Logits | None = None  # after the prompt
    scores: list[TokenLogprobs | None] = field(default_factory=list)
    prediction: tuple[int, ...] = ()  # of the replies, by the client
    index: PromptIndex | None = None  # of that and the prompt, where there is something to guess
    started_at: float = 0.0
    prompt_s: float = 0.0

    def __post_init__(self) -> None:
        self.pending.extend(range(self.request.n))

    @property
    def id(self) -> int:
        """The request's number."""
        return self.request.id

    @property
    def is_prefilled(self) -> bool:
        """Whether the whole prompt is in the KV cache."""
        return self.n_prefilled == len(self.prompt)

    @property
    def is_over(self) -> bool:
        """Whether every choice has ended."""
        return not self.pending and not self.running

    @property
    def wants_scores(self) -> bool:
        """Whether the prompt's own tokens are to be scored."""
        return self.request.prompt_logprobs is not None

    @property
    def is_begun(self) -> bool:
        """Whether the prompt, or what no slot held of it, is being read or was."""
        return self.started_at > 0

    @property
    def reusable(self) -> tuple[int, ...]:
        """The prompt, as far as it may be in a slot already: not once it is being read, nor where all of it is to be scored."""
        return () if self.is_begun or self.wants_scores else self.prompt

    def n_common(self, other: Job) -> int:
        """How much of the prompt could be taken from the cells of `other` once it has read that."""
        if other.id not in self.in_common:
            self.in_common[other.id] = n_reusable(other.prompt, self.reusable)
        return self.in_common[other.id]

    @property
    def lead(self) -> Sequence:
        """The choice whose slot reads the prompt."""
        return self.running[0]

    def free_samplers(self) -> None:
        """Give back what choices that never started hold."""
        for index in self.pending:
            self.samplers[index].free()
        self.pending.clear()


@dataclass(slots=True, eq=False)
class Sequence:
    """One choice. `next_tokens` were taken and aren't decoded yet; `position` is where the first of them goes.

    `draft` is a guess at what comes after them, to be decoded with them; `n_drafted` and `n_accepted` count such tokens,
    `n_predicted` and `n_fulfilled` those of them that the client predicted, the first `n_predicted_now` of what is to come.
    """

    job: Job
    index: int
    seq_id: int
    sampler: TokenSampler
    text: TextAssembler
    position: int
    course: Course | None = None
    next_tokens: list[int] = field(default_factory=list)
    drafter: Drafter | None = None
    draft: tuple[int, ...] = ()
    n_drafted: int = 0
    n_accepted: int = 0
    n_predicted_now: int = 0
    n_predicted: int = 0
    n_fulfilled: int = 0
    n_tokens: int = 0
    first_token_at: float = 0.0

    @property
    def n_left(self) -> int:
        """How many more tokens the choice may have."""
        return self.job.max_new - self.n_tokens

    @property
    def is_running(self) -> bool:
        """Whether neither the choice nor its request has ended."""
        return self in self.job.running

    @property
    def can_decode(self) -> bool:
        """Whether there are tokens to run the model on."""
        return bool(self.next_tokens)

    @property
    def can_run_ahead(self) -> bool:
        """Whether tokens that need no drawing may be taken before those before them are decoded: not where each is scored."""
        return self.job.request.logprobs is None and 0 < len(self.next_tokens) < _LONGEST_RUN

    @property
    def is_free(self) -> bool:
        """Whether the next token may be any of the vocabulary."""
        return self.course is None or self.course.is_free

    @property
    def n_to_decode(self) -> int:
        """Tokens of the next decode."""
        return len(self.next_tokens) + len(self.draft)

    def put(self, batch: Batch) -> int:
        """Add the next tokens and the draft to a batch, which is to be decoded; the index of the last of the next tokens,
        from which on logits are wanted."""
        row = 0
        last = self.position + len(self.next_tokens) - 1
        for token in self.next_tokens:
            row = batch.add(token, self.position, self.seq_id, output=self.position == last)
            self.position += 1
        for place, token in enumerate(self.draft):
            batch.add(token, self.position + place, self.seq_id, output=True)
        self.next_tokens = []
        return row

    def confirm(self, token: int) -> bool:
        """Whether the drafted `token`, whose cell is next, is what was taken; then it counts as decoded."""
        if self.next_tokens[:1] != [token]:
            return False
        del self.next_tokens[0]
        self.position += 1
        self.n_accepted += 1
        self.n_fulfilled += self.n_predicted_now > 0
        self.n_predicted_now -= 1
        return True

    @property
    def decode_s(self) -> float:
        """Seconds since the first token."""
        return time.monotonic() - self.first_token_at if self.first_token_at else 0.0
