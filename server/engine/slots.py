"""What the slots of a model are at, for people who look. Reads the scheduler's state, changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from server.engine.messages import Reply, SlotState, ToParent
from server.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Inspection:
    """Somebody asks for the slots."""

    question: int
    emit: Callable[[ToParent], None]

    def answer(self, n_slots: int, running: Iterable[Sequence]) -> None:
        """Tell; an idle slot says nothing but that."""
        states = {sequence.seq_id: _state(sequence) for sequence in running}
        self.emit(Reply(self.question, tuple(states.get(slot, SlotState(slot)) for slot in range(n_slots))))


def _state(sequence: Sequence) -> SlotState:
    job = sequence.job
    return SlotState(
        sequence.seq_id,
        request=job.id,
        choice=sequence.index,
        n_prompt=len(job.prompt),
        n_prompt_read=job.n_prefilled,
        n_decoded=sequence.n_tokens,
        n_left=max(0, sequence.n_left),
    )
