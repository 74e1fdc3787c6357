"""The command line: which command is meant, options and their variables, errors of one line."""

from __future__ import annotations

import pytest

from server.cli import main
from server.cli.error import UsageError
from server.cli.options import LIMITS, listed, make_settings
from server.cli.parser import COMMANDS, parse_arguments
from server.settings import Settings


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("GRAMSERVE_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], []),
        (["a"], ["a"]),
        (["serve", "a", "b"], ["a", "b"]),
        (["--port", "9"], []),
        (["./x.gguf", "--port", "9"], ["./x.gguf"]),
    ],
)
def test_serve_is_meant_when_no_command_is_named(words: list[str], names: list[str]) -> None:
    parsed = parse_arguments(words)
    assert parsed.names == names
    assert make_settings(parsed).port == (9 if "--port" in words else 8080)


def test_no_options_are_the_defaults() -> None:
    assert make_settings(parse_arguments([])) == Settings()


def test_every_setting_can_be_set() -> None:
    words = [
        "--host", "::1", "--port", "1", "--api-key", "k", "--allow-origin", "http://a", "--allow-origin", "http://b",
        "--models", "m.txt", "--cache-dir", "c", "--ctx", "2", "--parallel", "3", "--gpu-layers", "-1", "--threads", "5",
        "--chat-template-file", "t", "--disable-reasoning", "--constraint-failure", "unconstrained", "--stall-timeout", "6",
        "--drain-timeout", "0.5", "--log-level", "debug", "--limit", "regex_bytes=7", "--limit", "compile_s=0.5",
        "--keep-alive", "-1", "--max-memory", "2048", "--no-fast-forward", "--no-speculation",
        "--hang-timeout", "7", "--no-flash-attention", "--no-repack",
    ]  # fmt: skip
    settings = make_settings(parse_arguments(words))
    untouched = {"models", "request_limits", "compile_limits"}
    same = {name for name in Settings.__slots__ if getattr(settings, name) == getattr(Settings(), name)}
    assert same <= untouched
    assert settings.allow_origins == ("http://a", "http://b")
    assert settings.request_limits.regex_bytes == 7
    assert settings.compile_limits.compile_s == 0.5
    assert (settings.keep_alive_s, settings.max_memory_bytes) == (float("inf"), 2048 * 1024 * 1024)


def test_every_limit_has_a_name() -> None:
    settings = Settings()
    reached = {(group, field) for group, field in LIMITS.values()}
    assert reached == {
        (group, field) for group in ("request_limits", "compile_limits") for field in getattr(settings, group).__slots__
    }


def test_variables_stand_in_for_options_and_lose_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAMSERVE_PORT", "9001")
    monkeypatch.setenv("GRAMSERVE_CACHE", "here")
    monkeypatch.setenv("GRAMSERVE_DISABLE_REASONING", "yes")
    monkeypatch.setenv("GRAMSERVE_ALLOW_ORIGIN", "http://a, http://b")
    monkeypatch.setenv("GRAMSERVE_LIMIT", "json_depth=9,compile_s=1")
    settings = make_settings(parse_arguments([]))
    assert (settings.port, settings.cache_dir, settings.disable_reasoning) == (9001, "here", True)
    assert settings.allow_origins == ("http://a", "http://b")
    assert settings.request_limits.json_depth == 9
    parsed = parse_arguments(["--port", "9002", "--no-disable-reasoning", "--allow-origin", "http://c"])
    settings = make_settings(parsed)
    assert (settings.port, settings.disable_reasoning, listed(parsed, "allow_origin")) == (9002, False, ("http://c",))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "x"),
        ("PORT", "70000"),
        ("LOG_LEVEL", "loud"),
        ("DISABLE_REASONING", "maybe"),
        ("LIMIT", "speed=1"),
        ("CTX", "0"),
    ],
)
def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"GRAMSERVE_{name}", value)
    with pytest.raises(UsageError, match=f"GRAMSERVE_{name}={value!r}"):
        parse_arguments(["serve"])
    parse_arguments(["list"])  # another command doesn't care


@pytest.mark.parametrize(
    "words",
    [
        ["--prt", "3"],
        ["--port", "x"],
        ["--port", "99999"],
        ["--ctx", "0"],
        ["--limit", "speed=1"],
        ["--limit", "regex_bytes=-1"],
        ["--stall-timeout", "nan"],
        ["--log-level", "loud"],
        ["compile"],
        ["compile", "--regex", "a", "--choice", "b"],
        ["rm"],
        ["generate", "x", "--n", "0"],
        ["check", "--schema", "{", "1"],
        ["check", "--schema", "not-there.json", "1"],
        ["check", "--choice", "[1]", "1"],
        ["generate", "-", "--schema", "-"],
        ["--models", "not-there.txt"],
        ["not-a-model"],
        ["./not-there.gguf"],
    ],
)
def test_errors_are_one_line_on_stderr(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gramserve: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)])
def test_help_is_there_for_all(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 0
    assert "gramserve" in capsys.readouterr().out


def test_an_internal_error_asks_for_a_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("converters.compile.compile_constraint", fail)
    assert main(["compile", "--choice", "a"]) == 1
    assert capsys.readouterr().err == "gramserve: internal error, please report it: ZeroDivisionError: oops\n"


def test_ctrl_c_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("converters.compile.compile_constraint", interrupt)
    assert main(["compile", "--choice", "a"]) == 130
    assert capsys.readouterr() == ("", "")
