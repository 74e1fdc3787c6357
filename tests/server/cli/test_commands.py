"""list, pull, rm, compile and check, called as a user does."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from server.cli import main
from server.models.web import WebSource

GGUF = b"GGUF\x03\x00\x00\x00" + bytes(2_000_000)
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a models.txt of three models, one of them local; the web gives every file."""

    def fetch(source: WebSource, folder: Path, progress: object) -> tuple[Path, ...]:
        path = folder / source.url.rsplit("/", 1)[1]
        path.write_bytes(GGUF)
        return (path,)

    monkeypatch.setattr(WebSource, "fetch", fetch)
    monkeypatch.setenv("GRAMSERVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.gguf").write_bytes(GGUF)
    (tmp_path / "models.txt").write_text("a https://example.org/a.gguf ctx=99\nown own.gguf\ngone gone.gguf\n")
    return tmp_path


def listing(capsys: Captured) -> dict[str, tuple[str, int]]:
    assert main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    return {row["alias"]: (row["state"], row["size_bytes"]) for row in rows}


def test_list_pull_and_rm(models: Path, capsys: Captured) -> None:
    assert listing(capsys) == {"a": ("not fetched", 0), "own": ("local", len(GGUF)), "gone": ("missing", 0)}
    assert main(["pull"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.read_bytes() == GGUF
    assert listing(capsys)["a"] == ("fetched", len(GGUF))
    assert main(["rm", "a"]) == 0
    assert "2 MB freed" in capsys.readouterr().out
    assert not path.exists()
    assert main(["rm", "a"]) == 1
    assert "not in the cache" in capsys.readouterr().err
    assert main(["rm", "own"]) == 1
    assert "delete it yourself" in capsys.readouterr().err
    assert (models / "own.gguf").exists()


@pytest.mark.usefixtures("models")
def test_list_for_reading_and_pull_by_source(capsys: Captured) -> None:
    assert main(["pull", "https://example.org/other.gguf"]) == 0
    assert capsys.readouterr().out.endswith("other.gguf\n")
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["a", "own", "gone"]


def test_compile_prints_a_grammar_that_check_agrees_with(tmp_path: Path, capsys: Captured) -> None:
    assert main(["compile", "--choice", '["a,b", "c"]']) == 0
    gbnf = capsys.readouterr().out
    grammar = tmp_path / "g.gbnf"
    grammar.write_text(gbnf)
    for text, status in (("a,b", 0), ("c", 0), ("a", 1), ("b", 1)):
        assert main(["check", "--grammar", str(grammar), text]) == status
        assert main(["check", "--grammar", gbnf, "--quiet", text]) == status


def test_explain_reports(capsys: Captured) -> None:
    assert main(["compile", "--choice", "yes,no", "--explain", "--samples", "4"]) == 0
    out = capsys.readouterr().out
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert ["shortest", '"no"'] in lines
    assert [line[1] in ('"yes"', '"no"') for line in lines if line[:1] == ["random"]] == [True] * 4
    assert "root ::=" in out
    assert {"kind", "rules", "states", "compile"} <= {line[0] for line in lines if line}


def test_check_says_where_and_what(capsys: Captured) -> None:
    assert main(["check", "--grammar", 'root ::= "a"+ [b-d] "\\n"?', "aax"]) == 1
    out = capsys.readouterr().out
    assert "refused: 'x' at line 1, column 3 (character 2)" in out
    assert "allowed there: a-d" in out
    assert main(["check", "--grammar", 'root ::= "a"+ [b-d] "\\n"?', "aac."]) == 1
    assert "allowed there: U+000A the end" in capsys.readouterr().out
    assert main(["check", "--choice", "yes", "ye"]) == 1
    assert capsys.readouterr().out.startswith("incomplete at line 1, column 3")
    assert main(["check", "--choice", "yes", "yes"]) == 0
    assert capsys.readouterr().out == "accepted\n"


def test_check_takes_stdin_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.cli.constraint._STDIN", [])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("é\n".encode())))
    assert main(["check", "--choice", "é,x"]) == 0
    (tmp_path / "t").write_bytes(b"x\n")
    assert main(["check", "--choice", "x", "--file", str(tmp_path / "t")]) == 1, "a file is taken as it is"
    assert main(["check", "--choice", '["x\\n"]', "--file", str(tmp_path / "t")]) == 0


def test_check_knows_tools_and_structural_tags(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "f", "parameters": parameters}}]))
    call = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
    assert main(["check", "--tools", str(tools), call]) == 0
    assert main(["check", "--tools", str(tools), call.replace("1", '"1"')]) == 1
    assert main(["check", "--tools", str(tools), "--no-parallel-tool-calls", f"{call}\n{call}"]) == 1
    assert main(["check", "--tools", str(tools), f"{call}\n{call}"]) == 0
    assert main(["check", "--tools", "[{}]", call]) == 2
    assert main(["check", "--tools", str(tools), "--codec", "morse", call]) == 1
    tag = {"structures": [{"begin": "<a>", "schema": {"type": "boolean"}, "end": "</a>"}], "triggers": ["<a>"]}
    assert main(["check", "--structural-tag", json.dumps(tag), "free <a>true</a> text"]) == 0
    assert main(["check", "--structural-tag", json.dumps(tag), "free <a>1</a> text"]) == 1


def test_what_cannot_be_compiled_is_one_line(capsys: Captured) -> None:
    assert main(["compile", "--grammar", 'root ::= "a']) == 1
    assert "line 1" in capsys.readouterr().err
    assert main(["compile", "--choice", "[]"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_the_report_of_tools_that_are_relaxed(capsys: Captured) -> None:
    unique = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    tools = json.dumps([{"name": "a"}, {"name": "b", "parameters": {"type": "object", "properties": {"c": unique}}}])
    assert main(["compile", "--tools", tools, "--explain"]) == 1
    assert "/1/parameters/properties/c/uniqueItems" in capsys.readouterr().err
    assert main(["compile", "--tools", tools, "--explain", "--lenient", "--samples", "2"]) == 0
    report = capsys.readouterr().out
    assert re.search(r"^relaxed +/1/parameters/properties/c/uniqueItems: ", report, re.MULTILINE)
    assert len(re.findall(r'^(?:shortest|random) +"<tool_call>', report, re.MULTILINE)) == 3
    assert main(["compile", "--tools", tools, "--lenient"]) == 0
    assert "relaxed at /1/parameters/properties/c/uniqueItems: " in capsys.readouterr().err
