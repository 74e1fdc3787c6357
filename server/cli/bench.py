"""`gramserve bench`: this server and others, measured with the same requests in turn."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from server.bench.scenario import SCENARIOS
from server.cli.command import Command
from server.cli.error import UsageError
from server.cli.options import add_engine_options, add_model_options, add_option, whole

if TYPE_CHECKING:
    from server.bench.measure import Peer, Result

_OWN = (
    "models",
    "cache_dir",
    "ctx",
    "parallel",
    "gpu_layers",
    "threads",
    "chat_template_file",
    "disable_reasoning",
    "fast_forward",
    "speculation",
    "flash_attention",
    "repack",
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "peers",
        nargs="*",
        metavar="NAME=URL[#MODEL]",
        type=_read_peer,
        help="servers with an OpenAI-compatible API that are running already; ratios are to the first",
    )
    parser.add_argument("--no-own", action="store_true", help="measure only the servers that are named")
    parser.add_argument("--rounds", type=whole(1), default=5, metavar="N", help="rounds that count; default 5")
    parser.add_argument(
        "--clients",
        type=_read_counts,
        default=(1, 4),
        metavar="N,N",
        help="clients at once, one count after the other; default 1,4",
    )
    parser.add_argument(
        "--only", action="append", choices=tuple(SCENARIOS), metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; all"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="also write bench.md, bench.json and bench.svg there")
    add_option(parser, "--api-key", metavar="KEY", help="the key that the named servers demand")
    add_option(parser, "--model", "-m", metavar="ALIAS|PATH", help="the model of this server; the default one")
    add_model_options(parser)
    add_engine_options(parser)


def _read_peer(text: str) -> tuple[str, str, str]:
    """Name, URL and model; servers with one model take any name for it."""
    name, equals, address = text.partition("=")
    url, _, model = address.partition("#")
    if not equals or not name or not url.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=URL or NAME=URL#MODEL")
    return name, url.rstrip("/").removesuffix("/v1"), model or "default"


def _read_counts(text: str) -> tuple[int, ...]:
    return tuple(whole(1, 256)(word) for word in text.split(","))


def _run(arguments: argparse.Namespace) -> int:
    from server.bench.report import write_table

    with ExitStack() as stack:
        peers = _named_peers(arguments)
        if not arguments.no_own:
            peers.append(stack.enter_context(_own_server(arguments)))
        if len({peer.name for peer in peers}) < len(peers) or not peers:
            raise UsageError(
                "every server needs a name of its own (this one is gramserve)" if peers else "no server to measure"
            )
        results = asyncio.run(_measure(peers, arguments))
    print(write_table(results))
    if arguments.out is not None:
        _write(arguments.out, results)
    return 1 if any(result.error for result in results) else 0


def _named_peers(arguments: argparse.Namespace) -> list[Peer]:
    from server.bench.measure import Peer

    return [Peer(name, url, model, arguments.api_key) for name, url, model in arguments.peers]


async def _measure(peers: Sequence[Peer], arguments: argparse.Namespace) -> list[Result]:
    from server.bench.measure import compare

    results: list[Result] = []
    for name in arguments.only or SCENARIOS:
        for n_clients in arguments.clients:
            print(f"{name}, {n_clients} client{'s' * (n_clients > 1)} …", file=sys.stderr, flush=True)
            results += await compare(peers, name, SCENARIOS[name], n_clients, arguments.rounds)
    return results


@contextmanager
def _own_server(arguments: argparse.Namespace) -> Iterator[Peer]:
    """This server, as users run it: a process of its own, with the options of this command."""
    from server.bench.measure import Peer
    from server.bench.own import running_server

    with running_server(own_words(arguments)) as (url, key):
        yield Peer("gramserve", url, api_key=key)


def own_words(arguments: argparse.Namespace) -> list[str]:
    """The command line of this server: the model, and the options of this command that are `serve`'s too."""
    words = [arguments.model] if arguments.model else []
    for name in _OWN:
        flag, value = name.replace("_", "-"), getattr(arguments, name)
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words


def _write(folder: Path, results: Sequence[Result]) -> None:
    from server.bench.machine import describe_machine
    from server.bench.plot import PlotUnavailable, draw_plot
    from server.bench.report import as_data, write_page

    folder.mkdir(parents=True, exist_ok=True)
    machine, today = describe_machine(), date.today().isoformat()
    picture: str | None = "bench.svg"
    try:
        draw_plot(results, folder / "bench.svg")
    except PlotUnavailable as error:
        print(f"gramserve: {error}", file=sys.stderr)
        picture = None
    (folder / "bench.md").write_text(write_page(results, machine, today, picture), "utf-8")
    (folder / "bench.json").write_text(json.dumps(as_data(results, machine, today), indent=1) + "\n", "utf-8")


COMMANDS: Mapping[str, Command] = {
    "bench": Command(
        _add_arguments,
        _run,
        "Measure this server, and others beside it, with the same streamed requests in turn. Give every server the same model, "
        "threads, slots and context, and let nothing else run.",
        "examples:\n  gramserve bench\n  gramserve bench llama-server=http://127.0.0.1:8081 --out docs/bench\n"
        "  gramserve bench ollama=http://127.0.0.1:11434#smollm2 --only free\n"
        "  gramserve bench a=http://127.0.0.1:8080 b=http://127.0.0.1:8081 --no-own --only schema --rounds 3",
    )
}
