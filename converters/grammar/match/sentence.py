"""Texts out of a grammar: the shortest completion of a walk, and sentences at random."""

from __future__ import annotations

from itertools import groupby
from random import Random

from converters.grammar.charset import CharSet
from converters.grammar.expr import Token
from converters.grammar.match.program import CHAR, END, REF, REP, SET, TOKEN, UNBOUNDED, Program

Piece = str | Token
_PLAIN = CharSet.span(0x20, 0x7E)
_NICE = "0a A-_.e"


def shortest_from(program: Program, frames: list[int]) -> list[Piece]:
    """The pieces of the shortest text that empties a stack of `frames` (top last). Rules' texts are remembered."""
    pieces: list[Piece] = []
    n_positions, texts = len(program.kind), program.rule_texts
    todo: list[int | tuple[int, int]] = list(frames)  # a pair: a rule, and where its text began
    while todo:
        frame = todo.pop()
        if isinstance(frame, tuple):
            rule, start = frame
            pieces[start:] = _joined(pieces[start:])
            program.remember_text(rule, pieces[start:])
            continue
        done, position = divmod(frame, n_positions)
        kind, arg = program.kind[position], program.arg[position]
        if kind == END:
            continue
        todo.append(position + 1)
        if kind in (REF, REP):
            rule = arg if kind == REF else program.rep_rule[arg]
            n_missing = 1 if kind == REF else max(0, program.rep_min[arg] - done)
            if rule in texts:
                pieces.extend(texts[rule] * n_missing)
            elif n_missing:
                if kind == REP:
                    todo[-1] = position + (done + 1) * n_positions
                todo.extend(((rule, len(pieces)), program.best_start[rule]))
        elif kind == TOKEN:
            pieces.append(program.tokens[arg])
        else:
            pieces.append(chr(arg) if kind == CHAR else _nice_char(program.charset(arg)))
    return pieces


def _joined(pieces: list[Piece]) -> list[Piece]:
    """The same with neighbouring texts as one."""
    joined: list[Piece] = []
    for is_text, group in groupby(pieces, lambda piece: isinstance(piece, str)):
        run = list(group)
        joined.extend(["".join(map(str, run))] if is_text else run)
    return joined


def widest_char(program: Program) -> int:
    """The most UTF-8 bytes that one character of a shortest text has."""
    chars = {program.arg[position] for position, kind in enumerate(program.kind) if kind == CHAR}
    sets = {program.arg[position] for position, kind in enumerate(program.kind) if kind == SET}
    widths = [len(chr(max(chars)).encode("utf-8", "surrogatepass"))] if chars else []
    return max([1, *widths, *(len(_nice_char(program.charset(index)).encode()) for index in sets)])


def _nice_char(charset: CharSet) -> str:
    for char in _NICE:
        if char in charset:
            return char
    plain = charset & _PLAIN
    return chr((plain or charset).first)


class SentenceWriter:
    """Draws sentences, using what it has used least: after enough of them every alternative was used."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._n_uses: dict[int, int] = {}

    def write(self, rng: Random, max_length: int) -> list[Piece]:
        """A sentence of about at most `max_length` characters; longer only where the grammar has none so short."""
        program = self._program
        pieces: list[Piece] = []
        slack = max(0, max_length - program.least_of[0])
        todo = [self._choose(rng, 0, slack)]
        slack -= self._extra(todo[0], 0)
        n_positions = len(program.kind)
        while todo:
            done, position = divmod(todo.pop(), n_positions)
            kind, arg = program.kind[position], program.arg[position]
            if kind == END:
                continue
            if kind == REP and self._repeats(rng, arg, done, slack):
                rule = program.rep_rule[arg]
                if done >= program.rep_min[arg]:
                    slack -= max(1, program.least_of[rule])
                todo.append(position + (done + 1) * n_positions)
                todo.append(self._choose(rng, rule, slack))
                slack -= self._extra(todo[-1], rule)
                continue
            todo.append(position + 1)
            if kind == REF:
                todo.append(self._choose(rng, arg, slack))
                slack -= self._extra(todo[-1], arg)
            elif kind == TOKEN:
                pieces.append(program.tokens[arg])
            elif kind != REP:
                pieces.append(chr(arg) if kind == CHAR else _random_char(rng, program.charset(arg)))
        return pieces

    def _extra(self, start: int, rule: int) -> int:
        """How many characters more than the shortest alternative of `rule` the one at `start` needs."""
        return self._program.least_from(start) - self._program.least_of[rule]

    def _choose(self, rng: Random, rule: int, slack: int) -> int:
        starts = self._program.alternatives(rule)
        if len(starts) == 1:
            return starts[0]
        affordable = [start for start in starts if self._extra(start, rule) < max(slack, 1)]
        if slack <= 0:
            return self._program.best_start[rule]
        candidates = [rng.choice(affordable) for _ in range(3)]
        chosen = min(candidates, key=lambda start: self._n_uses.get(start, 0))
        self._n_uses[chosen] = self._n_uses.get(chosen, 0) + 1
        return chosen

    def _repeats(self, rng: Random, repetition: int, done: int, slack: int) -> bool:
        program = self._program
        if done < program.rep_min[repetition]:
            return True
        high = program.rep_max[repetition]
        if high != UNBOUNDED and done >= high:
            return False
        return program.least_of[program.rep_rule[repetition]] < slack and rng.random() < 0.7


def _random_char(rng: Random, charset: CharSet) -> str:
    if rng.random() < 0.75:
        charset = charset & _PLAIN or charset
    low, high = rng.choice(charset.ranges)
    return chr(rng.choice((low, high, rng.randint(low, high), rng.randint(low, high))))


def join_text(pieces: list[Piece]) -> str:
    """The pieces as text; tokens as the grammar names them."""
    return "".join([piece if isinstance(piece, str) else _token_text(piece) for piece in pieces])


def _token_text(token: Token) -> str:
    return token.token if isinstance(token.token, str) else f"<[{token.token}]>"
