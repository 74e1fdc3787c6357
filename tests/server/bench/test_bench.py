"""`gramserve bench` against scripted servers: what is asked, what is counted, and what the table and the plot say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from server.bench.machine import Machine
from server.bench.measure import Peer, Reply, Result, Round, compare
from server.bench.plot import draw_plot
from server.bench.report import as_data, write_page, write_table
from server.bench.scenario import SCENARIOS
from server.cli import main
from server.cli.bench import own_words
from server.cli.parser import parse_arguments


class Scripted(ThreadingHTTPServer):
    """A server that streams the same pieces to everybody and remembers what it was asked."""

    def __init__(self, pieces: list[str], *, status: int = 200, n_tokens: int | None = 5) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pieces, self.status, self.n_tokens = pieces, status, n_tokens
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Scripted

    def do_POST(self) -> None:
        self.server.keys.add(self.headers["Authorization"])
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.end_headers()
        if self.server.status != 200:
            self.wfile.write(b'{"error": {"message": "not today"}}')
            return
        events: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in self.server.pieces
        ]
        if self.server.n_tokens is not None:
            events.append({"choices": [], "usage": {"completion_tokens": self.server.n_tokens}})
        for event in events:
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def scripted(*arguments: Any, **options: Any) -> Iterator[Scripted]:
    with Scripted(*arguments, **options) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


async def test_every_server_gets_the_same_requests_in_every_round() -> None:
    with scripted(['{"a": "', 'xyz"}']) as one, scripted(["no json"]) as other:
        peers = [Peer("one", one.url, api_key="k"), Peer("other", other.url)]
        first, second = await compare(peers, "schema", SCENARIOS["schema"], 2, 3)
    assert (first.peer, first.n_clients, len(first.rounds), first.error) == ("one", 2, 3, None)
    assert [reply.n_tokens for a_round in first.rounds for reply in a_round.replies] == [5] * 6
    assert (first.n_whole, first.mean_string) == (6, 3.0)
    assert (second.n_whole, second.mean_string) == (0, 0.0)
    assert len(one.bodies) == 8  # the round that isn't counted too

    def by_seed(bodies: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(body) for body in bodies)

    assert by_seed(one.bodies) == by_seed(other.bodies)
    assert {body["response_format"]["type"] for body in one.bodies} == {"json_schema"}
    assert (one.keys, other.keys) == ({"Bearer k"}, {None})


@pytest.mark.parametrize("options", [{"status": 500}, {"n_tokens": None}])
async def test_a_server_that_fails_is_named_and_the_others_are_measured(options: dict[str, Any]) -> None:
    with scripted(["x"]) as good, scripted(["x"], **options) as bad:
        results = await compare([Peer("bad", bad.url), Peer("good", good.url)], "free", SCENARIOS["free"], 1, 2)
        assert len(bad.bodies) == 1
    assert results[0].error
    assert results[0].error.startswith("bad: ")
    assert len(results[1].rounds) == 2
    assert "failed: bad: " in write_table(results)


def result(peer: str, wall_s: float, n_tokens: int = 100) -> Result:
    a_round = Round((Reply('{"k": "four"}', n_tokens, 0.1, wall_s), Reply("{", n_tokens, 0.3, wall_s)), wall_s)
    return Result(peer, "keys", 2, (a_round, a_round, a_round))


def test_ratios_are_to_the_first_server() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in write_table([result("a", 10), result("b", 5)]).splitlines()
    ]
    table = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
    assert [(row["server"], row["tokens/s"], row["speed"], row["s a request"], row["time"]) for row in table] == [
        ("a", "20.0", "1.00", "5.00", "1.00"),
        ("b", "40.0", "2.00", "2.50", "0.50"),
    ]
    assert {(row["first text ms"], row["mean string"], row["whole"]) for row in table} == {("200", "4.0", "3 of 6")}


def test_page_and_data() -> None:
    machine = Machine("A processor", 2, 24, "Linux x86_64", "3.11", ("gramserve 0",))
    page = write_page([result("a", 10)], machine, "2026-01-01", "bench.svg")
    assert "A processor, 2 cores, 24 GiB" in page
    assert "(bench.svg)" in page
    assert as_data([result("a", 10)], machine, "2026-01-01")["results"][0]["rounds"][0]["tokens"] == [100, 100]


@pytest.mark.parametrize("name", ["bench.svg", "bench.png"])
def test_plot(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    draw_plot([result("a", 10), result("b", 5), Result("c", "keys", 2, (), "failed")], tmp_path / name)
    assert (tmp_path / name).stat().st_size > 1000


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with scripted(["{}"]) as one, scripted(["{}"]) as other:
        peers = [f"one={one.url}/v1", f"two={other.url}"]
        status = main(
            ["bench", *peers, "--no-own", "--only", "json", "--rounds", "1", "--clients", "1,3", "--out", str(tmp_path)]
        )
        assert status == 0
        assert len(one.bodies) == len(other.bodies) == 8
    assert capsys.readouterr().out.count("| json |") == 4
    assert "| json | 3 | two |" in (tmp_path / "bench.md").read_text("utf-8")
    assert len(json.loads((tmp_path / "bench.json").read_text("utf-8"))["results"]) == 4


def test_models_of_servers_that_have_several() -> None:
    with scripted(["{}"]) as one:
        assert main(["bench", f"one={one.url}/v1#small", "--no-own", "--only", "json", "--rounds", "1", "--clients", "1"]) == 0
    assert {body["model"] for body in one.bodies} == {"small"}


def test_what_this_server_is_started_with() -> None:
    options = [
        "--ctx",
        "2048",
        "--no-fast-forward",
        "--no-speculation",
        "--disable-reasoning",
        "--models",
        "m.txt",
        "-m",
        "tiny",
    ]
    words = own_words(parse_arguments(["bench", *options]))
    assert (words[0], words[words.index("--ctx") + 1], words[words.index("--models") + 1]) == ("tiny", "2048", "m.txt")
    served = parse_arguments(["serve", *words])
    assert (served.ctx, served.fast_forward, served.speculation, served.disable_reasoning) == (2048, False, False, True)
    assert served.flash_attention is None
    served = parse_arguments(["serve", *own_words(parse_arguments(["bench", "--flash-attention"]))])
    assert served.flash_attention is True


@pytest.mark.parametrize(
    "arguments", [["x"], ["x=ftp://a"], ["--no-own"], ["--clients", "0"], ["a=http://b", "a=http://c", "--no-own"]]
)
def test_misuse(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
