"""What rules a sequence as it goes: thinking, free text with calls in it, a grammar; and the tokens that it takes undrawn.

    thinking ──its end──▶ answer held by a grammar
             └──────────▶ free text ──an opening──▶ call held by a grammar ──its end──▶ free text …

Grammars are switched in here, never by the native sampler. Spec section 8.4: a token is taken only if what it leads to can
still be completed with the tokens that are left; else the completion of the present state is forced.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from server.engine.backend import TokenSampler
from server.engine.fast_forward import Spacing
from server.engine.messages import FinishReason
from server.engine.route import Block, Opening, Route, Ruling
from server.engine.spelling import Speller
from server.engine.walk import Walk
from server.engine.watch import Found, Watch, Word

logger = logging.getLogger(__name__)


class _Phase(Enum):
    THINKING = auto()
    RULED_THINKING = auto()
    GAP = auto()
    ANSWER = auto()
    FREE = auto()
    CALL = auto()


_RULED = (_Phase.RULED_THINKING, _Phase.ANSWER, _Phase.CALL)
_BLOCK = (_Phase.THINKING, _Phase.RULED_THINKING, _Phase.GAP)


@dataclass(frozen=True, slots=True)
class Step:
    """The next token. `is_forced`: it wasn't drawn; `is_certain`: because the grammar leaves no choice."""

    token: int
    is_forced: bool
    is_certain: bool = False


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """No token can follow."""


Choice: TypeAlias = Step | FinishReason | DeadEnd
Draw: TypeAlias = Callable[[], "int | None"]


