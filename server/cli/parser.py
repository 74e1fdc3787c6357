"""The grammar of the command line: commands, their options and their help."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NoReturn

from server.cli.command import Command
from server.cli.error import UsageError
from server.cli.options import check_environment

# name → module of server.cli that has it among its own COMMANDS, and one line of help
COMMANDS: Mapping[str, tuple[str, str]] = {
    "serve": ("serve", "serve models over HTTP (also plain `gramserve`)"),
    "list": ("models", "list the models of models.txt"),
    "pull": ("models", "fetch models"),
    "rm": ("models", "delete fetched models"),
    "chat": ("chat", "chat in the terminal"),
    "generate": ("generate", "answer one prompt"),
    "compile": ("compile", "print the grammar of a constraint"),
    "check": ("check", "does a text satisfy a constraint?"),
    "bench": ("bench", "measure this server and others with the same requests"),
}

EPILOG = """\
Every option also has a variable, named with it. Examples:
  gramserve                                     serve the default model on http://127.0.0.1:8080
  gramserve ./model.gguf --port 9000            serve a file
  gramserve generate "Write a date." --regex "[0-9]{4}-[0-9]{2}-[0-9]{2}"
  gramserve compile --schema person.json --explain
  gramserve check --regex "a+b" aaab
`gramserve COMMAND --help` says more."""


class Parser(argparse.ArgumentParser):
    """argparse, with errors as UsageError."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The chosen command's arguments, with `run` among them. Raises UsageError; --help and --version exit."""
    words = list(arguments)
    if not words or (words[0] not in COMMANDS and words[0] not in ("-h", "--help", "--version")):
        words.insert(0, "serve")
    parsed = _make_parser(words[0]).parse_args(words)
    check_environment(parsed)
    return parsed


def _make_parser(chosen: str) -> Parser:
    """The parser; only the chosen command's module is imported and asked for its options."""
    parser = Parser(
        prog="gramserve",
        description="A local LLM server on llama.cpp whose answers always have the shape that was asked for.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        if name != chosen:
            commands.add_parser(name, help=summary)
            continue
        command: Command = import_module(f"server.cli.{module}").COMMANDS[name]
        added = commands.add_parser(
            name,
            help=summary,
            description=command.description,
            epilog=command.examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(added)
        added.set_defaults(run=command.run)
    return parser


class _Version(argparse.Action):
    """--version, looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"gramserve {version('gramserve')}")
        except PackageNotFoundError:
            print("gramserve (not installed)")
        parser.exit()
