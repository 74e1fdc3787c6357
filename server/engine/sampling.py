"""One sequence's sampling step: chain, RNG and grammar put together as spec section 8 has it.

The chain runs once over the logits, without the grammar; the drawn token is put to the grammar alone; if refused it leaves
the candidates and the rest are drawn again with the same random numbers. Only if none is permitted does the grammar go
before the chain. Control tokens and, until the grammar can end, end-of-generation tokens are never candidates at all.

All work over the vocabulary is llama.cpp's or numpy's. What the native parts look like is a Protocol here; `llama.py` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from server.engine.backend import Grammar, Logits, Reference
from server.engine.mask import GrammarMask, Ids, Mask, Pool, VocabularyIndex
from server.engine.messages import Sampling

_N_SINGLE_QUESTIONS = 4  # refused draws before all that is left is put to the grammar at once
_SCREEN_FACTOR = 4  # how many of the best candidates are asked for each one that is needed
_WIDE_SCREEN = 960  # and how many where those weren't enough, before all are asked
_MIN_SCREEN = 64
_MOST_WIDENINGS = 4  # each costs a pass over a row, taking the whole pool ten times as much


class Candidates(Protocol):
    """llama.cpp's array of candidate tokens, preallocated for the whole vocabulary."""

    @property
    def ids(self) -> Ids:
        """The candidates' tokens; a view."""

    @property
    def logits(self) -> NDArray[np.float32]:
        """Their logits; a view."""

    def fill(self, ids: Ids, logits: NDArray[np.float32]) -> None:
        """Begin anew with `ids` and their entries of the row `logits`."""

    def keep(self, which: Mask | NDArray[np.intp]) -> None:
        """Drop all others, keeping the order."""

    def drop(self, position: int) -> None:
        """Drop one."""


class Stage(Protocol):
    """A part of the sampler chain that changes the candidates."""

    def apply(self, candidates: Candidates) -> None:
        """Change logits, order or number of candidates."""

    def accept(self, token: int) -> None:
        """Note the token that was taken."""

    def free(self) -> None:
        """Give the native state back."""


class Dist(Protocol):
    """The seeded draw from what the chain has left."""

    def pick(self, candidates: Candidates) -> int:
        """The position of the drawn candidate."""

    def free(self) -> None:
        """Give the native state back."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a sampler obeys besides its chain.

    n_best: of how many best candidates the truncation depends (None: of all). banned: tokens that are never drawn.
    """

    is_greedy: bool
    grammar_first: bool
    n_best: int | None
    min_tokens: int
    ignore_eos: bool
    banned: tuple[int, ...] = ()


class Screen:
    """Finds the `n_best` best candidates of a row without sorting: all that lie within some distance of the row's maximum.

    The distance follows the rows seen so far; where it turns out too small the whole pool must be taken.
    """

    def __init__(self, n_best: int) -> None:
        self._n_best = n_best
        self._distance = 10.0

    def best(self, row: NDArray[np.float32], pool: Pool) -> Ids | None:
        """At least the `n_best` best tokens of the pool, in rising order; None if that failed."""
        highest, distance = row.max(), self._distance
        for _ in range(_MOST_WIDENINGS):
            ids = np.flatnonzero(row >= highest - distance)
            if pool.table is not None:
                ids = ids[pool.table[ids]]
            if len(ids) >= self._n_best:
                is_too_wide = len(ids) > _SCREEN_FACTOR * self._n_best + _MIN_SCREEN
                self._distance = 0.9 * distance if is_too_wide else distance
                return cast("Ids", ids)
            distance = 1.25 * distance + 1
        self._distance += 1
        return None


def rules_of(sampling: Sampling) -> Rules:
    """The rules that a request's parameters make."""
    depends_on_all = sampling.top_k <= 0 or sampling.top_n_sigma > 0 or sampling.mirostat != 0
    return Rules(
        is_greedy=sampling.temperature <= 0,
        grammar_first=sampling.grammar_first,
        n_best=None if depends_on_all else sampling.top_k,
        min_tokens=sampling.min_tokens,
        ignore_eos=sampling.ignore_eos,
        banned=tuple(token for token, bias in sampling.logit_bias if bias == -np.inf),
    )


