"""The step loop: a token of every running sequence, a piece of every waiting prompt, one StepOutput with all that came of it.

A sequence's numbers do not depend on who runs beside it: what shares a batch has as many tokens there each, and each slot
has its own KV cache.

Single-threaded; `intake` brings it requests that are ready to run. Talks to the model only through `backend.Backend`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from queue import SimpleQueue
from typing import TypeAlias

from typing_extensions import assert_never

from converters.grammar.match.matcher import TooManyStacks
from server.engine.backend import Backend, BackendError, Batch, Logits
from server.engine.cells import Cells
from server.engine.course import Course, DeadEnd, Step
from server.engine.drafts import Drafts
from server.engine.embedding import Embedder, EmbedJob
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
from server.engine.scheduler import PrefillPace, QueueIsFull, Scheduler, Share, group_equals, group_shares
from server.engine.sequence import Job, Sequence
from server.engine.slots import Inspection
from server.engine.spelling import Speller
from server.engine.text import Released
from server.engine.watchdog import Watchdog, no_watchdog

logger = logging.getLogger(__name__)

_MOST_MESSAGES = 32  # between two steps: a request whose prompt a slot holds can be answered where it is handled
_MOST_RUNS = 3  # of a sequence in one step, which others wait for

Task: TypeAlias = Job | Cancel | EmbedJob | Inspection | SetBusy | Shutdown
Inbox: TypeAlias = "SimpleQueue[Task]"


class Core:
    """All requests of one model. `step` is to be called while `has_work`."""

    def __init__(
        self, backend: Backend, max_waiting: int = 64, watchdog: Watchdog | None = None, *, speculates: bool = False
    ) -> None:
        info = backend.info
        self._backend = backend
        self._scheduler = Scheduler(info.n_slots, max_waiting, info.add_space_prefix)
        self._pace = PrefillPace(backend.n_batch)
        self._events: list[EngineEvent] = []
        self._decodes_next = False
        self._speller = Speller(backend.vocabulary)
        self._embedder = Embedder(backend, max_waiting)
        self._cells = Cells(backend)
        self._drafts = Drafts(backend, speculates)
        self._watchdog = watchdog or no_watchdog()

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return self._scheduler.has_work or self._embedder.has_work or bool(self._events)

    def run(self, inbox: Inbox, emit: Callable[[StepOutput], None]) -> None:
        """Steps, and sleep where there is nothing to do, until a Shutdown comes."""
        while True:
            n_handled = 0
            while not self.has_work or (n_handled < _MOST_MESSAGES and not inbox.empty()):
                if not self.handle(inbox.get()):
                    return
                n_handled += 1
            events = self.step()
            if events:
                emit(StepOutput(events))

    def handle(self, message: Task) -> bool:
        """Take one message; False ends the loop."""
        match message:
            case Job():
                self.add(message)
            case Cancel():
                self.cancel(message.id)
            case EmbedJob():
                self._embedder.add(message)
            case Inspection():
                message.answer(self._backend.info.n_slots, self._scheduler.running)
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
        self._embedder.cancel(job_id)
        if (job := self._scheduler.find(job_id)) is not None:
            self._remove(job, is_sound=True)

    def step(self) -> tuple[EngineEvent, ...]:
        """Admit, decode a token of every running sequence, read some of the waiting prompts. Returns the events in order.

        What came of admitting alone, a first token after a prompt that a slot held, needn't wait for the decode: it is
        returned at once, but not twice in a row.
        """
        self._admit()
        self._decodes_next = bool(self._events) and not self._decodes_next
        if self._decodes_next:
            return self._take_events()
        for move in self._scheduler.compact():
            self._cells.move(move)
        decoding = self._scheduler.decoding
        if decoding:
            self._decode(decoding)
        budget = self._pace.budget(len(decoding), self._scheduler.n_unread)
        shares = self._scheduler.share_prefill(budget, self._backend.n_outputs, self._begin_reading, self._n_known)
        for group in group_shares(shares, self._backend.n_batch):
            self._read(group)
        if self._embedder.has_work:
            self._embedder.step(is_alone=not self._scheduler.has_work)
        return self._take_events()

    def _take_events(self) -> tuple[EngineEvent, ...]:
        events, self._events = tuple(self._events), []
        return events

    def _admit(self) -> None:
        for sequence in self._scheduler.admit(self._cells.choose):
            if sequence.is_running:  # one before it may have ended the request
                self._begin(sequence)
        for job in self._scheduler.started:
            if job.is_prefilled and not job.is_begun:
                self._begin_reading(job)
                self._finish_prompt(job)

    def _begin(self, sequence: Sequence) -> None:
        """A choice got its slot. One that comes after its prompt was read starts from the kept logits."""
        job = sequence.job
        self._cells.occupy(sequence)
        if job.is_prefilled and job.is_begun:
            assert job.last_logits is not None
            if self._attempt([job], lambda: self._backend.load_sequence(sequence.seq_id, job.prompt_cells)):
                self._advance(sequence, job.last_logits)

    def _begin_reading(self, job: Job) -> None:
        """The request's prompt is about to be read, as far as no slot holds it."""
        self._cells.copy_beginning(job, self._scheduler.started)
        job.started_at = time.monotonic()
        self._events.append(Started(job.id, len(job.prompt), job.n_prefilled))

    def _n_known(self, job: Job) -> int:
        """How much of the request's prompt has been read, for it or for another one."""
        return self._cells.n_known(job, self._scheduler.started)

    # -- the batches

    def _decode(self, sequences: list[Sequence]) -> None:
        """What each sequence has taken, and then its next token. Those that have several tokens come first, and then, with
        those that have one, those that come out of it with one: the fewer decodes, the better.

        One token has other sums than several, so how many a sequence decodes at a time must not depend on the others.
        """
        self._drafts.propose(sequences)
        for _ in range(_MOST_RUNS):
            runs = [sequence for sequence in sequences if sequence.n_to_decode > 1]
            if not runs:
                break
            self._decode_equals(runs)
            self._drafts.propose(sequence for sequence in runs if sequence.is_running)
            sequences = self._scheduler.decoding
        self._decode_equals([sequence for sequence in sequences if sequence.n_to_decode == 1])

    def _decode_equals(self, sequences: list[Sequence]) -> None:
        """Sequences with as many tokens as one another go together."""
        n_outputs = 1 + max((len(sequence.draft) for sequence in sequences), default=0)
        n_together = self._backend.n_outputs // n_outputs
        for group in group_equals(sequences, lambda sequence: sequence.n_to_decode, self._backend.n_batch, n_together):
            if running := [sequence for sequence in group if sequence.is_running]:  # a group that failed may end others
                self._decode_group(running)

    def _decode_group(self, sequences: list[Sequence]) -> None:
        batch = Batch()
        rows = [sequence.put(batch) for sequence in sequences]
        jobs = {sequence.job.id: sequence.job for sequence in sequences}
        if self._attempt(jobs.values(), lambda: self._backend.decode(batch)):
            for row, sequence in zip(rows, sequences, strict=True):
                self._advance(sequence, self._backend.logits(row))
                if sequence.draft:
                    self._check_draft(sequence, row)

    def _check_draft(self, sequence: Sequence, row: int) -> None:
        """Go on with the logits after each guessed token that is the one taken; the first that isn't, and all after it, go.

        `row`: of the logits that the first of them is held against, which were drawn from.
        """
        draft, sequence.draft = sequence.draft, ()
        n_confirmed = 0
        for token in draft:
            if not sequence.confirm(token):
                break
            n_confirmed += 1
            if not sequence.next_tokens:
                self._advance(sequence, self._backend.logits(row + n_confirmed))
        if sequence.is_running and n_confirmed < len(draft):
            try:
                self._backend.rewind_sequence(sequence.seq_id, sequence.position)
            except BackendError as error:
                self._fail(sequence, str(error))

    def _read(self, shares: list[Share]) -> None:
        """Chunks of prompts that are as long as one another, in one batch."""
        batch = Batch()
        for share in shares:
            job = share.job
            for position in range(job.n_prefilled, job.n_prefilled + share.n_tokens):
                is_last = position == len(job.prompt) - 1
                batch.add(job.prompt[position], position, job.lead.seq_id, output=is_last or job.wants_scores)
        begun = time.monotonic()
        if self._attempt([share.job for share in shares], lambda: self._backend.decode(batch)):
            self._drafts.read_along((share.job for share in shares), batch)
            self._pace.learn(len(batch), time.monotonic() - begun)
            for place, share in enumerate(shares):
                self._take_chunk(share, place * share.n_tokens)

    def _attempt(self, jobs: Iterable[Job], action: Callable[[], None]) -> bool:
        """Do what may fail in the model; then these jobs are lost, the others and the model go on."""
        try:
            action()
        except BackendError as error:
            for job in jobs:
                self._remove(job)
                self._events.append(Failed(job.id, FailureKind.GENERATION_FAILED, str(error)))
            return False
        return True

    # -- the prompt

    def _take_chunk(self, share: Share, first_row: int) -> None:
        """`first_row`: where the chunk begins in the batch."""
        job = share.job
        if job.wants_scores:
            self._score_chunk(share)
        job.n_prefilled += share.n_tokens
        if job.is_prefilled:
            job.last_logits = self._backend.keep(self._backend.logits(first_row + share.n_tokens - 1))
            self._finish_prompt(job)

    def _score_chunk(self, share: Share) -> None:
        """Each position's logits score the prompt's next token. The chunk has a batch of its own."""
        job = share.job
        if not job.scores:
            job.scores.append(None)
        n_top = job.request.prompt_logprobs or 0
        for row in range(share.n_tokens):
            position = job.n_prefilled + row + 1
            if position < len(job.prompt):
                job.scores.append(self._backend.score(self._backend.logits(row), job.prompt[position], n_top))

    def _finish_prompt(self, job: Job) -> None:
        assert job.last_logits is not None
        logits = job.last_logits
        job.prompt_s = time.monotonic() - job.started_at
        if job.wants_scores:
            first = job.prompt[0]
            piece = self._backend.vocabulary.piece(first)
            self._events.append(PromptScored(job.id, tuple(job.scores), (first, piece)))
        running = list(job.running)
        if self._attempt([job], lambda: self._share_prompt(job)):
            for sequence in running:
                self._advance(sequence, logits)

    def _share_prompt(self, job: Job) -> None:
        """Copy the prompt's cells to the other running choices, and keep them for those to come."""
        job.prompt_cells = self._cells.share(job)

    # -- a sequence

    def _advance(self, sequence: Sequence, logits: Logits) -> None:
        """Draw the next token of a sequence and tell what came of it. A bug there ends this choice, and no other."""
        try:
            with self._watchdog.watch(f"a token of request {sequence.job.id}"):
                self._go_on(sequence, logits)
        except Exception as error:
            logger.exception("request %d, choice %d failed", sequence.job.id, sequence.index)
            if sequence.is_running:
                self._fail(sequence, f"internal error: {type(error).__name__}: {error}")

    def _go_on(self, sequence: Sequence, logits: Logits) -> None:
        if sequence.n_left <= 0:
            self._finish(sequence, FinishReason.LENGTH)  # max_tokens 0: only the prompt was wanted
        elif sequence.job.route is None:
            self._advance_free(sequence, logits)
        else:
            self._advance_ruled(sequence, logits)

    def _advance_free(self, sequence: Sequence, logits: Logits) -> None:
        token = sequence.sampler.draw(logits)
        if token is None:
            self._fail(sequence)
        elif self._backend.vocabulary.is_eog(token):
            self._finish(sequence, FinishReason.STOP)
        else:
            sequence.sampler.accept(token)
            self._accept(sequence, token, logits)

    def _advance_ruled(self, sequence: Sequence, logits: Logits) -> None:
        """A token, and those that are known to come after it: they join the next batch."""
        if sequence.course is None:
            sequence.course = self._begin_course(sequence)
        course = sequence.course
        try:
            self._choose(sequence, course, logits)
            while sequence.can_run_ahead and course.knows_next(sequence.n_left):
                if not self._choose(sequence, course, None):
                    return
        except TooManyStacks:
            self._fail(sequence, "the grammar has too many readings of this text")

    def _choose(self, sequence: Sequence, course: Course, logits: Logits | None) -> bool:
        """Take a token or end the choice; without `logits` one that is known: False where that was refused."""
        choice = course.choose(lambda: self._draw(sequence, course, logits), sequence.n_left)
        if isinstance(choice, Step) and choice.is_forced and not sequence.sampler.force(choice.token):
            if choice.is_certain:
                course.distrust()
                return logits is not None and self._choose(sequence, course, logits)
            choice = DeadEnd()
        match choice:
            case FinishReason() as reason:
                self._finish(sequence, reason)
            case DeadEnd():
                self._fail(sequence)
            case Step(token=token, is_forced=is_forced):
                if not is_forced:
                    sequence.sampler.accept(token)
                self._accept(sequence, token, logits)
            case other:
                assert_never(other)
        return True

    def _begin_course(self, sequence: Sequence) -> Course:
        assert sequence.job.route is not None
        course = Course(sequence.job.route, sequence.sampler, self._speller, self._backend.vocabulary.is_eog)
        course.begin(sequence.n_left)
        return course

    def _draw(self, sequence: Sequence, course: Course, logits: Logits | None) -> int | None:
        assert logits is not None, "a token that isn't known"
        token = sequence.sampler.draw(logits)
        if token is None and course.relax():
            token = sequence.sampler.draw(logits)
        if token is None and sequence.job.request.unconstrained_on_failure:
            logger.warning("request %d: the grammar permits no token, going on without it", sequence.job.id)
            course.drop()
            return sequence.sampler.draw(logits)
        return token

    def _accept(self, sequence: Sequence, token: int, logits: Logits | None) -> None:
        """The sampler has taken `token`, whose scores are in `logits`, where any are wanted."""
        job, course = sequence.job, sequence.course
        sequence.n_tokens += 1
        self._drafts.take(sequence, token)
        sequence.first_token_at = sequence.first_token_at or time.monotonic()
        n_top = job.request.logprobs
        scores = None if n_top is None or logits is None else self._backend.score(logits, token, n_top)
        piece = self._visible_piece(job, token)
        is_thought = course is not None and course.is_thought(token)
        released = sequence.text.push(piece, scores, stops=not is_thought)
        if course is not None:
            course.take(token, piece)
        if sequence.text.is_stopped:
            self._finish(sequence, FinishReason.STOP, released)
            return
        self._tell(sequence, released)
        if course is not None and course.ended is not None:
            self._finish(sequence, course.ended)
        elif sequence.n_left <= 0:
            self._finish(sequence, FinishReason.LENGTH if course is None else course.reason_at_limit)
        else:
            sequence.next_tokens.append(token)

    def _visible_piece(self, job: Job, token: int) -> bytes:
        """What the token adds to the text: control tokens nothing, unless the grammar names them."""
        vocabulary = self._backend.vocabulary
        return b"" if vocabulary.is_control(token) and token not in job.visible else vocabulary.piece(token)

    def _tell(self, sequence: Sequence, released: Released) -> None:
        if released.is_empty:
            return
        chunk = TextChunk(sequence.job.id, sequence.index, released.text, released.n_tokens, released.logprobs)
        last = self._events[-1] if self._events else None
        if isinstance(last, TextChunk) and (last.id, last.index) == (chunk.id, chunk.index):
            self._events[-1] = _joined(last, chunk)
            return
        self._events.append(chunk)

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
                n_forced_tokens=0 if sequence.course is None else sequence.course.n_forced,
                n_rejected_tokens=sequence.sampler.n_rejected,
                n_drafted_tokens=sequence.n_drafted,
                n_accepted_tokens=sequence.n_accepted,
                n_predicted_tokens=sequence.n_predicted,
                n_fulfilled_tokens=sequence.n_fulfilled,
                n_reasoning_tokens=0 if sequence.course is None else sequence.course.n_reasoning,
                prompt_s=sequence.job.prompt_s,
                decode_s=sequence.decode_s,
            )
        )
        self._end(sequence)

    def _fail(self, sequence: Sequence, message: str = "the grammar permits no token of the vocabulary here") -> None:
        self._events.append(Failed(sequence.job.id, FailureKind.GENERATION_FAILED, message, index=sequence.index))
        self._end(sequence)

    def _end(self, sequence: Sequence) -> None:
        sequence.next_tokens = []
        sequence.sampler.free()
        self._scheduler.end(sequence)
        self._cells.release(sequence)

    def _remove(self, job: Job, is_sound: bool = False) -> None:
        """`is_sound`: what is in its slots is what it should be."""
        self._scheduler.remove(job)
        for sequence in job.running:
            sequence.sampler.free()
            if is_sound:
                self._cells.release(sequence)
            else:
                self._cells.clear(sequence)
        job.running.clear()
        job.free_samplers()


def _joined(first: TextChunk, then: TextChunk) -> TextChunk:
    """Two pieces of a choice's text as one."""
    return replace(
        first,
        text=first.text + then.text,
        n_tokens=first.n_tokens + then.n_tokens,
        logprobs=first.logprobs + then.logprobs,
    )
