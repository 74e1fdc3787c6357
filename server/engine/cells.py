"""What the slots' KV cells hold: prompts that are kept, taken over and copied, sequences that move. Never what they compute.

A prompt's beginning is taken from wherever it is: the request's own slot, another idle one, or one whose request runs (of
that only what was read as a prompt).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from server.engine.backend import Backend, BackendError, SavedSequence
from server.engine.prefix import LEAST_REUSED, Prefixes
from server.engine.scheduler import Move
from server.engine.sequence import Job, Sequence

logger = logging.getLogger(__name__)

_COPIED_AS_READ = 100  # tokens that are copied as quickly as one is read; a slot can only be copied whole


@dataclass(frozen=True, slots=True)
class _Held:
    """The beginning of a prompt, `n_tokens` long, that is in the cells of `slot`."""

    slot: int
    n_tokens: int


class Cells:
    """The cells of all slots, which are empty at first."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._prefixes = Prefixes()
        for slot in range(backend.info.n_slots):
            backend.remove_sequence(slot)

    @property
    def idle(self) -> frozenset[int]:
        """The slots that hold a prompt and no request."""
        return self._prefixes.slots

    def choose(self, job: Job, free: list[int]) -> int:
        """A free slot for a choice of `job`."""
        return self._prefixes.choose(() if job.running else job.reusable, free)

    def occupy(self, sequence: Sequence) -> None:
        """The choice's slot is its own from now on: what it holds of the prompt stays if the choice is to read that."""
        job, slot = sequence.job, sequence.seq_id
        prompt = job.reusable if job.lead is sequence else ()
        logits = self._prefixes.logits(slot, prompt)
        n_held = self._prefixes.take(slot, prompt)
        if n_held and self._backend.truncate_sequence(slot, n_held):
            job.n_prefilled, job.last_logits = n_held, logits
        elif n_held is not None:
            self._backend.remove_sequence(slot)

    def n_known(self, job: Job, others: Iterable[Job]) -> int:
        """How much of the job's prompt its slot holds, or could have as a copy of what another one holds."""
        found = self._find(job, others)
        return job.n_prefilled if found is None else found.n_tokens

    def copy_beginning(self, job: Job, others: Iterable[Job]) -> None:
        """Before `job` reads its prompt: copy what another slot has of it, where that is more than its own has."""
        if (found := self._find(job, others)) is not None:
            target = job.lead.seq_id
            self._prefixes.touch(found.slot)
            is_done = self._copy(found.slot, target) and self._backend.truncate_sequence(target, found.n_tokens)
            job.n_prefilled = found.n_tokens if is_done else 0
            if not is_done:
                self._backend.remove_sequence(target)

    def _find(self, job: Job, others: Iterable[Job]) -> _Held | None:
        """Where most of the job's prompt can be copied from, if that is worth it; `others` may be the job itself too."""
        slot, n_found = self._prefixes.find(job.reusable)
        n_cells = self._prefixes.n_held(slot)
        for other in others if job.reusable else ():
            if other is not job and other.running and (n_common := min(job.n_common(other), other.n_prefilled)) > n_found:
                lead = other.lead
                slot, n_found = lead.seq_id, n_common
                n_cells = lead.position if other.is_prefilled else other.n_prefilled
        is_worth_it = n_found >= job.n_prefilled + max(LEAST_REUSED, n_cells // _COPIED_AS_READ)
        return _Held(slot, n_found) if is_worth_it else None

    def _copy(self, source: int, target: int) -> bool:
        """Fill the slot `target` with a copy of all that `source` holds; False, and it is empty, where that can't be."""
        try:
            saved = self._backend.save_sequence(source)
            self._backend.remove_sequence(target)
            self._backend.load_sequence(target, saved)
        except BackendError:
            logger.warning("a sequence can't be copied to another slot", exc_info=True)
            self._backend.remove_sequence(target)
            return False
        return True

    def share(self, job: Job) -> SavedSequence | None:
        """Copy the prompt, which is read, to the other running choices; what choices that are to come will need."""
        lead, *others = job.running
        if not others and not job.pending:
            return None
        saved = self._backend.save_sequence(lead.seq_id)
        for sequence in others:
            self._backend.load_sequence(sequence.seq_id, saved)
        return saved if job.pending else None

    def release(self, sequence: Sequence) -> None:
        """The slot is idle; what it read of the prompt stays."""
        job, slot = sequence.job, sequence.seq_id
        is_sound = job.is_prefilled and self._backend.truncate_sequence(slot, len(job.prompt))
        if not (is_sound and self._prefixes.keep(slot, job.prompt, job.last_logits)):
            self._backend.remove_sequence(slot)

    def clear(self, sequence: Sequence) -> None:
        """The slot is idle, and nothing in it is to be trusted."""
        self._backend.remove_sequence(sequence.seq_id)

    def move(self, move: Move) -> None:
        """Move a sequence to another slot; one that can't be copied stays where it is."""
        self._prefixes.take(move.target)
        if self._copy(move.source, move.target):
            self._backend.remove_sequence(move.source)
        else:
            move.sequence.seq_id = move.source
