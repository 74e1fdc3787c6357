"""Automata with assertions: anchors, word boundaries, look-ahead and look-behind, nested as one likes.

All of these are regular. The construction is the subset construction of a Boolean automaton: what is still to come is a
formula over NFA states ("the rest is read from this state"), kept as a disjunction of conjunctions.

* A look-ahead adds its start to a conjunction, a negated one the complement of that.
* A look-behind is a tracker, which runs beside and knows in which of its states the text so far can end, each under a
  formula about what follows (its body may look ahead).
* Anchors and word boundaries are decided by the characters before and after, so empty moves are followed only when the
  next character is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from converters.automata import Dfa, Nfa, minimise, trim
from converters.automata.alphabet import partition
from converters.regex.formula import FALSE, TRUE, Formula, conjunction, disjunction, negation, state_formula
from converters.regex.tree import Anchor
from converters.regex.unicode import LINE_END, WORD

_MAX_TERMS = 400_000  # keeps the formulas of one construction under about 100 MB
_MAX_WORK = 300_000  # steps over terms and moves, under a second

_EDGE, _LINE_END, _WORD, _OTHER = range(4)
"""Kinds of place: the text's edge (or nothing that counts), a line end, a word character, another one."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What an empty move demands: an anchor, a look-ahead from state `ahead`, or the look-behind number `tracker`."""

    anchor: Anchor | None = None
    ahead: int = -1
    tracker: int = -1
    negated: bool = False


@dataclass(slots=True)
class GuardedNfa:
    """An NFA with guarded empty moves (state: guard and target). Bodies of assertions end in `success`."""

    nfa: Nfa
    success: int
    guards: dict[int, tuple[Guard, int]] = field(default_factory=dict)
    trackers: list[int] = field(default_factory=list)


Tracker = frozenset[tuple[int, Formula]]
State = tuple[int, Formula, tuple[Tracker, ...]]


def determinize(guarded: GuardedNfa, start: int) -> Dfa:
    """The minimal DFA of what is accepted from `start`. Raises LimitExceeded while it grows."""
    construction = _Construction(guarded)
    budget, what = guarded.nfa.budget, guarded.nfa.what
    first: State = (_EDGE, state_formula(start), tuple(frozenset({(y, TRUE)}) for y in guarded.trackers))
    ids, order = {first: 0}, [first]
    rows: list[dict[int, int]] = []
    finals: set[int] = set()
    n_edges = n_terms = 0
    for number, state in enumerate(order):
        if construction.accepts(state):
            finals.add(number)
        row: dict[int, int] = {}
        for c, after in construction.step(state):
            target = ids.get(after)
            if target is None:
                target = ids[after] = len(order)
                order.append(after)
                n_terms += sum(map(len, after[1])) + sum(len(tracker) for tracker in after[2])
            row[c] = target
        rows.append(row)
        n_edges += len(set(row.values()))
        budget.check_automaton(len(order), n_edges, what)
        if n_terms > _MAX_TERMS:
            raise guarded.nfa.too_large()
    return minimise(trim(Dfa(construction.alphabet, tuple(rows), frozenset(finals))))


