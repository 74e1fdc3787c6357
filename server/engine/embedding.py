"""Vectors and ranks of texts, made between the steps of running replies. The model's process only; numpy lives here.

Causal models read an input in pieces, as they read prompts, and their tokens' vectors are pooled here; all others see a whole
input at once, and llama.cpp pools. Short inputs share a decode, and the last bits of
their vectors may depend on that.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from server.engine.backend import Backend, BackendError, Batch, EmbeddingContext
from server.engine.messages import FailureKind, Pooling, Reply, ToParent
from server.engine.scheduler import PrefillPace

logger = logging.getLogger(__name__)

Vector = NDArray[np.float32]

_LEAST_CTX = 512
_BATCH = 512
_LEAST_BATCH = 32
_LOGITS = 1 << 24  # llama.cpp makes logits for all tokens of a decode too, four bytes each
_SEQUENCES = 16  # inputs of one decode


@dataclass(slots=True, eq=False)
class EmbedJob:
    """Inputs that are to be embedded (or ranked: pairs of query and document, framed already), and whom to tell."""

    question: int
    inputs: tuple[tuple[int, ...], ...]
    is_ranking: bool
    emit: Callable[[ToParent], None]
    vectors: list[bytes] = field(default_factory=list)
    n_read: int = 0  # of the first input that has no vector yet
    pooled: _Pool | None = None

    def finish(self, vector: Vector) -> None:
        """The next input's vector, or its score."""
        self.vectors.append(vector.astype("<f4").tobytes())
        self.n_read, self.pooled = 0, None

    @property
    def is_over(self) -> bool:
        """Whether every input has its vector."""
        return len(self.vectors) == len(self.inputs)


@dataclass(slots=True)
class _Pool:
    """One vector of the vectors of an input's tokens."""

    kind: Pooling
    sum: Vector
    n_rows: int = 0

    def add(self, rows: Vector) -> None:
        """The vectors of some more tokens, one a row."""
        if self.kind == "mean":
            self.sum = self.sum + rows.sum(axis=0)
        elif self.kind == "last" or not self.n_rows:
            self.sum = rows[-1] if self.kind == "last" else rows[0]
        self.n_rows += len(rows)


