"""Which sequences guess how much in a step. What a guess is made of is `speculation`'s affair, what becomes of it `core`'s."""

from __future__ import annotations

from collections.abc import Iterable

from server.engine.backend import Backend
from server.engine.lookup import PromptIndex
from server.engine.sequence import Job, Sequence
from server.engine.speculation import MOST_DRAFTED, Costs, Drafter


class Drafts:
    """The guesses of all sequences. There are none where it is off, nor where the model can't take tokens back."""

    def __init__(self, backend: Backend, is_on: bool) -> None:
        self._costs = Costs.among(backend.info.n_slots, backend.decode_cost) if is_on and backend.can_rewind else None
        self._n_most = min(MOST_DRAFTED, backend.n_outputs - 1)
        self._n_batch = backend.n_batch

    def take(self, sequence: Sequence, token: int) -> None:
        """A sequence has taken `token`."""
        drafter = sequence.drafter
        if drafter is None:
            if self._costs is None or not _has_free_text(sequence.job):
                return
            drafter = sequence.drafter = Drafter(_index(sequence.job), self._costs)
        drafter.take(token)

    def propose(self, sequences: Iterable[Sequence]) -> None:
        """Set what each sequence guesses in this step: nothing where a grammar holds it, which forces text instead."""
        for sequence in sequences:
            n_most = min(self._n_most, sequence.n_left - 1, self._n_batch - len(sequence.next_tokens))
            if sequence.drafter is not None and n_most > 0 and sequence.is_free:
                sequence.draft = sequence.drafter.propose(n_most)
                sequence.n_drafted += len(sequence.draft)


def _has_free_text(job: Job) -> bool:
    return job.route is None or job.route.has_free_text


def _index(job: Job) -> PromptIndex:
    """Made when the first choice has its first token: not before, lest requests that wait hold megabytes."""
    if job.index is None:
        job.index = PromptIndex(job.prompt)
    return job.index
