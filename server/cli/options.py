"""Options that several commands share, each with its GRAMSERVE_* variable, and what they make: Settings and the catalogue."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from server.cli.error import UsageError
from server.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from server.models.catalogue import Catalogue
    from server.models.store import Store

_SPECIAL_VARIABLES: Mapping[str, str] = {"cache_dir": "GRAMSERVE_CACHE"}
_YES_NO: Mapping[str, bool] = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
    "": False,
}

LIMITS: Mapping[str, tuple[str, str]] = {
    # name on the command line → field of Settings, field of that
    "regex_bytes": ("request_limits", "regex_bytes"),
    "grammar_bytes": ("request_limits", "grammar_bytes"),
    "schema_bytes": ("request_limits", "schema_bytes"),
    "tools_bytes": ("request_limits", "tools_bytes"),
    "n_choice_options": ("request_limits", "n_choice_options"),
    "choice_bytes": ("request_limits", "choice_bytes"),
    "json_depth": ("request_limits", "json_depth"),
    "json_values": ("request_limits", "json_values"),
    "body_bytes": ("request_limits", "body_bytes"),
    "tokenize_bytes": ("request_limits", "tokenize_bytes"),
    "max_waiting": ("request_limits", "max_waiting"),
    "kept_responses": ("request_limits", "kept_responses"),
    "kept_response_bytes": ("request_limits", "kept_response_bytes"),
    "automaton_bytes": ("compile_limits", "automaton_bytes"),
    "compiled_regex_bytes": ("compile_limits", "regex_grammar_bytes"),
    "compiled_grammar_bytes": ("compile_limits", "grammar_bytes"),
    "compile_s": ("compile_limits", "compile_s"),
}


class BadValue:
    """Stands for a variable that can't be read; an error only for the command that has its option."""

    def __init__(self, message: str) -> None:
        self.message = message


def add_option(
    group: argparse._ActionsContainer,
    flag: str,
    *short: str,
    help: str,
    type: Callable[[str], Any] = str,
    default: Any = None,
    choices: Sequence[str] | None = None,
    metavar: str | None = None,
    is_switch: bool = False,
    is_list: bool = False,
) -> None:
    """Add `--flag` and its variable GRAMSERVE_FLAG (for a list: values with commas between)."""
    dest = flag.lstrip("-").replace("-", "_")
    variable = _SPECIAL_VARIABLES.get(dest, f"GRAMSERVE_{dest.upper()}")
    said = "" if default in (None, (), False) else f", default {default}"
    text = f"{help} [{variable}{said}]"
    value = _from_environment(variable, type, choices, is_switch, is_list)
    effective = default if value is None else value
    if is_switch:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=effective, help=text)
    elif is_list:
        group.add_argument(flag, *short, action="append", type=type, default=None, metavar=metavar, help=text)
        group.set_defaults(**{f"{dest}_before": effective or ()})
    else:
        group.add_argument(flag, *short, type=type, default=effective, choices=choices, metavar=metavar, help=text)


def _from_environment(
    variable: str, type: Callable[[str], Any], choices: Sequence[str] | None, is_switch: bool, is_list: bool
) -> Any:
    text = os.environ.get(variable)
    if text is None or (text == "" and not is_switch):
        return None
    try:
        if is_switch:
            return _YES_NO[text.lower()]
        if is_list:
            return tuple(type(word.strip()) for word in text.split(",") if word.strip())
        value = type(text)
        if choices is not None and value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
    except (ValueError, KeyError, argparse.ArgumentTypeError) as error:
        reason = str(error) if isinstance(error, argparse.ArgumentTypeError) or choices else "can't be read"
        return BadValue(f"{variable}={text!r}: {reason}")
    return value


def check_environment(arguments: argparse.Namespace) -> None:
    """Raise UsageError for a variable that the chosen command reads and can't."""
    for value in vars(arguments).values():
        if isinstance(value, BadValue):
            raise UsageError(value.message)


def listed(arguments: argparse.Namespace, dest: str) -> tuple[Any, ...]:
    """The values of a list option: those of the command line, else those of its variable."""
    given = getattr(arguments, dest)
    return tuple(given) if given is not None else tuple(getattr(arguments, f"{dest}_before"))


# ---- types of values


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A reader of whole numbers in a range."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{value} is not {f'{least} or more' if most is None else f'{least} to {most}'}")
        return value

    return read


def seconds(text: str) -> float:
    """A time; a negative one is for ever."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if value != value:
        raise argparse.ArgumentTypeError(f"{text} is not a number")
    return value if value >= 0 else float("inf")


def mebibytes(text: str) -> int:
    """A whole number of MiB, in bytes."""
    return whole(1)(text) << 20


def number(text: str) -> float:
    """A finite number from 0 up."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 up")
    return value


def limit(text: str) -> tuple[str, float]:
    """`name=value` of one of LIMITS."""
    name, equals, value = text.partition("=")
    if not equals or name not in LIMITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value with one of {', '.join(LIMITS)}")
    return name, number(value) if name == "compile_s" else whole(1)(value)


