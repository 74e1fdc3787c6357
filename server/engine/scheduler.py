"""Who runs next: admission, slots, shares of the prefill. Pure bookkeeping, no model.

A running choice has a slot of its own, with room for a whole context: prompt and max_tokens fit there (checked before a
request comes here), so no reply dies of a full KV cache. Among requests that could start a choice the one with fewest
running goes first, the older of two equals: a request with many choices takes the slots that others leave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from server.engine.prefix import LEAST_REUSED
from server.engine.sequence import Job, Sequence
from server.engine.text import TextAssembler

_PAYING_CHUNK = 32  # tokens; a smaller batch costs more a token
_LEAST_CHUNK = 2  # llama.cpp's sums differ between one token and several; among several only those of K-quants do

Item = TypeVar("Item")


class QueueIsFull(Exception):
    """As many requests wait as may."""


@dataclass(frozen=True, slots=True)
class Share:
    """The next `n_tokens` of a job's prompt are to be read in this step."""

    job: Job
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Move:
    """`sequence` goes from slot `source` to the empty slot `target`; its `seq_id` says so already."""

    sequence: Sequence
    source: int
    target: int


class Scheduler:
    """`n_slots` slots, shared out. At most `n_slots` requests are under way at a time, so none keeps saved cells for long."""

    def __init__(self, n_slots: int, max_waiting: int, drop_leading_space: bool = False) -> None:
        self._n_slots = n_slots
        self._max_waiting = max_waiting
        self._drop_leading_space = drop_leading_space
        self._waiting: deque[Job] = deque()
        self._started: list[Job] = []
        self._is_oldests_turn = False

    @property
    def has_work(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self._waiting or self._started)

    @property
    def started(self) -> tuple[Job, ...]:
        """The requests that have a slot, or had one and wait for more."""
        return tuple(self._started)

    @property
    def running(self) -> list[Sequence]:
        """All running choices."""
        return [sequence for job in self._started for sequence in job.running]

    @property
    def n_unread(self) -> int:
        """Choices of the requests that have a slot and whose prompts aren't read yet."""
        return sum(len(job.running) + len(job.pending) for job in self._started if not job.is_prefilled)

    @property
    def decoding(self) -> list[Sequence]:
        """The choices that have a token to decode, by slot."""
        return sorted((sequence for sequence in self.running if sequence.can_decode), key=lambda sequence: sequence.seq_id)

    def add(self, job: Job) -> None:
        """Queue a request. Raises QueueIsFull."""
        if len(self._waiting) >= self._max_waiting and (self._waiting or not self._has_room()):
            raise QueueIsFull
        self._waiting.append(job)

    def _has_room(self) -> bool:
        return len(self.running) < self._n_slots > len(self._started)

    def find(self, job_id: int) -> Job | None:
        """The request of that number, waiting or started."""
        return next((job for job in (*self._started, *self._waiting) if job.id == job_id), None)

    def admit(self, choose: Callable[[Job, list[int]], int]) -> list[Sequence]:
        """Start as many choices as there are slots; `choose` picks one of the free slots for a choice of a job."""
        admitted = []
        free = self._free_slots()
        while free and (job := self._next_job()) is not None:
            slot = choose(job, free)
            free.remove(slot)
            admitted.append(self._start_choice(job, slot))
        return admitted

    def _free_slots(self) -> list[int]:
        used = {sequence.seq_id for sequence in self.running}
        return [slot for slot in range(self._n_slots) if slot not in used]

    def _next_job(self) -> Job | None:
        eligible = [job for job in self._started if job.pending]
        if self._waiting and len(self._started) < self._n_slots:
            eligible.append(self._waiting[0])
        return min(eligible, key=lambda job: len(job.running), default=None)

    def _start_choice(self, job: Job, slot: int) -> Sequence:
        if self._waiting and self._waiting[0] is job:
            self._waiting.popleft()
            self._started.append(job)
        index = job.pending.popleft()
        drops_space = self._drop_leading_space and job.request.grammar_key is None
        text = TextAssembler(job.request.stop, drops_space)
        sequence = Sequence(job, index, slot, job.samplers[index], text, position=len(job.prompt))
        job.running.append(sequence)
        return sequence

    def compact(self) -> list[Move]:
        """Close gaps between the slots in use, from the end: llama.cpp decodes only neighbouring slots in one go."""
        moves = []
        running = sorted(self.running, key=lambda sequence: sequence.seq_id)
        free = [slot for slot in self._free_slots() if running and running[0].seq_id < slot]
        while running and free and free[0] < running[-1].seq_id and running[-1].can_decode:
            sequence = running.pop()
            moves.append(Move(sequence, sequence.seq_id, free.pop(0)))
            sequence.seq_id = moves[-1].target
        return moves

    def end(self, sequence: Sequence) -> None:
        """A choice is over; its slot is free."""
        job = sequence.job
        job.running.remove(sequence)
        if job.is_over:
            self._started.remove(job)

    def remove(self, job: Job) -> None:
        """Forget a whole request; its slots are free."""
        (self._waiting if job in self._waiting else self._started).remove(job)

    def share_prefill(
        self, budget: int, n_outputs: int, begin: Callable[[Job], None], n_known: Callable[[Job], int]
    ) -> list[Share]:
        """Divide `budget` prompt tokens among the jobs whose prompt isn't read yet, the shortest rest first.

        `n_known` says how much of a job's prompt is read, by whomever, so that it needn't read that itself; `begin` is called
        with a job that gets its first share, before that is measured. Of jobs whose prompts go on the same only one reads
        that; the others wait for it in their turns, which are its as long.

        Nobody gets less than a chunk that pays (unless little is left), so not everybody gets a share in every step; in
        every other one the oldest comes first, lest short prompts keep a long one from being read, or a long one them. A
        share is never one token long where the prompt is longer, nor leaves one. A prompt that is scored gets no more than
        `n_outputs` at a time.
        """
        unread = [job for job in self._started if not job.is_prefilled]
        known = {job.id: n_known(job) for job in unread}
        order = self._in_reading_order(unread, known)
        readers = dict.fromkeys(_reader(job, order, known) for job in order)
        shares: list[Share] = []
        for job in readers:
            n_others = len(readers) - len(shares) - 1
            most = max(budget // (n_others + 1), min(_PAYING_CHUNK, budget))
            least = min(_PAYING_CHUNK, len(job.prompt) - known[job.id]) if shares else _LEAST_CHUNK
            if most >= least:
                if not job.is_begun:
                    begin(job)
                n_tokens = _chunk(_n_unread(job), min(most, n_outputs) if job.wants_scores else most)
                budget -= n_tokens
                shares.append(Share(job, n_tokens))
        return shares

    def _in_reading_order(self, unread: list[Job], known: dict[int, int]) -> list[Job]:
        """The shortest rest first, but for the oldest, whose turn it is in every other step."""
        in_order = sorted(unread, key=lambda job: len(job.prompt) - known[job.id])
        self._is_oldests_turn = not self._is_oldests_turn
        if unread and self._is_oldests_turn:
            in_order.remove(unread[0])
            in_order.insert(0, unread[0])
        return in_order


def group_shares(shares: list[Share], n_batch: int) -> list[list[Share]]:
    """The shares that are read in one batch. One that is scored, whose every token has its output, is read alone."""
    in_order = sorted(shares, key=lambda share: share.job.lead.seq_id)  # a batch's sequences stand in rising order
    alone = [[share] for share in in_order if share.job.wants_scores]
    return [*alone, *group_equals([s for s in in_order if not s.job.wants_scores], lambda share: share.n_tokens, n_batch)]


def group_equals(
    items: Iterable[Item], n_tokens: Callable[[Item], int], n_batch: int, n_together: int | None = None
) -> list[list[Item]]:
    """The items that can share a batch: those that have as many tokens as one another, as many as it has room for, and at
    most `n_together`.

    llama.cpp then takes each for itself, so that its numbers don't depend on who else is there.
    """
    groups: dict[int, list[Item]] = {}
    for item in items:
        groups.setdefault(n_tokens(item), []).append(item)
    return [
        group[start : start + n_most]
        for size, group in groups.items()
        for n_most in [max(1, min(n_batch // size, n_together or n_batch))]
        for start in range(0, len(group), n_most)
    ]


def _reader(job: Job, order: list[Job], known: dict[int, int]) -> Job:
    """Who reads in the turn of `job`, one of the jobs in reading `order`: the job itself, or one that it waits for."""
    ranks = {other.id: (other.n_prefilled, -place) for place, other in enumerate(order)}
    while True:
        leaders = [other for other in order if ranks[other.id] > ranks[job.id] and _is_worth_waiting(job, other, known[job.id])]
        if not leaders:
            return job
        job = max(leaders, key=job.n_common)


def _is_worth_waiting(job: Job, other: Job, n_known: int) -> bool:
    """Whether `other` is about to read what `job` could copy then, and can't yet: `n_known` is what it can."""
    return not job.is_begun and other.n_prefilled < job.n_common(other) >= n_known + LEAST_REUSED


def _n_unread(job: Job) -> int:
    return len(job.prompt) - job.n_prefilled


def _chunk(n_unread: int, most: int) -> int:
    """How many of `n_unread` tokens to read: about `most`, and never so that a single one is left."""
    if n_unread <= most:
        return n_unread
    if n_unread - most == 1:
        return most - 1 if most > _LEAST_CHUNK else n_unread
    return most


@dataclass(slots=True)
class PrefillPace:
    """How many prompt tokens a step should read, from the speed measured so far.

    Beside running sequences a step aims at `mixed_s`, so that their streams stay smooth, or at up to `most_mixed_s` where
    many wait; alone at `alone_s`, so that new requests and cancels are heard.
    """

    n_batch: int
    mixed_s: float = 0.08
    most_mixed_s: float = 0.3
    alone_s: float = 0.5
    least: int = 16
    _tokens_per_s: float = 160.0

    def budget(self, n_decoding: int, n_unread: int) -> int:
        """Prompt tokens for a step in which `n_decoding` sequences decode and `n_unread` prompts wait to be read.

        Who waits counts as much as who runs: many prompts may hold few sequences up for longer, and decode with them sooner.
        """
        aim_s = self.alone_s
        if n_decoding:
            aim_s = min(self.most_mixed_s, self.mixed_s * max(1.0, n_unread / n_decoding))
        return min(self.n_batch, max(self.least, int(self._tokens_per_s * aim_s)))

    def learn(self, n_tokens: int, elapsed_s: float) -> None:
        """Reading `n_tokens` took `elapsed_s`."""
        if n_tokens >= self.least // 2 and elapsed_s > 0:
            self._tokens_per_s += 0.3 * (n_tokens / elapsed_s - self._tokens_per_s)
