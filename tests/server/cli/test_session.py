"""chat and generate against a server that answers from a script."""

from __future__ import annotations

import http.server
import io
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from server.cli import main

Captured = pytest.CaptureFixture[str]


class Script:
    """What the server answers, in order: a list of events to stream, or a status with a body; and what it was asked."""

    def __init__(self) -> None:
        self.answers: list[list[dict[str, Any]] | tuple[int, dict[str, str], dict[str, Any]]] = []
        self.requests: list[tuple[str, dict[str, Any], str | None]] = []
        self.url = ""


class Handler(http.server.BaseHTTPRequestHandler):
    script: Script

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.script.requests.append((self.path, body, self.headers.get("Authorization")))
        answer = self.script.answers.pop(0)
        if isinstance(answer, tuple):
            status, headers, error = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(json.dumps(error).encode())
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in answer:
            data = "[DONE]" if event == DONE else json.dumps(event)
            self.wfile.write(f": comment\ndata: {data}\n\n".encode())

    def log_message(self, *args: object) -> None:
        pass


DONE: dict[str, Any] = {"done": True}


def delta(text: str, index: int = 0, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]}


@pytest.fixture
def script() -> Iterator[Script]:
    made = Script()
    handler = type("ScriptHandler", (Handler,), {"script": made})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def test_generate_streams_and_sends_what_was_given(script: Script, capsys: Captured) -> None:
    script.answers = [[delta("4"), delta("2", finish="stop"), DONE]]
    words = ["--regex", "[0-9]+", "--temperature", "0", "--seed", "7", "--max-tokens", "9", "--system", "Be brief."]
    assert main(["generate", "How many?", "--url", script.url + "/v1/", "--api-key", "k", "-m", "m", *words]) == 0
    assert capsys.readouterr() == ("42\n", "")
    path, body, key = script.requests[0]
    assert (path, key) == ("/v1/chat/completions", "Bearer k")
    assert body == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many?"}],
        "guided_regex": "[0-9]+",
        "temperature": 0.0,
        "seed": 7,
        "max_tokens": 9,
        "n": 1,
        "stream": True,
        "model": "m",
    }


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["--choice", "a,b"], {"guided_choice": ["a", "b"]}),
        (
            ["--schema", '{"minimum": 1.50}', "--whitespace", "compact"],
            {"guided_json": '{"minimum": 1.50}', "whitespace": "compact"},
        ),
        (["--grammar", 'root ::= "a"'], {"grammar": 'root ::= "a"'}),
        (["--lark", 'start: "a"'], {"constraint": 'start: "a"', "constraint_type": "lark"}),
        (["--json-object", "--lenient"], {"response_format": {"type": "json_object"}, "lenient": True}),
        (["--json"], {"guided_json": "{}"}),
        (["--raw"], {"prompt": "x"}),
    ],
)
def test_constraints_travel_as_fields(script: Script, words: list[str], fields: dict[str, Any]) -> None:
    script.answers = [[{"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}, DONE]]
    assert main(["generate", "x", "--url", script.url, *words]) == 0
    body = script.requests[0][1]
    assert {name: body.get(name) for name in fields} == fields


def test_several_answers_come_whole_and_a_cut_is_told(script: Script, capsys: Captured) -> None:
    script.answers = [[delta("b", 1), delta("a", 0), delta("B", 1, "stop"), delta("A", 0, "length"), DONE]]
    assert main(["generate", "x", "--n", "2", "--url", script.url]) == 0
    out, err = capsys.readouterr()
    assert out == "aA\nbB\n"
    assert "token limit" in err


def test_a_model_that_is_loading_is_waited_for(script: Script, capsys: Captured) -> None:
    script.answers = [(503, {"Retry-After": "0"}, {"error": {"message": "loading"}}), [delta("x", finish="stop"), DONE]]
    assert main(["generate", "x", "--url", script.url]) == 0
    assert capsys.readouterr().out == "x\n"


@pytest.mark.parametrize(
    "answer",
    [
        (400, {}, {"error": {"message": "bad\nregex", "param": "guided_regex"}}),
        (502, {}, {"oops": 1}),
        [delta("x"), {"error": {"message": "the model died"}}],
        [delta("x")],
    ],
)
def test_errors_are_one_line(script: Script, capsys: Captured, answer: Any) -> None:
    script.answers = [answer]
    assert main(["generate", "x", "--url", script.url]) == 1
    err = capsys.readouterr().err
    assert err.startswith("gramserve: ")
    assert err.count("\n") == 1


def test_nobody_listens(capsys: Captured) -> None:
    assert main(["generate", "x", "--url", "http://127.0.0.1:9"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_chat_remembers_and_clears(script: Script, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    script.answers = [[delta(text, finish="stop"), DONE] for text in ("one", "two", "three")]
    monkeypatch.setattr(sys, "stdin", io.StringIO("first\n\nsecond\n/clear\nthird\n/exit\nnever\n"))
    assert main(["chat", "--url", script.url, "--system", "S"]) == 0
    assert capsys.readouterr().out == "one\ntwo\nthree\n"
    said = [[message["content"] for message in body["messages"]] for _, body, _ in script.requests]
    assert said == [["S", "first"], ["S", "first", "one", "second"], ["S", "third"]]
