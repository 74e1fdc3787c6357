"""`gramserve chat`: a conversation in the terminal, every answer held to the constraint if one is given."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress

from server.cli.command import Command
from server.cli.constraint import add_constraint_options, request_fields
from server.cli.session import Piece, RequestFailed, Session, add_session_options, open_session, sampling_fields

_HELP = "/clear forgets the conversation, /exit (or Ctrl-D) leaves; Ctrl-C stops an answer"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_constraint_options(parser, required=False)
    add_session_options(parser)


def _run(arguments: argparse.Namespace) -> int:
    fields = {**sampling_fields(arguments), **request_fields(arguments)}
    with open_session(arguments) as session:
        if sys.stdin.isatty():
            print(_HELP, file=sys.stderr)
        return _converse(Conversation(session, fields, arguments.system))


class Conversation:
    """What was said so far."""

    def __init__(self, session: Session, fields: dict[str, object], system: str | None) -> None:
        self._session = session
        self._fields = fields
        self._start = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._start)

    def clear(self) -> None:
        """Forget it."""
        self._messages = list(self._start)

    def ask(self, text: str) -> None:
        """Print the answer to `text` as it comes, and remember both. Raises RequestFailed: then neither is."""
        messages = [*self._messages, {"role": "user", "content": text}]
        answer = ""
        with closing(self._pieces(messages)) as pieces:
            try:
                for piece in pieces:
                    answer += piece.text
                    print(piece.text, end="", flush=True)
            except KeyboardInterrupt:
                print(" …", end="")
        print(flush=True)
        self._messages = [*messages, {"role": "assistant", "content": answer}]

    def _pieces(self, messages: list[dict[str, str]]) -> Generator[Piece, None, None]:
        return self._session.stream_chat(messages, self._fields)


def _converse(conversation: Conversation) -> int:
    """Read and answer until the end. From a pipe, an error is the exit status; at a terminal the talk goes on."""
    for line in _read_lines():
        match line.strip():
            case "":
                continue
            case "/exit" | "/quit":
                break
            case "/clear":
                conversation.clear()
            case "/help":
                print(_HELP, file=sys.stderr)
            case _:
                try:
                    conversation.ask(line)
                except RequestFailed as error:
                    if not sys.stdin.isatty():
                        raise
                    print(f"gramserve: {error}", file=sys.stderr)
    return 0


def _read_lines() -> Iterator[str]:
    """What is typed, with line editing where Python has it, or the lines of a pipe."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            yield line.rstrip("\r\n")
        return
    with suppress(ImportError):
        import readline  # noqa: F401 - input() then has history and editing
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            yield input("> ")
    print(file=sys.stderr)


COMMANDS: Mapping[str, Command] = {
    "chat": Command(
        _add_arguments,
        _run,
        f"Chat in the terminal. {_HELP}.",
        "examples:\n  gramserve chat\n  gramserve chat --schema answer.json --system 'Answer in JSON.'\n"
        "  gramserve chat --url http://127.0.0.1:8080 --choice yes,no",
    )
}