class SequenceSampler:
    """A sequence's `TokenSampler`: see the module for the rules, `Rules` for the knobs.

    `weigh` is the part of the chain that changes logits token by token (bias, penalties, DRY), `shape` the rest up to the
    temperature. The candidates are scratch space shared by all sequences of a step loop.
    """

    def __init__(
        self,
        rules: Rules,
        index: VocabularyIndex,
        candidates: Candidates,
        weigh: Sequence[Stage],
        shape: Sequence[Stage],
        dist: Dist,
        mask_of: Callable[[Grammar], GrammarMask],
        grammar: Grammar | None = None,
    ) -> None:
        self._rules = rules
        self._index = index
        self._candidates = candidates
        self._weigh = tuple(weigh)
        self._shape = tuple(shape)
        self._dist = dist
        self._mask_of = mask_of
        self._mask = None if grammar is None else mask_of(grammar)
        self._n_accepted = 0
        self.n_rejected = 0
        self._let_through: int | None = None
        self._all = index.all.without(rules.banned, index.n_tokens)
        self._no_eog = index.no_eog.without(rules.banned, index.n_tokens)
        n_best = 1 if rules.is_greedy else rules.n_best
        self._screen = None if weigh or n_best is None or n_best >= index.n_tokens else Screen(n_best)

    @property
    def _may_stop(self) -> bool:
        """Whether min_tokens and ignore_eos leave end-of-generation tokens in."""
        return not self._rules.ignore_eos and self._n_accepted >= self._rules.min_tokens

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        for stage in self._weigh:
            for token in tokens:
                stage.accept(token)

    def draw(self, logits: Logits) -> int | None:
        row = cast("NDArray[np.float32]", logits)
        token = self._draw_free(row) if self._mask is None else self._draw_constrained(row, self._mask)
        self._let_through = token
        return token

    def accept(self, token: int) -> None:
        assert token == self._let_through, "only what was drawn may be accepted"
        self._take(token)

    def force(self, token: int) -> bool:
        if self._mask is not None and not self._mask.permits(token):
            return False
        self._take(token)
        return True

    def _take(self, token: int) -> None:
        self._let_through = None
        self._n_accepted += 1
        for stage in (*self._weigh, *self._shape):
            stage.accept(token)
        if self._mask is not None:
            self._mask.accept(token)

    def must_end(self) -> bool:
        return self._mask is not None and self._mask.must_end()

    def set_grammar(self, grammar: Grammar | None, offered: int | None = None) -> None:
        if self._mask is not None:
            self._mask.free()
        self._mask = None if grammar is None else self._mask_of(grammar)
        if self._mask is not None and offered is not None:
            self._mask.offer(offered)

    def set_reference(self, reference: Reference | None) -> None:
        if self._mask is not None:
            self._mask.refer(reference)

    def free(self) -> None:
        self.set_grammar(None)
        self._dist.free()
        for stage in (*self._weigh, *self._shape):
            stage.free()

    def _begin(self, pool: Pool, row: NDArray[np.float32]) -> None:
        """The pool's candidates as penalties and biases leave them."""
        self._candidates.fill(pool.ids, row)
        for stage in self._weigh:
            stage.apply(self._candidates)

    def _begin_screened(self, pool: Pool, row: NDArray[np.float32]) -> None:
        """The same, or only those candidates of the pool that can matter to the truncation."""
        ids = None if self._screen is None else self._screen.best(row, pool)
        if ids is None:
            self._begin(pool, row)
        else:
            self._candidates.fill(ids, row)

    def _truncate(self) -> None:
        for stage in self._shape:
            stage.apply(self._candidates)

    def _pick(self) -> int:
        position = self._dist.pick(self._candidates)
        return int(self._candidates.ids[position])

    def _draw_free(self, row: NDArray[np.float32]) -> int:
        self._begin_screened(self._all if self._may_stop else self._no_eog, row)
        if self._rules.is_greedy:
            return self._best()
        self._truncate()
        return self._pick()

    def _best(self) -> int:
        return int(self._candidates.ids[np.argmax(self._candidates.logits)])

    def _draw_constrained(self, row: NDArray[np.float32], mask: GrammarMask) -> int | None:
        pool = mask.text_and_end if self._may_stop and mask.can_end else mask.text
        banned = self._rules.banned
        token = self._draw_among(pool.without(banned, self._index.n_tokens), row, mask)
        if token is None and banned:
            return self._draw_among(pool, row, mask)  # against logit_bias the constraint wins
        return token

    def _draw_among(self, pool: Pool, row: NDArray[np.float32], mask: GrammarMask) -> int | None:
        if not self._rules.grammar_first:
            self._begin_screened(pool, row)
            token = self._best_if_permitted(mask) if self._rules.is_greedy else self._draw_permitted(mask)
            if token is not None:
                return token
        self._begin(pool, row)
        token = self._draw_masked(mask)
        if token is None and mask.is_doubted:
            self._begin(pool, row)
            self._candidates.keep(mask.filter_exactly(self._candidates.ids))
            return self._best_permitted(mask) if self._rules.is_greedy else self._pick_permitted(mask)
        return token

    def _best_if_permitted(self, mask: GrammarMask) -> int | None:
        best = self._best()
        if mask.permits(best):
            return best
        self.n_rejected += 1
        return None

    def _draw_permitted(self, mask: GrammarMask) -> int | None:
        """Draw from the chain's final candidates until the grammar permits one; None if it permits none of them."""
        self._truncate()
        candidates = self._candidates
        for _ in range(_N_SINGLE_QUESTIONS):
            if not len(candidates.ids):
                return None
            position = self._dist.pick(candidates)
            token = int(candidates.ids[position])
            if mask.permits(token):
                return token
            self._reject(position)
        candidates.keep(mask.filter(candidates.ids))
        return self._pick_permitted(mask)

    def _pick_permitted(self, mask: GrammarMask) -> int | None:
        """Draw from candidates that the native grammar permits; what it permits wrongly is drawn again."""
        while len(self._candidates.ids):
            position = self._dist.pick(self._candidates)
            token = int(self._candidates.ids[position])
            if mask.permits(token):
                return token
            self._reject(position)
        return None

    def _reject(self, position: int) -> None:
        """The grammar refuses what was drawn: it leaves the candidates."""
        self.n_rejected += 1
        self._candidates.drop(position)

    def _draw_masked(self, mask: GrammarMask) -> int | None:
        """The grammar goes before the truncation: the whole vocabulary's permitted tokens, or as many as can matter."""
        self._candidates.keep(self._permitted(mask, 1 if self._rules.is_greedy else self._rules.n_best))
        if self._rules.is_greedy:
            return self._best_permitted(mask)
        if not len(self._candidates.ids):
            return None
        self._truncate()
        return self._pick_permitted(mask)

    def _best_permitted(self, mask: GrammarMask) -> int | None:
        while len(self._candidates.ids):
            position = int(np.argmax(self._candidates.logits))
            token = int(self._candidates.ids[position])
            if mask.permits(token):
                return token
            self._candidates.drop(position)
        return None

    def _permitted(self, mask: GrammarMask, n_needed: int | None) -> Mask | NDArray[np.intp]:
        """Which candidates are permitted; at least the `n_needed` best of them, where that many are enough."""
        ids, logits = self._candidates.ids, self._candidates.logits
        if n_needed is None:
            return mask.filter(ids)
        for n_screened in (max(_MIN_SCREEN, _SCREEN_FACTOR * n_needed), max(_WIDE_SCREEN, _SCREEN_FACTOR * n_needed)):
            if n_screened < len(ids):
                best = np.argpartition(logits, len(ids) - n_screened)[len(ids) - n_screened :]
                best = np.sort(best[mask.filter(ids[best])])
                if len(best) >= n_needed:
                    return best
        return mask.filter(ids)
