"""The measuring: streamed requests, timed at the client, every server in turn in every round."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx

from server.bench.scenario import Scenario
from server.errors import ServerError

_PATIENCE_S = 900.0


class PeerFailed(ServerError):
    """A server answered with an error, broke a stream off, or couldn't be reached."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A server to measure. `model` is what it is asked for; servers with one model take any name."""

    name: str
    url: str
    model: str = "default"
    api_key: str | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@dataclass(frozen=True, slots=True)
class Reply:
    """One streamed reply. Times are in seconds from the moment that the request is sent; `n_tokens` is what `usage` says."""

    text: str
    n_tokens: int
    first_s: float
    whole_s: float


@dataclass(frozen=True, slots=True)
class Round:
    """What one server did in one round: one request of each client, all at once; `wall_s` until the last has ended."""

    replies: tuple[Reply, ...]
    wall_s: float

    @property
    def tokens_a_second(self) -> float:
        """Of all clients together."""
        return sum(reply.n_tokens for reply in self.replies) / self.wall_s

    @property
    def seconds_a_request(self) -> float:
        """The wall time, divided by the requests that were done in it."""
        return self.wall_s / len(self.replies)

    @property
    def characters_a_second(self) -> float:
        """Of all clients together."""
        return sum(len(reply.text) for reply in self.replies) / self.wall_s

    @property
    def first_s(self) -> float:
        """The median time until the first piece of text."""
        return statistics.median(reply.first_s for reply in self.replies)


@dataclass(frozen=True, slots=True)
class Result:
    """A server's rounds of one scenario with so many clients. Figures are medians over the rounds."""

    peer: str
    scenario: str
    n_clients: int
    rounds: tuple[Round, ...]
    error: str | None = None

    def median(self, figure: str) -> float:
        """The median of one of Round's figures, by name."""
        return float(statistics.median(getattr(a_round, figure) for a_round in self.rounds))

    @property
    def texts(self) -> list[str]:
        """All replies."""
        return [reply.text for a_round in self.rounds for reply in a_round.replies]

    @property
    def n_whole(self) -> int:
        """Replies that are a JSON text."""
        return sum(_value(text) is not None for text in self.texts)

    @property
    def mean_string(self) -> float:
        """The mean length of the string values in the replies that parse: a ratio must not come from writing less."""
        lengths = [len(word) for text in self.texts for word in _strings(_value(text))]
        return statistics.fmean(lengths) if lengths else 0.0


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list() | dict():
            for part in value if isinstance(value, list) else value.values():
                yield from _strings(part)


async def compare(peers: Sequence[Peer], name: str, scenario: Scenario, n_clients: int, n_rounds: int) -> tuple[Result, ...]:
    """One result for each server. Every round runs every server once, in turn, so that a drift of the machine hits all
    alike; a first round isn't counted. A server that fails is left out from then on, with its error in the result."""
    rounds: dict[str, list[Round]] = {peer.name: [] for peer in peers}
    errors: dict[str, str] = {}
    for number in range(n_rounds + 1):
        for peer in peers:
            if peer.name in errors:
                continue
            try:
                measured = await _run(peer, scenario, n_clients, number)
            except PeerFailed as error:
                errors[peer.name] = str(error)
                continue
            if number:
                rounds[peer.name].append(measured)
    return tuple(Result(peer.name, name, n_clients, tuple(rounds[peer.name]), errors.get(peer.name)) for peer in peers)


async def _run(peer: Peer, scenario: Scenario, n_clients: int, number: int) -> Round:
    timeout = httpx.Timeout(_PATIENCE_S, connect=10.0)
    is_encrypted = peer.url.startswith("https:")  # else the machine's certificates needn't be read, every round
    async with httpx.AsyncClient(base_url=peer.url, headers=peer.headers, timeout=timeout, verify=is_encrypted) as client:
        start_s = time.perf_counter()
        bodies = [scenario.body(one, number) | {"model": peer.model} for one in range(n_clients)]
        replies = await asyncio.gather(*(_ask(client, peer, body) for body in bodies))
        return Round(tuple(replies), time.perf_counter() - start_s)


async def _ask(client: httpx.AsyncClient, peer: Peer, body: dict[str, Any]) -> Reply:
    start_s = time.perf_counter()
    pieces: list[str] = []
    first_s: float | None = None
    n_tokens: int | None = None
    try:
        async with aclosing(_events(client, body)) as events:
            async for event in events:
                n_tokens = (event.get("usage") or {}).get("completion_tokens", n_tokens)
                for piece in _contents(event):
                    pieces.append(piece)
                    first_s = first_s or time.perf_counter() - start_s
    except (httpx.HTTPError, ValueError) as error:
        raise PeerFailed(f"{peer.name}: {str(error) or type(error).__name__}") from error
    whole_s = time.perf_counter() - start_s
    if n_tokens is None:
        raise PeerFailed(f"{peer.name}: the stream ended without usage")
    return Reply("".join(pieces), n_tokens, first_s or whole_s, whole_s)


async def _events(client: httpx.AsyncClient, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
    """The events of a stream. Raises httpx.HTTPError, and ValueError for an error of the server."""
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            text = (await response.aread()).decode("utf-8", "replace")
            raise ValueError(f"status {response.status_code}: {text[:300]}")
        async for line in response.aiter_lines():
            data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
            if data and data != "[DONE]":
                event: dict[str, Any] = json.loads(data)
                if "error" in event:
                    raise ValueError(str(event["error"])[:300])
                yield event


def _contents(event: dict[str, Any]) -> Iterator[str]:
    for choice in event.get("choices") or ():
        if content := (choice.get("delta") or {}).get("content"):
            yield content
