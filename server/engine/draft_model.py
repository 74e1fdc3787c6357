"""Guesses by a small model beside the target. What it is asked for and what of that pays is `speculation`'s affair.

The draft model's slots hold the beginning of what the target's hold, moved and copied with them: a prompt is read by both,
a reply only where the draft model is asked. What it guesses depends on the sequence alone: how its text is cut into decodes
follows from the sequence's own history, and a prompt is read in chunks of two or more tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from server.engine.backend import BackendError, Batch, DraftModel
from server.engine.scheduler import group_equals
from server.engine.sequence import Sequence as Choice
from server.engine.speculation import Costs, Drafter, ModelGuesses

logger = logging.getLogger(__name__)

_LEAST_CHUNK = 2  # one token has other sums than several


@dataclass(slots=True, eq=False)
class _Path:
    """A guess that grows. pending: tokens that the draft model is to run on next; likelihoods: that all comes up to each."""

    choice: Choice
    guesses: ModelGuesses
    n_most: int
    position: int
    pending: Sequence[int]
    guess: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    likelihoods: list[float] = field(default_factory=list)

    def put(self, batch: Batch) -> int:
        """Add the pending tokens to a batch; the index of the last one, whose logits are wanted."""
        row, last = 0, self.position + len(self.pending) - 1
        for token in self.pending:
            row = batch.add(token, self.position, self.choice.seq_id, output=self.position == last)
            self.position += 1
        return row

    def take(self, token: int, probability: float) -> bool:
        """The draft model's next token and how sure it is; whether to ask for another."""
        before = self.likelihoods[-1] if self.likelihoods else 1.0
        self.guess.append(token)
        self.probabilities.append(probability)
        self.likelihoods.append(before * self.guesses.belief(probability))
        self.pending = (token,)
        return len(self.guess) < self.n_most and self.guesses.is_worth_asking(self.likelihoods[-1])


class ModelDrafts:
    """The guesses of the draft model for all sequences."""

    def __init__(self, model: DraftModel, costs: Costs) -> None:
        self._model = model
        self._costs = costs

    def read_along(self, batch: Batch, seq_ids: set[int]) -> None:
        """The target has read chunks of prompts: so does the draft model in these slots, if it has read what is before them."""
        mine = Batch()
        reads: dict[int, bool] = {}
        for token, position, seq_id in zip(batch.tokens, batch.positions, batch.seq_ids, strict=True):
            if reads.setdefault(seq_id, seq_id in seq_ids and position == self._model.n_held(seq_id)):
                mine.add(token, position, seq_id, output=False)
        try:
            if len(mine):
                self._model.decode(mine)
        except BackendError:
            logger.warning("the draft model fails", exc_info=True)
            for seq_id in reads:
                self._model.clear(seq_id)

    def propose(self, asked: Sequence[tuple[Choice, int]]) -> None:
        """Set what each of these sequences guesses: of at most so many tokens, and nothing where that wouldn't pay."""
        try:
            for path in self._grow([self._begin(choice, n_most) for choice, n_most in asked]):
                self._end(path)
        except BackendError:
            logger.warning("the draft model fails, going on without it", exc_info=True)
            for choice, _ in asked:
                self._model.clear(choice.seq_id)
                _drafter(choice).model = None

    def _begin(self, choice: Choice, n_most: int) -> _Path:
        """A path from the end of the text, all of which but the newest tokens is read here."""
        drafter, seq_id, n_prompt = _drafter(choice), choice.seq_id, len(choice.job.prompt)
        guesses, text = drafter.model, drafter.text
        assert guesses is not None
        n_held = self._model.n_held(seq_id)
        n_right = min(n_held, guesses.n_right(text), len(text) - 1)
        if n_right < n_held:
            self._model.rewind(seq_id, n_right)
        n_read = self._read(seq_id, text, n_right, n_prompt)
        n_read = self._read(seq_id, text, n_read, len(text) - self._model.n_batch)
        return _Path(choice, guesses, n_most, n_read, text[n_read:])

    def _read(self, seq_id: int, text: Sequence[int], n_read: int, end: int) -> int:
        """Read on up to `end` where that isn't reached, in chunks of which none has one token; how much is read then."""
        while (n_unread := end - n_read) > 0:
            n_tokens = min(n_unread, self._model.n_batch)
            if n_unread - n_tokens == 1 and n_tokens > _LEAST_CHUNK:
                n_tokens -= 1
            batch = Batch()
            for position in range(n_read, n_read + n_tokens):
                batch.add(text[position], position, seq_id, output=False)
            self._model.decode(batch)
            n_read += n_tokens
        return n_read

    def _grow(self, paths: list[_Path]) -> list[_Path]:
        """Have the draft model go on along each path as long as that may pay. The same paths."""
        growing = sorted(paths, key=lambda path: path.choice.seq_id)
        while growing:
            going_on = []
            for group in group_equals(growing, lambda path: len(path.pending), self._model.n_batch):
                batch = Batch()
                rows = [path.put(batch) for path in group]
                self._model.decode(batch)
                going_on += [path for path, row in zip(group, rows, strict=True) if path.take(*self._model.likeliest(row))]
            growing = sorted(going_on, key=lambda path: path.choice.seq_id)
        return paths

    def _end(self, path: _Path) -> None:
        n_drafted = self._costs.best_length(path.likelihoods)
        path.guesses.expect(len(_drafter(path.choice).text), path.guess, path.probabilities, n_drafted)
        path.choice.draft = tuple(path.guess[:n_drafted])


def _drafter(choice: Choice) -> Drafter:
    assert choice.drafter is not None
    return choice.drafter