class _Construction:
    """The classes, and how a state of the Boolean automaton goes on over each."""

    def __init__(self, guarded: GuardedNfa) -> None:
        self.guarded = guarded
        sets = guarded.nfa.sets
        self.alphabet, members = partition([*sets, WORD, LINE_END])
        words, line_ends = set(members[-2]), set(members[-1])
        self.kinds = [_WORD if c in words else _LINE_END if c in line_ends else _OTHER for c in range(len(self.alphabet))]
        in_sets = {c for classes in members[: len(sets)] for c in classes}
        self.classes = sorted(in_sets)
        self.arcs = [[(frozenset(members[i]), t) for i, t in arcs] for arcs in guarded.nfa.arcs]
        everything = guarded.nfa.everything
        self.all_texts = frozenset() if everything is None else frozenset({2 * guarded.nfa.any_text(0)})
        anchors = {guard.anchor for guard, _ in guarded.guards.values()}
        self.seen_kinds = _seen_kinds(anchors)
        self.work = 0

    def charge(self, n: int) -> None:
        """Count `n` steps of work. Raises LimitExceeded past the bound, or past the deadline."""
        self.work += n
        self.guarded.nfa.budget.tick()
        if self.work > _MAX_WORK:
            raise self.guarded.nfa.too_large()

    def accepts(self, state: State) -> bool:
        """May the text end here?"""
        place = _Place(self, state, _EDGE, None)
        return place.after(state[1]) == TRUE

    def step(self, state: State) -> list[tuple[int, State]]:
        """The state after each class of characters that leads somewhere."""
        found: list[tuple[int, State]] = []
        by_signature: dict[object, State | None] = {}
        relevant = self.relevant(state)
        for c in self.classes:
            signature = (self.kinds[c], tuple(c in classes for classes in relevant))
            if signature not in by_signature:
                by_signature[signature] = self.successor(state, c)
            after = by_signature[signature]
            if after is not None:
                found.append((c, after))
        return found

    def successor(self, state: State, c: int) -> State | None:
        """The state after a character of class `c`; None where no word goes on so."""
        place = _Place(self, state, self.kinds[c], c)
        formula = place.after(state[1])
        if formula == FALSE:
            return None
        if self.all_texts in formula:
            return (_EDGE, frozenset({self.all_texts}), ())
        return (self.seen_kinds[self.kinds[c]], formula, place.trackers_after())

    def relevant(self, state: State) -> list[frozenset[int]]:
        """The sets of classes on the arcs that may matter in `state`: classes in the same ones lead to the same place."""
        atoms = {literal >> 1 for term in state[1] for literal in term}
        for tracker in state[2]:
            for y, formula in tracker:
                atoms.add(y)
                atoms.update(literal >> 1 for term in formula for literal in term)
        moves, guards = self.guarded.nfa.moves, self.guarded.guards
        todo = list(atoms)
        while todo:
            s = todo.pop()
            targets = list(moves[s])
            if s in guards:
                guard, target = guards[s]
                targets += [target] if guard.ahead < 0 else [target, guard.ahead]
            for target in targets:
                if target not in atoms:
                    atoms.add(target)
                    todo.append(target)
        self.charge(len(atoms))
        return list({classes for s in atoms for classes, _ in self.arcs[s]})


def _seen_kinds(anchors: set[Anchor | None]) -> list[int]:
    """The kind of place to remember behind each kind of character: only what some anchor asks for."""
    if not anchors & {Anchor.START, Anchor.LINE_START, Anchor.BOUNDARY, Anchor.NO_BOUNDARY}:
        return [_EDGE] * 4
    line = _LINE_END if Anchor.LINE_START in anchors else _OTHER
    word = _WORD if anchors & {Anchor.BOUNDARY, Anchor.NO_BOUNDARY} else _OTHER
    return [_EDGE, line, word, _OTHER]


