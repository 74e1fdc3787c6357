"""Who runs next: admission with KV reservation, slots, sequence ids, shares of the prefill. Pure bookkeeping, no model.

A choice starts only when its request's prompt and its max_tokens fit beside what the running ones have reserved, so no reply
dies of a full KV cache. Among requests that could start a choice the one with fewest running goes first, the older of two
equals: a request with many choices takes the slots that others leave. Nobody overtakes a choice that doesn't fit yet.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from server.engine.sequence import Job, Sequence
from server.engine.text import TextAssembler


class QueueIsFull(Exception):
    """As many requests wait as may."""


@dataclass(frozen=True, slots=True)
class Share:
    """The next `n_tokens` of a job's prompt are to be read in this step."""

    job: Job
    n_tokens: int


class Scheduler:
    """`n_cells` KV cells and `n_slots` running choices, shared out. At most `n_slots` requests are under way at a time.

    That bound keeps one choice of every started request able to run: prompt and max_tokens of one fit in a slot's context.
    """

    def __init__(self, n_slots: int, n_cells: int, max_waiting: int, drop_leading_space: bool = False) -> None:
        self._n_slots = n_slots
        self._n_cells = n_cells
        self._max_waiting = max_waiting
        self._drop_leading_space = drop_leading_space
        self._free_ids = list(range(2 * n_slots - 1, -1, -1))
        self._waiting: deque[Job] = deque()
        self._started: list[Job] = []

    @property
    def has_work(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self._waiting or self._started)

    @property
    def running(self) -> list[Sequence]:
        """All running choices."""
        return [sequence for job in self._started for sequence in job.running]

    @property
    def n_running(self) -> int:
        """How many choices hold a slot."""
        return sum(len(job.running) for job in self._started)

    @property
    def decoding(self) -> list[Sequence]:
        """The choices that have a token to decode."""
        return [sequence for sequence in self.running if sequence.can_decode]

    def add(self, job: Job) -> None:
        """Queue a request. Raises QueueIsFull."""
        if len(self._waiting) >= self._max_waiting and not self._could_start_now(job):
            raise QueueIsFull
        self._waiting.append(job)

    def _could_start_now(self, job: Job) -> bool:
        return not self._waiting and self.n_running < self._n_slots > len(self._started) and self._fits(job)

    def find(self, job_id: int) -> Job | None:
        """The request of that number, waiting or started."""
        return next((job for job in (*self._started, *self._waiting) if job.id == job_id), None)

    def admit(self) -> list[Sequence]:
        """Start as many choices as fit; a job whose first choice starts gets a stem."""
        admitted = []
        while self.n_running < self._n_slots and (job := self._next_job()) is not None and self._fits(job):
            admitted.append(self._start_choice(job))
        return admitted

    def _next_job(self) -> Job | None:
        eligible = [job for job in self._started if job.pending]
        if self._waiting and len(self._started) < self._n_slots:
            eligible.append(self._waiting[0])
        return min(eligible, key=lambda job: len(job.running), default=None)

    def _fits(self, job: Job) -> bool:
        reserved = sum(other.n_cells for other in self._started if other is not job)
        return reserved + job.n_cells + job.max_new <= self._n_cells

    def _start_choice(self, job: Job) -> Sequence:
        if job.stem is None:
            assert self._waiting[0] is job
            self._waiting.popleft()
            self._started.append(job)
            job.stem = self._free_ids.pop()
        index = job.pending.popleft()
        seq_id = self._free_ids.pop() if job.pending else job.stem
        drops_space = self._drop_leading_space and job.request.grammar_key is None
        text = TextAssembler(job.request.stop, drops_space)
        sequence = Sequence(job, index, seq_id, job.samplers[index], text, position=len(job.prompt))
        job.running.append(sequence)
        return sequence

    def end(self, sequence: Sequence) -> list[int]:
        """A choice is over. Returns the sequence ids whose KV cells are free now."""
        job = sequence.job
        job.running.remove(sequence)
        if job.is_over:
            self._started.remove(job)
        return self._give_back([sequence.seq_id])

    def remove(self, job: Job) -> list[int]:
        """Forget a whole request. Returns the sequence ids whose KV cells are free now."""
        if job in self._waiting:
            self._waiting.remove(job)
            return []
        self._started.remove(job)
        ids = {sequence.seq_id for sequence in job.running} | ({job.stem} if job.stem is not None and job.pending else set())
        return self._give_back(sorted(ids))

    def _give_back(self, ids: list[int]) -> list[int]:
        self._free_ids.extend(ids)
        return ids

    def share_prefill(self, budget: int) -> list[Share]:
        """Divide `budget` prompt tokens evenly among the jobs whose prompt isn't read yet; what one leaves the next gets."""
        jobs = sorted((job for job in self._started if not job.is_prefilled), key=_n_unread)
        shares = []
        for i, job in enumerate(jobs):
            n_tokens = min(_n_unread(job), max(budget // (len(jobs) - i), min(budget, 1)))
            budget -= n_tokens
            if n_tokens:
                shares.append(Share(job, n_tokens))
        return shares


def _n_unread(job: Job) -> int:
    return len(job.prompt) - job.n_prefilled


@dataclass(slots=True)
class PrefillPace:
    """How many prompt tokens a step should read, from the speed measured so far.

    Beside running sequences a step aims at `mixed_s`, so that their streams stay smooth; alone at `alone_s`, so that new
    requests and cancels are heard.
    """

    n_batch: int
    mixed_s: float = 0.1
    alone_s: float = 0.5
    least: int = 16
    _tokens_per_s: float = 160.0

    def budget(self, n_decoding: int) -> int:
        """Prompt tokens for a step in which `n_decoding` sequences decode."""
        room = self.n_batch - n_decoding
        wanted = self._tokens_per_s * (self.mixed_s if n_decoding else self.alone_s)
        return max(0, min(room, max(self.least, int(wanted))))

    def learn(self, n_tokens: int, elapsed_s: float) -> None:
        """A step of `n_tokens`, mostly prompt, took `elapsed_s`."""
        if n_tokens >= self.least and elapsed_s > 0:
            self._tokens_per_s += 0.3 * (n_tokens / elapsed_s - self._tokens_per_s)
