"""`gramserve serve`: see `running` for the server itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from server.cli.command import Command
from server.cli.options import (
    add_engine_options,
    add_limit_options,
    add_log_option,
    add_model_options,
    add_option,
    fetch_models,
    listed,
    make_settings,
    mebibytes,
    number,
    open_models,
    seconds,
    whole,
)

_CURL = """\
  curl {url}/v1/chat/completions -H 'Content-Type: application/json'{auth} \\
    -d '{{"messages": [{{"role": "user", "content": "Is water wet?"}}], "guided_choice": ["yes", "no"]}}'"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="ALIAS|PATH",
        help="models to load at start, the first is the default: aliases, .gguf files, sources",
    )
    add_option(parser, "--model", "-m", is_list=True, metavar="ALIAS|PATH", help="the same as naming it without --model")
    group = parser.add_argument_group("server")
    add_option(group, "--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on")
    add_option(group, "--port", type=whole(0, 65535), default=8080, metavar="N", help="port to listen on (0: any free one)")
    add_option(group, "--api-key", metavar="KEY", help="demand this key from clients")
    add_option(
        group, "--allow-origin", is_list=True, metavar="ORIGIN", help="a web origin that may ask (CORS), again and again"
    )
    choices = ("error", "unconstrained")
    said = "what to do if a grammar fails in the middle of a reply"
    add_option(group, "--constraint-failure", choices=choices, default="error", help=said)
    add_option(
        group,
        "--stall-timeout",
        type=number,
        default=30.0,
        metavar="S",
        help="seconds until a client that reads nothing is dropped",
    )
    add_option(
        group,
        "--hang-timeout",
        type=number,
        default=60.0,
        metavar="S",
        help="seconds until a model process is given up whose sampler doesn't return",
    )
    add_option(
        group, "--drain-timeout", type=number, default=5.0, metavar="S", help="seconds that SIGTERM leaves to running replies"
    )
    _add_residence_options(parser)
    add_model_options(parser)
    add_engine_options(parser)
    add_limit_options(parser)
    add_log_option(parser)


def _add_residence_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("several models")
    said = "seconds that a model not named at start stays after its last use; -1: for ever"
    add_option(group, "--keep-alive", type=seconds, default=300.0, metavar="S", help=said)
    said = "memory of all loaded models together, estimated; most of the machine's"
    add_option(group, "--max-memory", type=mebibytes, metavar="MIB", help=said)


def _run(arguments: argparse.Namespace) -> int:
    from server.chat.templates import TEMPLATES
    from server.cli.running import bind, is_loopback, serve

    settings = make_settings(arguments)
    names = (*arguments.names, *listed(arguments, "model"))
    catalogue, store = open_models(arguments, names)
    catalogue.check_templates(TEMPLATES)
    preload = catalogue.aliases[: max(1, len(set(names)))]
    with bind(settings.host, settings.port) as listener:
        if settings.api_key is None and not is_loopback(listener):
            print("gramserve: warning: without --api-key, anybody who reaches this address can use the server", file=sys.stderr)
        fetch_models(catalogue, store, preload)

        def announce(url: str) -> None:
            auth = " -H 'Authorization: Bearer …'" if settings.api_key else ""
            print(
                f"gramserve is ready on {url} with {', '.join(preload)}. Try:\n{_CURL.format(url=url, auth=auth)}", flush=True
            )

        try:
            return serve(settings, catalogue, store, listener, preload=preload, on_ready=announce)
        except KeyboardInterrupt:
            return 0
        finally:
            sys.stdout.flush()


COMMANDS: Mapping[str, Command] = {
    "serve": Command(
        _add_arguments,
        _run,
        "Serve models over HTTP with OpenAI's API. A model of models.txt is loaded when it is first asked for;\n"
        "those named here are loaded at start (none named: the first line of models.txt). Ctrl-C ends the server.",
        "examples:\n  gramserve serve\n  gramserve serve qwen3-0.6b smollm2-135m\n"
        "  gramserve serve ./model.gguf --ctx 4096 --port 9000\n"
        "  gramserve serve --limit regex_bytes=8192 --limit compile_s=5",
    )
}
