"""The step loop: one batch for all sequences, one draw each, one StepOutput with everything that came of it.

Single-threaded; `intake` brings it requests that are ready to run. Talks to the model only through `backend.Backend`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeAlias

from typing_extensions import assert_never

from server.engine.backend import Backend, BackendError, Batch, Logits
from server.engine.messages import (
    Cancel,
    EngineEvent,
    Failed,
    FailureKind,
    Finished,
    FinishReason,
    PromptScored,
    SetBusy,
    Shutdown,
    Started,
    StepOutput,
    TextChunk,
)
from server.engine.scheduler import PrefillPace, QueueIsFull, Scheduler, Share
from server.engine.sequence import Job, Sequence
from server.engine.text import Released

logger = logging.getLogger(__name__)

Inbox: TypeAlias = "SimpleQueue[Job | Cancel | SetBusy | Shutdown]"


@dataclass(frozen=True, slots=True)
class _Row:
    """Where in the batch a sequence's logits are, or those of a job's chunk of prompt."""

    owner: Sequence | Share
    first: int


class Core:
    """All requests of one model. `step` is to be called while `has_work`."""

    def __init__(self, backend: Backend, max_waiting: int = 64) -> None:
        info = backend.info
        self._backend = backend
        self._scheduler = Scheduler(info.n_slots, info.n_slots * info.n_ctx_slot, max_waiting, info.add_space_prefix)
        self._pace = PrefillPace(backend.n_batch)
        self._events: list[EngineEvent] = []

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return self._scheduler.has_work or bool(self._events)

    def run(self, inbox: Inbox, emit: Callable[[StepOutput], None]) -> None:
        """Steps, and sleep where there is nothing to do, until a Shutdown comes."""
        while True:
            while not self.has_work or not inbox.empty():
                if not self.handle(inbox.get()):
                    return
            events = self.step()
            if events:
                emit(StepOutput(events))

    def handle(self, message: Job | Cancel | SetBusy | Shutdown) -> bool:
        """Take one message; False ends the loop."""
        match message:
            case Job():
                self.add(message)
            case Cancel():
                self.cancel(message.id)
            case SetBusy():
                self._backend.set_busy(message.busy)
            case Shutdown():
                return False
            case _:
                assert_never(message)
        return True

    def add(self, job: Job) -> None:
        """Queue a request; the answer to a full queue is an event of the next step."""
        self._admit()
        try:
            self._scheduler.add(job)
        except QueueIsFull:
            job.free_samplers()
            self._events.append(Failed(job.id, FailureKind.QUEUE_FULL, "too many requests are waiting"))

    def cancel(self, job_id: int) -> None:
        """Forget a request; its KV cells are free at once."""
        if (job := self._scheduler.find(job_id)) is not None:
            self._remove(job)

    def step(self) -> tuple[EngineEvent, ...]:
        """Admit, decode one batch, draw. Returns the events in order."""
        self._admit()
        batch, rows = self._fill_batch()
        if len(batch) and self._decode(batch):
            for row in rows:
                self._take_row(row)
        events, self._events = tuple(self._events), []
        return events

    def _admit(self) -> None:
        for sequence in self._scheduler.admit():
            self._begin(sequence)

    def _begin(self, sequence: Sequence) -> None:
        """A choice got its slot. One that comes after its prompt was read starts from the kept logits."""
        job = sequence.job
        if not job.started_at:
            job.started_at = time.monotonic()
            self._events.append(Started(job.id, len(job.prompt)))
        if job.is_prefilled:
            assert job.last_logits is not None
            self._share_prompt(sequence)
            self._advance(sequence, job.last_logits)

    def _share_prompt(self, sequence: Sequence) -> None:
        job = sequence.job
        assert job.stem is not None
        if sequence.seq_id != job.stem:
            self._backend.copy_sequence(job.stem, sequence.seq_id)

    # -- the batch

    def _fill_batch(self) -> tuple[Batch, list[_Row]]:
        batch = Batch()
        rows = [self._add_decode(batch, sequence) for sequence in self._scheduler.decoding]
        room = self._backend.n_outputs - len(batch)
        for share in self._scheduler.share_prefill(self._pace.budget(len(batch))):
            fitted = Share(share.job, min(share.n_tokens, room)) if share.job.wants_scores else share
            if fitted.n_tokens > 0 and room > 0:
                rows.append(self._add_chunk(batch, fitted))
                room -= fitted.n_tokens if share.job.wants_scores else 1
        return batch, rows

    @staticmethod
    def _add_decode(batch: Batch, sequence: Sequence) -> _Row:
        assert sequence.next_token is not None
        row = _Row(sequence, batch.add(sequence.next_token, sequence.position, sequence.seq_id, output=True))
        sequence.next_token = None
        sequence.position += 1
        return row

    @staticmethod
    def _add_chunk(batch: Batch, share: Share) -> _Row:
        job, first = share.job, len(batch)
        assert job.stem is not None
        for position in range(job.n_prefilled, job.n_prefilled + share.n_tokens):
            is_last = position == len(job.prompt) - 1
            batch.add(job.prompt[position], position, job.stem, output=is_last or job.wants_scores)
        return _Row(share, first)

    def _decode(self, batch: Batch) -> bool:
        begun = time.monotonic()
        try:
            self._backend.decode(batch)
        except BackendError as error:
            self._fail_batch(batch, str(error))
            return False
        self._pace.learn(len(batch), time.monotonic() - begun)
        return True

    def _fail_batch(self, batch: Batch, message: str) -> None:
        """The requests that had tokens in a batch that failed are lost, the others not."""
        seq_ids = set(batch.seq_ids)
        jobs = {sequence.job.id: sequence.job for sequence in self._scheduler.running}
        for job in jobs.values():
            if job.stem in seq_ids or any(sequence.seq_id in seq_ids for sequence in job.running):
                self._remove(job)
                self._events.append(Failed(job.id, FailureKind.GENERATION_FAILED, message))

    def _take_row(self, row: _Row) -> None:
        match row.owner:
            case Sequence() as sequence:
                self._advance(sequence, self._backend.logits(row.first))
            case Share() as share:
                self._take_chunk(share, row.first)
            case _:
                assert_never(row.owner)

    # -- the prompt

    def _take_chunk(self, share: Share, first: int) -> None:
        job = share.job
        if job.wants_scores:
            self._score_chunk(share, first)
        job.n_prefilled += share.n_tokens
        if job.is_prefilled:
            self._finish_prompt(job, self._backend.logits(first + share.n_tokens - 1))

    def _score_chunk(self, share: Share, first: int) -> None:
        """Each position's logits score the prompt's next token."""
        job = share.job
        if not job.scores:
            job.scores.append(None)
        for i in range(share.n_tokens):
            position = job.n_prefilled + i + 1
            if position < len(job.prompt):
                score = self._backend.score(
                    self._backend.logits(first + i), job.prompt[position], job.request.prompt_logprobs or 0
                )
                job.scores.append(score)

    def _finish_prompt(self, job: Job, logits: Logits) -> None:
        job.prompt_s = time.monotonic() - job.started_at
        if job.wants_scores:
            first = job.prompt[0]
            piece = self._backend.vocabulary.piece(first)
            self._events.append(PromptScored(job.id, tuple(job.scores), (first, piece)))
        if job.pending:
            job.last_logits = self._backend.keep(logits)
        running = list(job.running)
        for sequence in running:
            self._share_prompt(sequence)
        for sequence in running:
            self._advance(sequence, logits)

    # -- a sequence

    def _advance(self, sequence: Sequence, logits: Logits) -> None:
        """Draw the next token of a sequence and tell what came of it."""
        job = sequence.job
        if sequence.n_tokens >= job.max_new:
            self._finish(sequence, FinishReason.LENGTH)  # max_tokens 0: only the prompt was wanted
            return
        if sequence.n_tokens == 0 and sequence.sampler.must_end():
            self._finish(sequence, FinishReason.STOP)  # the empty text is the grammar's only sentence
            return
        token = self._draw(sequence, logits)
        if token is None:
            self._fail(sequence)
        elif self._backend.vocabulary.is_eog(token) and token not in job.visible:
            self._finish(sequence, FinishReason.STOP)
        else:
            self._accept(sequence, token, logits)

    def _draw(self, sequence: Sequence, logits: Logits) -> int | None:
        token = sequence.sampler.draw(logits)
        if token is None and sequence.job.request.unconstrained_on_failure:
            logger.warning("request %d: the grammar permits no token, going on without it", sequence.job.id)
            sequence.sampler.drop_grammar()
            return sequence.sampler.draw(logits)
        return token

    def _accept(self, sequence: Sequence, token: int, logits: Logits) -> None:
        job = sequence.job
        sequence.sampler.accept(token)
        sequence.n_tokens += 1
        sequence.first_token_at = sequence.first_token_at or time.monotonic()
        n_top = job.request.logprobs
        scores = None if n_top is None else self._backend.score(logits, token, n_top)
        released = sequence.text.push(self._visible_piece(job, token), scores)
        if sequence.text.is_stopped:
            self._finish(sequence, FinishReason.STOP, released)
        elif sequence.sampler.must_end():
            self._tell(sequence, released)
            self._finish(sequence, FinishReason.STOP)
        elif sequence.n_tokens >= job.max_new:
            self._tell(sequence, released)
            self._finish(sequence, FinishReason.LENGTH)
        else:
            self._tell(sequence, released)
            sequence.next_token = token

    def _visible_piece(self, job: Job, token: int) -> bytes:
        """What the token adds to the text: control tokens nothing, unless the grammar names them."""
        vocabulary = self._backend.vocabulary
        return b"" if vocabulary.is_control(token) and token not in job.visible else vocabulary.piece(token)

    def _tell(self, sequence: Sequence, released: Released) -> None:
        if not released.is_empty:
            self._events.append(TextChunk(sequence.job.id, sequence.index, released.text, released.n_tokens, released.logprobs))

    def _finish(self, sequence: Sequence, reason: FinishReason, released: Released | None = None) -> None:
        """`released` is given where a stop string has ended the text; else what was held back comes out."""
        self._tell(sequence, sequence.text.finish() if released is None else released)
        self._events.append(
            Finished(
                sequence.job.id,
                sequence.index,
                reason,
                sequence.n_tokens,
                stop_string=sequence.text.stop_string,
                prompt_s=sequence.job.prompt_s,
                decode_s=sequence.decode_s,
            )
        )
        self._end(sequence)

    def _fail(self, sequence: Sequence) -> None:
        message = "the grammar permits no token of the vocabulary here"
        self._events.append(Failed(sequence.job.id, FailureKind.GENERATION_FAILED, message, index=sequence.index))
        self._end(sequence)

    def _end(self, sequence: Sequence) -> None:
        sequence.sampler.free()
        for seq_id in self._scheduler.end(sequence):
            self._backend.remove_sequence(seq_id)

    def _remove(self, job: Job) -> None:
        for sequence in job.running:
            sequence.sampler.free()
        for seq_id in self._scheduler.remove(job):
            self._backend.remove_sequence(seq_id)
        job.free_samplers()