class _Place:
    """Between two characters: the state before, and the class of the next character (None: the text ends)."""

    def __init__(self, construction: _Construction, state: State, next_kind: int, next_class: int | None) -> None:
        self.guarded = construction.guarded
        self.arcs = construction.arcs
        self.before, _, self.trackers = state
        self.next_kind = next_kind
        self.next_class = next_class
        self.reached: dict[int, dict[int, Formula]] = {}
        self.values: dict[int, Formula] = {}
        self.charge = construction.charge
        self.behind: list[Formula] = []
        for tracker in self.trackers:  # inner look-behinds have smaller numbers
            self.behind.append(self.look_behind(tracker))

    def after(self, formula: Formula) -> Formula:
        """`formula` once the next character is read; at the end TRUE or FALSE."""
        result = FALSE
        for term in formula:
            value = TRUE
            for literal in term:
                atom = self.value(literal >> 1)
                value = conjunction(value, negation(atom, self.charge) if literal & 1 else atom, self.charge)
                if value == FALSE:
                    break
            result = disjunction(result, value, self.charge)
        return result

    def value(self, state: int) -> Formula:
        """What "the rest is read from `state`" becomes."""
        found = self.values.get(state)
        if found is None:
            found = FALSE
            for s, condition in self.reach(state).items():
                found = disjunction(found, conjunction(condition, self.read(s), self.charge), self.charge)
            self.values[state] = found
        return found

    def read(self, state: int) -> Formula:
        """The arcs of `state` over the next character; TRUE where a body, or at the end the whole, is over."""
        if state == self.guarded.success:
            return TRUE
        if self.next_class is None:
            return TRUE if state in self.guarded.nfa.accepting else FALSE
        result = FALSE
        for classes, target in self.arcs[state]:
            if self.next_class in classes:
                result = disjunction(result, state_formula(target), self.charge)
        return result

    def reach(self, state: int) -> dict[int, Formula]:
        """The states that empty moves reach from `state`, each with the condition of getting there."""
        found = self.reached.get(state)
        if found is not None:
            return found
        found = {state: TRUE}
        todo = [state]
        while todo:
            s = todo.pop()
            self.charge(1)
            condition = found[s]
            steps = [(target, condition) for target in self.guarded.nfa.moves[s]]
            if s in self.guarded.guards:
                guard, target = self.guarded.guards[s]
                steps.append((target, conjunction(condition, self.holds(guard), self.charge)))
            for target, arriving in steps:
                known = found.get(target, FALSE)
                joined = disjunction(known, arriving, self.charge)
                if joined != known:
                    found[target] = joined
                    todo.append(target)
        self.reached[state] = found
        return found

    def holds(self, guard: Guard) -> Formula:
        """When `guard` holds here."""
        if guard.anchor is not None:
            return TRUE if self.is_at(guard.anchor) else FALSE
        value = self.value(guard.ahead) if guard.ahead >= 0 else self.behind[guard.tracker]
        return negation(value, self.charge) if guard.negated else value

    def is_at(self, anchor: Anchor) -> bool:
        """Is this place what `anchor` asks for?"""
        at_end = self.next_class is None
        match anchor:
            case Anchor.START:
                return self.before == _EDGE
            case Anchor.END:
                return at_end
            case Anchor.LINE_START:
                return self.before in (_EDGE, _LINE_END)
            case Anchor.LINE_END:
                return at_end or self.next_kind == _LINE_END
            case Anchor.BOUNDARY:
                return (self.before == _WORD) != (not at_end and self.next_kind == _WORD)
            case Anchor.NO_BOUNDARY:
                return not self.is_at(Anchor.BOUNDARY)

    def look_behind(self, tracker: Tracker) -> Formula:
        """When the body of a look-behind ends here."""
        result = FALSE
        for y, condition in tracker:
            ends = self.reach(y).get(self.guarded.success, FALSE)
            if ends != FALSE:
                result = disjunction(result, conjunction(self.after(condition), ends, self.charge), self.charge)
        return result

    def trackers_after(self) -> tuple[Tracker, ...]:
        """Every look-behind once the next character is read; each may begin anew there."""
        out: list[Tracker] = []
        for start, tracker in zip(self.guarded.trackers, self.trackers, strict=True):
            found: dict[int, Formula] = {start: TRUE}
            self.charge(len(tracker))
            for y, condition in tracker:
                stepped = self.after(condition)
                for s, passed in self.reach(y).items():
                    arriving = conjunction(stepped, passed, self.charge)
                    if arriving == FALSE:
                        continue
                    for classes, target in self.arcs[s]:
                        if self.next_class in classes:
                            found[target] = disjunction(found.get(target, FALSE), arriving, self.charge)
            out.append(frozenset(found.items()))
        return tuple(out)
