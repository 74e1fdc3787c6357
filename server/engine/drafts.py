"""Which sequences guess how much in a step. What a guess is made of is `speculation`'s affair, what becomes of it `core`'s."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from server.engine.backend import Backend, Batch, DraftModel
from server.engine.draft_model import ModelDrafts
from server.engine.lookup import PromptIndex
from server.engine.sequence import Job, Sequence
from server.engine.speculation import MOST_DRAFTED, Costs, Drafter

logger = logging.getLogger(__name__)


class Drafts:
    """The guesses of all sequences. There are none where it is off, nor where the model can't take tokens back."""

    def __init__(self, backend: Backend, is_on: bool) -> None:
        self._costs, self._model = None, None
        if is_on and backend.can_rewind:
            share = 0.0 if backend.draft is None else backend.draft.share
            self._costs = Costs.among(backend.info.n_slots, backend.decode_cost, share)
            self._model = _model_drafts(backend.draft, self._costs)
        self._n_most = min(MOST_DRAFTED, backend.n_outputs - 1)
        self._n_batch = backend.n_batch

    def take(self, sequence: Sequence, token: int) -> None:
        """A sequence has taken `token`."""
        drafter = sequence.drafter
        if drafter is None:
            if self._costs is None or not _has_free_text(sequence.job):
                return
            has_model = self._model is not None and not sequence.job.prediction  # one source is enough
            drafter = sequence.drafter = Drafter(_index(sequence.job), self._costs, has_model=has_model)
        drafter.take(token)

    def propose(self, sequences: Iterable[Sequence]) -> None:
        """Set what each sequence guesses in its next decode, where that isn't set yet."""
        if self._costs is None:
            return
        asked: list[tuple[Sequence, int]] = []
        for sequence in sequences:
            n_most = min(self._n_most, sequence.n_left - 1, self._n_batch - len(sequence.next_tokens))
            if n_most > 0 and sequence.can_decode and not sequence.draft:
                sequence.draft = self._guess(sequence, n_most)
                sequence.n_drafted += len(sequence.draft)
                sequence.n_predicted_now = _n_predicted(sequence)
                sequence.n_predicted += sequence.n_predicted_now
                if not sequence.draft and _may_ask_model(sequence):
                    asked.append((sequence, n_most))
        if self._model is not None and asked:
            self._model.propose(asked)
            for sequence, _ in asked:
                sequence.n_drafted += len(sequence.draft)

    def _guess(self, sequence: Sequence, n_most: int) -> tuple[int, ...]:
        """Where a grammar holds the next token: the end of forced text, which is to be drawn all the same, and little else
        can come of that. Only after several tokens: a decode of one costs least where many share it."""
        if sequence.is_free:
            return () if sequence.drafter is None else sequence.drafter.propose(n_most)
        if sequence.course is None or len(sequence.next_tokens) < 2:
            return ()
        return sequence.course.likely()[:n_most]

    def read_along(self, jobs: Iterable[Job], batch: Batch) -> None:
        """The target has read these prompts' chunks; the draft model reads those whose replies it may be asked about."""
        if self._model is not None:
            self._model.read_along(batch, {job.lead.seq_id for job in jobs if _has_free_text(job)})


def _model_drafts(model: DraftModel | None, costs: Costs) -> ModelDrafts | None:
    if model is None:
        return None
    if not costs.can_model_pay:
        logger.warning(
            "the draft model is too large, %d %% of the other, to save time: it isn't asked", round(100 * model.share)
        )
        return None
    return ModelDrafts(model, costs)


def _n_predicted(sequence: Sequence) -> int:
    """How many tokens of the new draft, which isn't the draft model's, the client predicted."""
    drafter = sequence.drafter
    return 0 if drafter is None or not sequence.is_free else drafter.n_predicted(len(sequence.draft))


def _may_ask_model(sequence: Sequence) -> bool:
    drafter = sequence.drafter
    return drafter is not None and sequence.is_free and drafter.may_ask_model


def _has_free_text(job: Job) -> bool:
    return job.route is None or job.route.has_free_text


def _index(job: Job) -> PromptIndex:
    """Made when the first choice has its first token: not before, lest requests that wait hold megabytes."""
    if job.index is None:
        job.index = PromptIndex(job.prompt, job.prediction)
    return job.index
