"""`gramserve generate`: one prompt, one answer (or --n) on stdout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing

from server.cli.command import Command
from server.cli.constraint import add_constraint_options, read_stdin, request_fields, uses_stdin
from server.cli.error import UsageError
from server.cli.options import whole
from server.cli.session import Piece, Session, add_session_options, open_session, sampling_fields


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the prompt; absent or -: stdin")
    parser.add_argument(
        "--n", type=whole(1, 128), default=1, metavar="N", help="answers, each on a line of its own or more; default 1"
    )
    parser.add_argument("--raw", action="store_true", help="continue the prompt as it is, without the model's chat template")
    add_constraint_options(parser, required=False)
    add_session_options(parser)


def _run(arguments: argparse.Namespace) -> int:
    prompt = _read_prompt(arguments)
    fields = {**sampling_fields(arguments), **request_fields(arguments), "n": arguments.n}
    with open_session(arguments) as session, closing(_ask(session, prompt, fields, arguments)) as pieces:
        cut = _print(pieces, arguments.n)
    if cut:
        print("gramserve: cut off at the token limit", file=sys.stderr)
    return 0


def _read_prompt(arguments: argparse.Namespace) -> str:
    if arguments.prompt not in (None, "-"):
        prompt: str = arguments.prompt
        return prompt
    if uses_stdin(arguments):
        raise UsageError("stdin can't be both the constraint and the prompt")
    if sys.stdin.isatty() and arguments.prompt is None:
        raise UsageError("a prompt is missing (see gramserve generate --help)")
    return read_stdin("PROMPT")


def _ask(
    session: Session, prompt: str, fields: dict[str, object], arguments: argparse.Namespace
) -> Generator[Piece, None, None]:
    if arguments.raw:
        return session.stream_text(prompt, fields)
    system = [{"role": "system", "content": arguments.system}] if arguments.system else []
    return session.stream_chat([*system, {"role": "user", "content": prompt}], fields)


def _print(pieces: Iterator[Piece], n: int) -> bool:
    """Print one answer as it comes, several when all are there. True when one was cut off."""
    texts, cut = [""] * n, False
    for piece in pieces:
        cut |= piece.finish_reason == "length"
        texts[piece.index] += piece.text
        if n == 1:
            print(piece.text, end="", flush=True)
    if n == 1:
        print()
    else:
        print("\n".join(texts))
    return cut


COMMANDS: Mapping[str, Command] = {
    "generate": Command(
        _add_arguments,
        _run,
        "Answer one prompt on stdout, held to a constraint if one is given.",
        "examples:\n  gramserve generate 'Name a colour.' --choice red,green,blue --n 5\n"
        "  gramserve generate 'Invent a person.' --schema person.json --temperature 1.2 --seed 7\n"
        "  gramserve generate --raw 'Once upon a time' --max-tokens 50\n"
        "  gramserve generate 'Is it so?' --choice yes,no --url http://127.0.0.1:8080",
    )
}
