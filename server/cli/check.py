"""`gramserve check`: does a text satisfy a constraint, and if not, where does it stop and what could have stood there?"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from server.cli.command import Command
from server.cli.constraint import add_constraint_options, read_constraint, read_options, read_stdin, uses_stdin
from server.cli.error import UsageError
from server.cli.options import add_limit_options

if TYPE_CHECKING:
    from converters.grammar.charset import CharSet
    from converters.grammar.match import Verdict

_N_RANGES = 20
_CONTEXT = 30


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the text; absent or -: stdin, less one line end")
    parser.add_argument("--file", metavar="FILE", help="take the text from a file, as it is")
    parser.add_argument("--quiet", "-q", action="store_true", help="say it by the exit status only")
    add_constraint_options(parser, required=True, takes_tools=True)
    add_limit_options(parser)


def _run(arguments: argparse.Namespace) -> int:
    from converters.compile import compile_constraint
    from converters.grammar.match import Matcher

    constraint = read_constraint(arguments)
    assert constraint is not None  # the parser demands one
    text = _read_text(arguments)
    compiled = compile_constraint(constraint, read_options(arguments))
    verdict = Matcher.from_tables(compiled.tables).check(text)
    if not arguments.quiet:
        print("accepted" if verdict.accepted else _describe(text, verdict))
    return 0 if verdict.accepted else 1


def _read_text(arguments: argparse.Namespace) -> str:
    if arguments.file is not None:
        if arguments.text is not None:
            raise UsageError("TEXT and --file are two texts")
        try:
            return Path(arguments.file).read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--file {arguments.file}: {error}") from error
    if arguments.text not in (None, "-"):
        text: str = arguments.text
        return text
    if uses_stdin(arguments):
        raise UsageError("stdin can't be both the constraint and the text")
    return read_stdin("TEXT").removesuffix("\n").removesuffix("\r")


def _describe(text: str, verdict: Verdict) -> str:
    """Three lines: what happened and where, the place in its line, what could have stood there."""
    from converters.errors import Position

    place = Position.at(text, verdict.offset)
    where = f"line {place.line}, column {place.column} (character {place.offset})"
    what = "incomplete" if verdict.offset == len(text) else f"refused: {text[verdict.offset]!r}"
    shown = text[max(0, verdict.offset - _CONTEXT) : verdict.offset].replace("\n", "⏎")
    after = text[verdict.offset : verdict.offset + _CONTEXT].replace("\n", "⏎")
    return f"{what} at {where}\n  {shown}«here»{after}\nallowed there: {_allowed(verdict)}"


def _allowed(verdict: Verdict) -> str:
    words = [*_ranges(verdict.allowed), *(("not " if token.negated else "") + str(token.token) for token in verdict.tokens)]
    if verdict.may_end:
        words.append("the end")
    return " ".join(words) or "nothing"


def _ranges(chars: CharSet) -> list[str]:
    """A character set for reading: `a-z`, quoted where a character can't be seen."""
    shown = [_char(low) if low == high else f"{_char(low)}-{_char(high)}" for low, high in chars.ranges[:_N_RANGES]]
    return [*shown, f"and {len(chars.ranges) - _N_RANGES} more ranges"] if len(chars.ranges) > _N_RANGES else shown


def _char(point: int) -> str:
    char = chr(point)
    return char if char.isprintable() and not char.isspace() and char != "-" else f"U+{point:04X}"


COMMANDS: Mapping[str, Command] = {
    "check": Command(
        _add_arguments,
        _run,
        "Hold a text against a constraint. Exit status 0 if it is accepted, 1 if not: then the place where it stops, and what\n"
        "could have stood there, are printed. Needs no model.",
        "examples:\n  gramserve check --regex '[0-9]{4}-[0-9]{2}' 2024-1x\n"
        "  gramserve check --schema person.json --file answer.json\n"
        "  echo yes | gramserve check --choice yes,no",
    )
}
