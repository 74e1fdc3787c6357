"""`gramserve compile`: a constraint's grammar, and with --explain what there is to know about it."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from server.cli.command import Command
from server.cli.constraint import add_constraint_options, read_constraint, read_options
from server.cli.options import add_limit_options, whole

if TYPE_CHECKING:
    from converters.compile import Compiled

_MAX_SENTENCE = 200
_MAX_SHORTEST = 100_000  # characters that are written out


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--explain", action="store_true", help="print a report instead: size, cost, what was relaxed, outputs")
    parser.add_argument("--samples", type=whole(0, 100), default=3, metavar="N", help="random outputs in the report, default 3")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="seed of the random outputs, default 0")
    add_constraint_options(parser, required=True, takes_tools=True)
    add_limit_options(parser)


def _run(arguments: argparse.Namespace) -> int:
    from converters.compile import compile_constraint

    constraint = read_constraint(arguments)
    assert constraint is not None  # the parser demands one
    compiled = compile_constraint(constraint, read_options(arguments))
    if arguments.explain:
        compiled = compile_constraint(constraint, read_options(arguments))  # again: the first time is that of the imports
        _explain(type(constraint).__name__, compiled, arguments)
        return 0
    print(compiled.gbnf, end="" if compiled.gbnf.endswith("\n") else "\n")
    for relaxed in compiled.relaxed:
        print(f"gramserve: relaxed at {relaxed.path or 'the root'}: {relaxed.reason}", file=sys.stderr)
    for note in compiled.notes:
        print(f"gramserve: note: {note}", file=sys.stderr)
    return 0


def _explain(kind: str, compiled: Compiled, arguments: argparse.Namespace) -> None:
    from converters.grammar.match import Matcher

    stats = compiled.stats
    matcher = Matcher.from_tables(compiled.tables)
    rng = random.Random(arguments.seed)
    print(f"kind         {kind}")
    print(f"rules        {stats.n_rules} ({len(compiled.gbnf.encode())} bytes of GBNF)")
    print(f"states       {stats.n_states}")
    print(f"compile time {stats.compile_ms:.1f} ms")
    for relaxed in compiled.relaxed:
        print(f"relaxed      {relaxed.path or 'the root'}: {relaxed.reason}")
    for note in compiled.notes:
        print(f"note         {note}")
    n_least = matcher.least_length(matcher.start)
    if n_least <= _MAX_SHORTEST:
        print(f"shortest     {_quote(matcher.shortest_completion(matcher.start))}")
        for _ in range(arguments.samples):
            print(f"random       {_quote(matcher.random_sentence(rng, _MAX_SENTENCE))}")
    else:
        print(f"shortest     {n_least} characters")
    print(f"\n{compiled.gbnf}", end="" if compiled.gbnf.endswith("\n") else "\n")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


COMMANDS: Mapping[str, Command] = {
    "compile": Command(
        _add_arguments,
        _run,
        "Print a constraint as the GBNF grammar that llama.cpp enforces. What can't be expressed exactly is an error that\n"
        "names it (exit status 1). Needs no model.",
        "examples:\n  gramserve compile --regex '[0-9]{4}'\n  gramserve compile --schema person.json --explain\n"
        '  gramserve compile --schema \'{"type": "integer", "minimum": 3}\'\n  gramserve compile --choice yes,no,maybe',
    )
}