class Embedder:
    """The jobs of one model. `step` is to be called while `has_work`, by the thread that runs the step loop."""

    def __init__(self, backend: Backend, max_waiting: int = 64) -> None:
        self._backend = backend
        self._max_waiting = max_waiting
        self._jobs: deque[EmbedJob] = deque()
        self._contexts: dict[bool, EmbeddingContext] = {}  # by whether they pool
        self._pace = PrefillPace(_BATCH)

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return bool(self._jobs)

    def add(self, job: EmbedJob) -> None:
        """Queue a job, or tell that the queue is full."""
        if len(self._jobs) >= self._max_waiting:
            job.emit(Reply(job.question, error="too many requests are waiting", kind=FailureKind.QUEUE_FULL))
        elif job.inputs:
            self._jobs.append(job)
        else:
            job.emit(Reply(job.question, ()))

    def cancel(self, question: int) -> None:
        """Forget a job."""
        self._jobs = deque(job for job in self._jobs if job.question != question)

    def step(self, is_alone: bool) -> None:
        """One decode for the first job. Jobs take turns, input by input; beside running replies a decode is short."""
        job = self._jobs[0]
        try:
            self._advance(job, self._pace.budget(0 if is_alone else 1, 1))
        except BackendError as error:
            self._fail(job, str(error))
            return
        except Exception as error:  # a bug costs its job, as one in a reply costs its choice
            logger.exception("embedding %d failed", job.question)
            self._fail(job, f"the vectors can't be made: {type(error).__name__}: {error}")
            return
        if job.is_over:
            self._jobs.remove(job)
            job.emit(Reply(job.question, tuple(job.vectors)))
        elif not job.n_read:
            self._jobs.rotate(-1)

    def _fail(self, job: EmbedJob, error: str) -> None:
        self._jobs.remove(job)
        job.emit(Reply(job.question, error=error, kind=FailureKind.GENERATION_FAILED))

    def _advance(self, job: EmbedJob, budget: int) -> None:
        is_whole = job.is_ranking or not self._backend.info.is_causal
        context = self._context(is_whole, job)
        if not job.n_read:
            context.clear()
        inputs = job.inputs[len(job.vectors) :]
        if is_whole:
            self._read_whole(context, job, _fitting(inputs, min(context.n_batch, max(budget, len(inputs[0])))))
        elif len(inputs[0]) - job.n_read > budget or job.n_read:
            self._read_piece(context, job, inputs[0], min(budget, context.n_batch))
        else:
            self._read_several(context, job, _fitting(inputs, min(context.n_batch, budget)))

    def _context(self, is_whole: bool, job: EmbedJob) -> EmbeddingContext:
        """One that the job's longest input fits."""
        longest = max(map(len, job.inputs))
        context = self._contexts.get(is_whole)
        if context is None or context.n_ctx < longest:
            assert not job.n_read
            if context is not None:
                context.free()
                del self._contexts[is_whole]
            n_ctx = max(_LEAST_CTX, 1 << (longest - 1).bit_length())
            n_batch = n_ctx if is_whole else min(_BATCH, max(_LEAST_BATCH, _LOGITS // self._backend.info.n_vocab))
            context = self._backend.open_embeddings(n_ctx, n_batch, _SEQUENCES, is_pooled=is_whole)
            self._contexts[is_whole] = context
        return context

    def _decode(self, context: EmbeddingContext, batch: Batch) -> None:
        self._pace.learn(len(batch), context.decode(batch))

    def _read_whole(self, context: EmbeddingContext, job: EmbedJob, inputs: Sequence[tuple[int, ...]]) -> None:
        self._decode(context, _batch_of(inputs))
        for number in range(len(inputs)):
            pooled = context.pooled(number)
            job.finish(pooled[:1] if job.is_ranking else _unit(pooled))

    def _read_several(self, context: EmbeddingContext, job: EmbedJob, inputs: Sequence[tuple[int, ...]]) -> None:
        self._decode(context, _batch_of(inputs))
        at = 0
        for tokens in inputs:
            self._add_rows(context, job, at, len(tokens))
            at += len(tokens)
            self._close(job)

    def _read_piece(self, context: EmbeddingContext, job: EmbedJob, tokens: tuple[int, ...], budget: int) -> None:
        """Some more of a long input, alone."""
        batch = Batch()
        stop = min(job.n_read + budget, len(tokens))
        for position in range(job.n_read, stop):
            batch.add(tokens[position], position, 0, output=True)
        self._decode(context, batch)
        self._add_rows(context, job, 0, len(batch))
        job.n_read = stop
        if stop == len(tokens):
            self._close(job)

    def _add_rows(self, context: EmbeddingContext, job: EmbedJob, start: int, n_rows: int) -> None:
        rows = np.stack([context.row(start + i) for i in range(n_rows)])
        if job.pooled is None:
            job.pooled = _Pool(self._backend.info.pooling, np.zeros(rows.shape[1], dtype=np.float32))
        job.pooled.add(rows)

    @staticmethod
    def _close(job: EmbedJob) -> None:
        assert job.pooled is not None
        job.finish(_unit(job.pooled.sum))  # of that length, a sum is a mean


def _fitting(inputs: Sequence[tuple[int, ...]], n_tokens: int) -> Sequence[tuple[int, ...]]:
    """As many of the first inputs as fit one decode; one at least."""
    total = n_fitting = 0
    for tokens in inputs[:_SEQUENCES]:
        total += len(tokens)
        if total > n_tokens and n_fitting:
            break
        n_fitting += 1
    return inputs[:n_fitting]


def _batch_of(inputs: Sequence[tuple[int, ...]]) -> Batch:
    batch = Batch()
    for number, tokens in enumerate(inputs):
        for position, token in enumerate(tokens):
            batch.add(token, position, number, output=True)
    return batch


def _unit(vector: Vector) -> Vector:
    """The vector with length 1."""
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    return vector / np.float32(norm) if norm > 0 else vector