# ---- groups


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Which models.txt, and where fetched models lie."""
    group = parser.add_argument_group("models")
    add_option(group, "--models", metavar="FILE", help="models.txt to use, instead of looking for one")
    add_option(group, "--cache-dir", metavar="DIR", help="folder for fetched models")


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """How models are loaded."""
    group = parser.add_argument_group("loading (these win over models.txt)")
    add_option(group, "--ctx", type=whole(1), metavar="N", help="context of one slot in tokens; the model's own, up to 8192")
    add_option(group, "--parallel", type=whole(1, 256), metavar="N", help="slots: requests decoded at once; 4")
    add_option(
        group, "--gpu-layers", type=whole(-1), metavar="N", help="layers on the GPU, where llama.cpp was built for one; all"
    )
    add_option(group, "--threads", type=whole(1), metavar="N", help="threads that decode; as many as pay")
    add_option(group, "--chat-template-file", metavar="FILE", help="Jinja chat template, instead of the model's own")
    add_option(
        group, "--disable-reasoning", is_switch=True, default=False, help="don't let a model think unless a request says so"
    )
    add_option(
        group, "--fast-forward", is_switch=True, default=True, help="write what a constraint leaves no choice about undrawn; on"
    )
    add_option(
        group,
        "--speculation",
        is_switch=True,
        default=True,
        help="guess free text that repeats what stood before, and check several tokens at a time; on",
    )
    add_option(
        group,
        "--flash-attention",
        is_switch=True,
        help="on a CPU quicker in short contexts, but other requests change the numbers there; on a GPU on, on a CPU off",
    )
    add_option(
        group,
        "--repack",
        is_switch=True,
        help="lay weights out for this CPU: quicker, but other requests change some numbers; on, except where that needs AMX",
    )


def add_limit_options(parser: argparse.ArgumentParser) -> None:
    """Bounds of requests and compiles."""
    group = parser.add_argument_group("limits")
    names = ", ".join(LIMITS)
    add_option(
        group, "--limit", is_list=True, type=limit, metavar="NAME=VALUE", help=f"change a limit, again and again: {names}"
    )


def add_log_option(parser: argparse.ArgumentParser) -> None:
    """How much is logged."""
    add_option(
        parser, "--log-level", choices=("debug", "info", "warning", "error"), default="info", help="least level that is logged"
    )


# ---- what they make


def make_settings(arguments: argparse.Namespace) -> Settings:
    """The settings that the options of a command say; those it doesn't have stay at their defaults."""
    given = vars(arguments)
    names = {
        "keep_alive_s": "keep_alive",
        "max_memory_bytes": "max_memory",
        "models_file": "models",
        "n_ctx": "ctx",
        "n_gpu_layers": "gpu_layers",
        "n_threads": "threads",
        "drain_timeout_s": "drain_timeout",
        "stall_timeout_s": "stall_timeout",
        "hang_timeout_s": "hang_timeout",
    }
    same = ["host", "port", "api_key", "cache_dir", "parallel", "chat_template_file", "log_level"]
    same += ["disable_reasoning", "fast_forward", "speculation", "flash_attention", "repack", "constraint_failure"]
    values: dict[str, Any] = {field: given[option] for field, option in names.items() if option in given}
    values |= {name: given[name] for name in same if name in given}
    if "allow_origin" in given:
        values["allow_origins"] = listed(arguments, "allow_origin")
    settings = replace(Settings(), **values)
    for name, value in listed(arguments, "limit") if "limit" in given else ():
        group, field = LIMITS[name]
        settings = replace(settings, **{group: replace(getattr(settings, group), **{field: value})})
    return settings


def open_models(arguments: argparse.Namespace, names: Sequence[str] = ()) -> tuple[Catalogue, Store]:
    """The catalogue, with what `names` mean (aliases, sources, paths) in front, and the cache. Raises ModelError."""
    from server.models.catalogue import load_catalogue
    from server.models.store import Store, default_root

    catalogue = load_catalogue(arguments.models)
    catalogue = catalogue.with_first(tuple(catalogue.resolve(name) for name in names))
    return catalogue, Store(default_root(arguments.cache_dir))


def fetch_models(catalogue: Catalogue, store: Store, aliases: Sequence[str]) -> tuple[Path, ...]:
    """The files of these models, fetched with a progress bar if they aren't here. Raises ModelError."""
    import sys

    from server.models.progress import shown_progress

    paths = []
    for alias in aliases:
        entry = catalogue.resolve(alias)
        path = store.locate(entry)
        if path is None:
            print(f"fetching {entry.alias} from {entry.source.text}", file=sys.stderr, flush=True)
            with shown_progress() as progress:
                path = store.fetch(entry, progress, lambda: print("another process is fetching it; waiting", file=sys.stderr))
        paths.append(path)
    return tuple(paths)
