"""A conversation with a server, for `chat` and `generate`: the one at --url, or one of our own for as long as it takes."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from server.cli.options import (
    add_engine_options,
    add_limit_options,
    add_log_option,
    add_model_options,
    add_option,
    fetch_models,
    make_settings,
    number,
    open_models,
    whole,
)
from server.errors import ServerError

if TYPE_CHECKING:
    import httpx

_PATIENCE_S = 600.0
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed", "max_tokens")


class RequestFailed(ServerError):
    """The server answered with an error, or didn't answer."""


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Which server and model, and how to sample."""
    group = parser.add_argument_group("server")
    add_option(group, "--url", metavar="URL", help="a running server; without it, one is started for this command")
    add_option(group, "--api-key", metavar="KEY", help="the key that the server at --url demands")
    add_option(group, "--model", "-m", metavar="ALIAS|PATH", help="the model; the default one")
    group = parser.add_argument_group("sampling (not given: the server's defaults)")
    add_option(group, "--temperature", type=number, metavar="X", help="0 is greedy")
    add_option(group, "--top-p", type=number, metavar="X", help="nucleus")
    add_option(group, "--top-k", type=whole(0), metavar="N", help="likeliest tokens kept")
    add_option(group, "--min-p", type=number, metavar="X", help="least probability, relative to the likeliest")
    add_option(group, "--repeat-penalty", type=number, metavar="X", help="penalty of tokens seen lately; 1 is none")
    add_option(group, "--seed", type=whole(0), metavar="N", help="the same seed gives the same text")
    add_option(group, "--max-tokens", type=whole(1), metavar="N", help="at most so many tokens")
    add_option(group, "--system", metavar="TEXT", help="the system message")
    add_model_options(parser)
    add_engine_options(parser)
    add_limit_options(parser)
    add_log_option(parser)


def sampling_fields(arguments: argparse.Namespace) -> dict[str, Any]:
    """The sampling options that were given, as fields of a request."""
    return {name: getattr(arguments, name) for name in _SAMPLING if getattr(arguments, name) is not None}


@contextmanager
def open_session(arguments: argparse.Namespace) -> Iterator[Session]:
    """The session that the options ask for. Raises ModelError, EngineStartFailed."""
    import httpx

    timeout = httpx.Timeout(_PATIENCE_S, connect=10.0)
    if arguments.url is not None:
        url = arguments.url.rstrip("/").removesuffix("/v1")
        is_encrypted = url.startswith("https:")  # else the machine's certificates needn't be read
        with httpx.Client(base_url=url, headers=_headers(arguments.api_key), timeout=timeout, verify=is_encrypted) as client:
            yield Session(client, arguments.model)
        return
    from server.cli.running import private_server

    catalogue, store = open_models(arguments, (arguments.model,) if arguments.model else ())
    alias = catalogue.default.alias
    fetch_models(catalogue, store, (alias,))
    with (
        private_server(make_settings(arguments), catalogue, store, alias) as (url, key),
        httpx.Client(base_url=url, headers=_headers(key), timeout=timeout, verify=False) as client,  # it's http
    ):
        yield Session(client, alias)


def _headers(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of choice `index`. `finish_reason` is set on its last one."""

    index: int
    text: str
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A server to talk to."""

    client: httpx.Client
    model: str | None

    def stream_chat(self, messages: list[dict[str, str]], fields: dict[str, Any]) -> Generator[Piece, None, None]:
        """The pieces of the answers to a conversation, as they come. Raises RequestFailed."""
        return self._stream("/v1/chat/completions", {"messages": messages, **fields})

    def stream_text(self, prompt: str, fields: dict[str, Any]) -> Generator[Piece, None, None]:
        """The pieces of a text's continuations, without a chat template. Raises RequestFailed."""
        return self._stream("/v1/completions", {"prompt": prompt, **fields})

    def _stream(self, path: str, body: dict[str, Any]) -> Generator[Piece, None, None]:
        import httpx

        body = {**body, "stream": True, **({"model": self.model} if self.model else {})}
        try:
            yield from self._attempt(path, body, time.monotonic() + _PATIENCE_S)
        except httpx.HTTPError as error:
            raise RequestFailed(f"{self.client.base_url}: {str(error) or type(error).__name__}") from error

    def _attempt(self, path: str, body: dict[str, Any], deadline_s: float) -> Generator[Piece, None, None]:
        """Ask until the model is loaded, then pass on what comes."""
        while True:
            with self.client.stream("POST", path, json=body) as response:
                if response.status_code == 503 and "Retry-After" in response.headers and time.monotonic() < deadline_s:
                    pause_s = float(response.headers["Retry-After"])
                elif response.status_code != 200:
                    response.read()
                    raise RequestFailed(_error_text(response))
                else:
                    yield from _pieces(response.iter_lines())
                    return
            print("the model is being loaded …", file=sys.stderr)
            time.sleep(pause_s)


def _pieces(lines: Iterator[str]) -> Generator[Piece, None, None]:
    """The events of an SSE stream. Raises RequestFailed for an error event, and for a stream that just stops."""
    for line in lines:
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data == "[DONE]":
            return
        if not data:
            continue
        event = json.loads(data)
        if "error" in event:
            raise RequestFailed(str(event["error"].get("message", event["error"])))
        for choice in event.get("choices", ()):
            text = choice["text"] if "text" in choice else choice.get("delta", {}).get("content")
            yield Piece(choice.get("index", 0), text or "", choice.get("finish_reason"))
    raise RequestFailed("the server ended the reply in the middle")


def _error_text(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{response.url} answers {response.status_code} {response.reason_phrase}"
