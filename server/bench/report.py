"""The results as a table (Markdown) and as data (JSON)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from server.bench.machine import Machine
from server.bench.measure import Result
from server.bench.scenario import SCENARIOS

_HEAD = (
    "scenario",
    "clients",
    "server",
    "tokens/s",
    "speed",
    "s a request",
    "time",
    "first text ms",
    "characters/s",
    "characters",
    "mean string",
    "whole",
)


def write_table(results: Sequence[Result]) -> str:
    """A Markdown table. "speed" and "time" are ratios to the first server that is named, of medians over the rounds."""
    rows = [_HEAD, *(_row(result, _base(results, result)) for result in results)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(_HEAD), *lines[1:]])


def _base(results: Sequence[Result], one: Result) -> Result:
    return next(other for other in results if (other.scenario, other.n_clients) == (one.scenario, one.n_clients))


def _row(result: Result, base: Result) -> tuple[str, ...]:
    start = (result.scenario, str(result.n_clients), result.peer)
    if not result.rounds:
        return (*start, f"failed: {' '.join((result.error or '').split())[:120]}", *[""] * (len(_HEAD) - 4))
    return (*start, *_figures(result, base))


def _figures(result: Result, base: Result) -> Iterator[str]:
    speed, time_s = result.median("tokens_a_second"), result.median("seconds_a_request")
    yield f"{speed:.1f}"
    yield f"{speed / base.median('tokens_a_second'):.2f}" if base.rounds else ""
    yield f"{time_s:.2f}"
    yield f"{time_s / base.median('seconds_a_request'):.2f}" if base.rounds else ""
    yield f"{1000 * result.median('first_s'):.0f}"
    yield f"{result.median('characters_a_second'):.0f}"
    texts = result.texts
    yield f"{sum(map(len, texts)) / len(texts):.0f}"
    is_json = SCENARIOS[result.scenario].is_json
    yield f"{result.mean_string:.1f}" if is_json else ""
    yield f"{result.n_whole} of {len(texts)}" if is_json else ""


def write_page(results: Sequence[Result], machine: Machine, date: str, plot: str | None) -> str:
    """A page of Markdown: the machine, the table, what its columns mean, and the plot's file name if there is one."""
    n_rounds = max((len(result.rounds) for result in results), default=0)
    asked = "\n".join(f"* `{name}`: {SCENARIOS[name].about}" for name in dict.fromkeys(r.scenario for r in results))
    picture = f"\n![Time of a request and tokens a second]({plot})\n" if plot else ""
    return f"""# Servers compared

{date}. {machine}. Made by `gramserve bench`: every round asks every server in turn, figures are medians of {n_rounds} rounds,
"speed" and "time" are ratios to the first server.
{picture}
{write_table(results)}

{asked}

"s a request" is the time until all clients are served, divided by the clients. "mean string" is the mean length of the string
values in the replies, "whole" counts the replies that are JSON from the first to the last character.
"""


def as_data(results: Sequence[Result], machine: Machine, date: str) -> dict[str, Any]:
    """The same for programs, every round for itself."""
    return {"date": date, "machine": str(machine), "results": [_data(result) for result in results]}


def _data(result: Result) -> dict[str, Any]:
    rounds = [
        {
            "wall_s": round(one.wall_s, 4),
            "first_s": round(one.first_s, 4),
            "tokens": [reply.n_tokens for reply in one.replies],
            "characters": [len(reply.text) for reply in one.replies],
        }
        for one in result.rounds
    ]
    return {
        "server": result.peer,
        "scenario": result.scenario,
        "clients": result.n_clients,
        "error": result.error,
        "rounds": rounds,
    }