class Course:
    """One sequence's way along its route. `choose` a token, have it accepted, `take` it; until `ended` says how it ended."""

    def __init__(self, route: Route, sampler: TokenSampler, speller: Speller, is_eog: Callable[[int], bool]) -> None:
        self._route = route
        self._sampler = sampler
        self._speller = speller
        self._is_eog = is_eog
        self._forced: deque[int] = deque()  # what is written whatever the model would
        self._certain: deque[int] = deque()  # what the grammar leaves no choice about
        self._spacing = Spacing()
        self._then: Callable[[], None] | None = None  # when the forced tokens are taken
        self._phase = _Phase.FREE
        self._walk: Walk | None = None
        self._watch = Watch(())
        self._openings: tuple[Opening, ...] = ()
        self._offered: int | None = None  # the token that would begin a block, where the answer may begin
        self._completes = False
        self._n_in_block = 0
        self._has_begun = False
        self.n_reasoning = 0
        self.n_forced = 0
        self.ended: FinishReason | None = None

    def is_thought(self, token: int) -> bool:
        """Whether `token`, as the next one, belongs to a block of thinking: no stop string counts there."""
        return self._phase in _BLOCK or token == self._offered

    @property
    def is_free(self) -> bool:
        """Whether no grammar holds the next token, and nothing is to be written whatever the model would."""
        return self._phase in (_Phase.THINKING, _Phase.FREE) and not self._forced

    def begin(self, n_left: int) -> None:
        """The reply begins; it may have `n_left` tokens."""
        block = self._route.block
        if block is None:
            self._begin_answer(is_first=True)
        elif block.is_open:
            self._begin_block(block)
        elif block.is_forced:
            self._phase = _Phase.THINKING
            self._force(block.start, lambda: self._begin_block(block))
        else:
            self._begin_answer(self._offer(block, n_left))

    def _offer(self, block: Block, n_left: int) -> int | None:
        """The token that begins a block which the model may have or not, where there is room for it."""
        return block.start[0] if len(block.start) + self._n_to_close(block) <= n_left else None

    # -- the next token

    def choose(self, draw: Draw, n_left: int) -> Choice:
        """The next token, or how the reply ends without one. `draw` is called at most once; `n_left` tokens may come."""
        self._close_in_time(n_left)
        if self._forced:
            return self._next_forced()
        if self.ended is not None:
            return self.ended
        is_certain = self._is_certain()
        token = self._certain[0] if is_certain else draw()
        if token is None:
            return DeadEnd()
        refused = self._review(token, n_left)
        if refused is not None:
            return refused
        if self._forced:
            return self._next_forced()
        if is_certain:
            self._certain.popleft()
        self.n_forced += is_certain
        return Step(token, is_certain, is_certain)

    def knows_next(self, n_left: int) -> bool:
        """Whether `choose` will not draw."""
        self._close_in_time(n_left)
        return bool(self._forced) or self.ended is not None or self._is_certain()

    def _close_in_time(self, n_left: int) -> None:
        if not self._forced and self._must_close(n_left):
            self._close_block()

    def likely(self) -> tuple[int, ...]:
        """The tokens of a text that must follow, where they are to be drawn: the model may cut that text into others."""
        return () if self._forced or (walk := self._forced_walk) is None else walk.likely()

    @property
    def _forced_walk(self) -> Walk | None:
        """The walk that tells what is forced. The first token of a reply is drawn all the same: that costs no decode, and
        `{` or `{"` is for the model to say."""
        return self._walk if self._phase in _RULED and self._offered is None and self._has_begun else None

    def _is_certain(self) -> bool:
        """Whether the grammar leaves no choice about the next token."""
        walk = self._forced_walk
        if not self._certain and walk is not None:
            self._certain.extend(walk.forced())
        return bool(self._certain)

    def _next_forced(self) -> Step:
        self._certain.clear()
        self.n_forced += 1
        return Step(self._forced.popleft(), is_forced=True)

    def distrust(self) -> None:
        """The sampler refused a certain token, which would be a bug of ours: from here on everything is drawn."""
        logger.error("the native grammar refuses what the reference matcher holds for certain")
        self.n_forced -= 1
        self._certain.clear()
        self.relax()

    def relax(self) -> bool:
        """Give up what the grammar doesn't ask for: the spacing. False where there is none to give up."""
        return self._walk is not None and self._walk.relax()

    def _review(self, token: int, n_left: int) -> Choice | None:
        """Whether a drawn token is taken as it is: if not, the reply ends, or other tokens are forced."""
        if self._phase in _RULED:
            return self._review_ruled(token, n_left)
        piece = self._speller.piece(token)
        found = self._watch.find(piece)
        if found is not None:
            tokens = (self._speller.tokens(piece[: -found.n_past]) or ()) if found.n_past else ()
            if not self._has_room(found, n_left - max(1, len(tokens))):
                self._end_cut()
                return self.ended
            self._forced.extend(tokens)
        elif self._is_eog(token):
            if self._phase is not _Phase.THINKING or self._route.answer is None:
                return FinishReason.STOP
            self._close_block()
        return None

    def _has_room(self, found: Found, n_left: int) -> bool:
        """Whether a call that is about to be opened can be completed with `n_left` tokens."""
        if self._phase is not _Phase.FREE or self._route.on_length == "cut":
            return True
        return n_left >= (self._openings[found.word].ruling.cost or 0)

    def _review_ruled(self, token: int, n_left: int) -> Choice | None:
        if token == self._offered:
            return None
        if self._is_eog(token):
            return FinishReason.STOP
        if self._walk is None or not self._completes or self._walk.fits_after(token, self._n_room(n_left) - 1):
            return None
        completion = self._walk.completion()
        self._walk.relax()
        if completion:
            self._force(completion, None if self._phase is _Phase.RULED_THINKING else self._end_cut)
            return None
        self._end_cut()
        return self.ended

    def _n_room(self, n_left: int) -> int:
        """Tokens that the present grammar's text may still have."""
        block = self._route.block
        if self._phase is not _Phase.RULED_THINKING or block is None:
            return n_left
        room = n_left - len(block.gap) - self._n_answer()
        return room if block.max_tokens is None else min(room, block.max_tokens + len(block.end) - self._n_in_block)

    def _end_cut(self) -> None:
        """The reply is complete, but the model would have gone on."""
        self.ended = FinishReason.STOP if self._route.on_length == "stop" else FinishReason.LENGTH

    @property
    def reason_at_limit(self) -> FinishReason:
        """What ended a reply that has no token left. One that is held is complete then, though it could have gone on."""
        is_whole = self._phase in (_Phase.ANSWER, _Phase.CALL) and self._walk is not None and self._completes
        return FinishReason.STOP if is_whole and self._route.on_length == "stop" else FinishReason.LENGTH

    # -- taking it

    def take(self, token: int, piece: bytes) -> None:
        """`token` was accepted by the sampler, and `piece` is what it shows."""
        self._has_begun = True
        self.n_reasoning += self.is_thought(token)
        self._n_in_block += self._phase in _BLOCK
        offered, self._offered = self._offered, None
        if token == offered:
            self._enter_offered()
        elif self._phase in _RULED:
            self._take_ruled(token)
        else:
            self._take_free(piece)
        if self._then is not None and not self._forced:
            then, self._then = self._then, None
            then()

    def _take_ruled(self, token: int) -> None:
        if self._walk is not None and not self._walk.take(token):
            logger.error("the reference matcher refuses token %d, which the native grammar permits", token)
            self._walk = None
            self._sampler.set_reference(None)
        if self._then is None and not self._certain and self._sampler.must_end():
            self._end_phase()

    def _end_phase(self) -> None:
        """The present grammar's text is complete and can't go on."""
        block = self._route.block
        if self._phase is _Phase.RULED_THINKING and block is not None:
            self._leave_block(block)
        elif self._phase is _Phase.CALL and not self._route.ends_after_call:
            self._begin_free(is_at_start=False)
        else:
            self.ended = FinishReason.STOP

    def _take_free(self, piece: bytes) -> None:
        found = self._watch.find(piece) if self._then is None else None
        self._watch.push(piece)
        if found is None:
            return
        block = self._route.block
        if self._phase is _Phase.THINKING and block is not None:
            self._leave_block(block)
        elif self._phase is _Phase.FREE:
            self._hold(_Phase.CALL, self._openings[found.word].ruling)

    # -- phases

    def _force(self, tokens: tuple[int, ...], then: Callable[[], None] | None) -> None:
        self._forced.extend(tokens)
        self._then = then
        if not self._forced and then is not None:
            self._then = None
            then()

    def _enter_offered(self) -> None:
        block = self._route.block
        assert block is not None
        self._free(_Phase.THINKING)
        self._force(block.start[1:], lambda: self._begin_block(block))

    def _begin_block(self, block: Block) -> None:
        self._n_in_block = 0
        if block.ruling is not None:
            self._hold(_Phase.RULED_THINKING, block.ruling)
            return
        self._free(_Phase.THINKING)
        self._watch = Watch((Word(block.end_text),))

    def _must_close(self, n_left: int) -> bool:
        """Whether the block of thinking has come to its limit, or must end so that the answer still fits."""
        block = self._route.block
        if self._phase is not _Phase.THINKING or block is None or self._then is not None:
            return False
        is_spent = block.max_tokens is not None and self._n_in_block >= block.max_tokens
        return is_spent or (self._n_answer() > 0 and n_left - 1 < self._n_to_close(block))

    def _n_to_close(self, block: Block) -> int:
        inside = len(block.end) if block.ruling is None else block.ruling.cost or len(block.end)
        return inside + len(block.gap) + self._n_answer()

    def _n_answer(self) -> int:
        """Tokens that the shortest answer needs."""
        answer = self._route.answer
        return 0 if answer is None or self._route.on_length == "cut" else answer.cost or 0

    def _close_block(self) -> None:
        """Write the rest of the end marker."""
        block = self._route.block
        assert block is not None
        n_begun = self._watch.n_begun(block.end_text)
        rest = self._speller.tokens(block.end_text[n_begun:]) if n_begun else None
        tokens = rest if rest is not None and len(rest) <= len(block.end) else block.end
        self._force(tokens, lambda: self._leave_block(block))

    def _leave_block(self, block: Block) -> None:
        if self._route.answer is None:
            self._begin_answer()
        else:
            self._free(_Phase.GAP)
            self._force(block.gap, self._begin_answer)

    def _begin_answer(self, offered: int | None = None, *, is_first: bool = False) -> None:
        if self._route.answer is None:
            self._begin_free(is_at_start=True)
            if offered is not None:
                self._offered = offered
            return
        self._offered = offered
        self._hold(_Phase.ANSWER, self._route.answer, offered, is_first=is_first)
        if offered is None and self._sampler.must_end():
            self.ended = FinishReason.STOP  # the empty text is the grammar's only sentence

    def _begin_free(self, is_at_start: bool) -> None:
        self._free(_Phase.FREE)
        self._openings = self._route.openings
        self._watch = Watch([opening.word for opening in self._openings], is_at_start)

    def _free(self, phase: _Phase) -> None:
        """Nothing rules from here on, and nothing is looked for."""
        self._certain.clear()
        self._phase, self._walk, self._watch = phase, None, Watch(())
        self._sampler.set_grammar(None)

    def _hold(self, phase: _Phase, ruling: Ruling, offered: int | None = None, *, is_first: bool = False) -> None:
        """`is_first`: the reply begins, and the sampler may have this grammar already."""
        self._phase, self._watch = phase, Watch(())
        self._certain.clear()
        self._walk = None if ruling.new_walk is None else ruling.new_walk()
        if self._walk is not None:
            self._walk.spacing = self._spacing
        self._completes = self._route.on_length != "cut" and ruling.cost is not None
        if not (is_first and self._route.first_grammar is not None):
            self._sampler.set_grammar(ruling.grammar, offered)
        self._sampler.set_reference(self._walk)

    def drop(self) -> None:
        """Go on without any grammar."""
        self._free(_Phase.FREE)
        self._openings, self._offered, self._then = (), None, None
        self._forced.clear()
