"""What may rule a reply, made ready where requests are: grammars with their matchers, markers as tokens, the least cost.

Nothing here knows how far a sequence is; `course` goes the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from converters.grammar.match import Matcher
from converters.grammar.match.memory import Memory
from server.engine.backend import Grammar, GrammarRejected
from server.engine.fast_forward import FastForward
from server.engine.messages import EngineRequest, OnLength, Thinking
from server.engine.spelling import Speller
from server.engine.walk import Walk
from server.engine.watch import Word

_MATCHER_ENTRIES = 50_000  # what one grammar's matcher remembers at most
_MAX_STACKS = 5000  # readings of a text; llama.cpp would need tens of milliseconds a token for more, or never return


@dataclass(frozen=True, slots=True)
class Ruling:
    """A grammar that is ready for use. `cost`: tokens of the shortest text, None where the vocabulary can't spell it.

    Of a text that fits no context `cost` is only a bound, which is too much as well. `new_walk` is to be called in the thread
    that walks.
    """

    grammar: Grammar
    new_walk: Callable[[], Walk] | None
    cost: int | None


@dataclass(frozen=True, slots=True)
class Block:
    """A block of thinking. `start` and `end` are the tokens of its markers, `gap` those that follow before a grammar.

    `max_tokens` counts what stands between the markers. With `ruling` a grammar holds that, the end marker included.
    """

    start: tuple[int, ...]
    end: tuple[int, ...]
    end_text: bytes
    gap: tuple[int, ...]
    is_open: bool
    is_forced: bool
    max_tokens: int | None
    ruling: Ruling | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """Where `word` appears, `ruling` holds what follows."""

    word: Word
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class Route:
    """All that may rule a reply: a block of thinking, then `answer`, or free text with `openings`."""

    answer: Ruling | None = None
    block: Block | None = None
    openings: tuple[Opening, ...] = ()
    ends_after_call: bool = False
    on_length: OnLength = "complete"

    @property
    def first_grammar(self) -> Grammar | None:
        """The grammar that rules from the first token on, if one surely does."""
        return self.answer.grammar if self.answer is not None and self.block is None else None

    @property
    def has_free_text(self) -> bool:
        """Whether some of the reply may be held by no grammar."""
        return self.answer is None or (self.block is not None and self.block.ruling is None)

    @property
    def needed(self) -> int | None:
        """Tokens of the shortest reply; None where that isn't promised."""
        if self.on_length == "cut" or self.answer is None or self.answer.cost is None:
            return None
        block = self.block
        if block is None or not (block.is_open or block.is_forced):
            return self.answer.cost
        inside = len(block.end) if block.ruling is None else block.ruling.cost or len(block.end)
        return (0 if block.is_open else len(block.start)) + inside + len(block.gap) + self.answer.cost


def make_ruling(
    grammar: Grammar, tables: bytes, speller: Speller, n_ctx: int, *, fast_forward: bool, memory: Memory | None = None
) -> Ruling:
    """A grammar with its matcher's tables; without tables nothing is promised of it. `n_ctx`: tokens of a slot's context.

    `fast_forward`: whether forced text is found out, and not drawn. `memory`: what the matchers of all grammars share.
    """
    if not tables:
        return Ruling(grammar, None, None)
    first = Matcher.from_tables(tables, _MATCHER_ENTRIES)
    names = [symbol.token for symbol in first.tokens if isinstance(symbol.token, str)]
    ids = {name: token for name in names if (token := speller.named(name)) is not None}
    matcher = Matcher(first.program, _MATCHER_ENTRIES, _MAX_STACKS, memory)  # of the thread that walks
    matcher.bind_tokens(ids)
    matcher.widest_char  # noqa: B018  (found out here, not in the step loop)
    forward = FastForward(matcher, speller, ids) if fast_forward else None
    return Ruling(grammar, lambda: Walk(matcher, speller, ids, forward), _cost(first, speller, ids, n_ctx))


def _cost(matcher: Matcher, speller: Speller, ids: dict[str, int], n_ctx: int) -> int | None:
    """The tokens of the shortest text, which isn't written out where it can't fit: a few counts make a thousand million."""
    n_symbols = matcher.least_length(matcher.start)
    if n_symbols > n_ctx and (least := -(-n_symbols // speller.longest_piece)) > n_ctx:
        return least
    completion = Walk(matcher, speller, ids).completion()
    return None if completion is None else len(completion)


def make_route(request: EngineRequest, ruling_of: Callable[[str], Ruling], speller: Speller) -> Route | None:
    """What rules the replies to `request`; None if nothing does. Raises GrammarRejected for markers that can't be spelled."""
    if request.thinking is None and not request.grammar_keys:
        return None
    return Route(
        answer=None if request.grammar_key is None else ruling_of(request.grammar_key),
        block=None if request.thinking is None else _block(request.thinking, ruling_of, speller),
        openings=tuple(
            Opening(Word(trigger.text.encode(), trigger.is_at_start), ruling_of(trigger.grammar_key))
            for trigger in request.triggers
        ),
        ends_after_call=request.ends_after_call,
        on_length=request.on_length,
    )


def _block(thinking: Thinking, ruling_of: Callable[[str], Ruling], speller: Speller) -> Block:
    start, end, gap = speller.marked(thinking.start), speller.marked(thinking.end), speller.tokens(thinking.gap.encode())
    if not start or not end or gap is None:
        raise GrammarRejected(f"the model's vocabulary can't spell {thinking.start} and {thinking.end}")
    return Block(
        start,
        end,
        thinking.end.encode(),
        gap,
        thinking.is_open,
        thinking.is_forced,
        thinking.max_tokens,
        None if thinking.grammar_key is None else ruling_of(thinking.grammar_key),
    )
