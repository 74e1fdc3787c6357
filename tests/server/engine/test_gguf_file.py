"""What is told of a model file before llama.cpp opens it."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.engine.gguf_file import BadModelFile, check_file

HEAD = b"GGUF\x03\x00\x00\x00"


def test_a_gguf_file_and_all_parts_of_a_split_one_pass(tmp_path: Path) -> None:
    for name in ("m.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"):
        (tmp_path / name).write_bytes(HEAD)
    check_file(str(tmp_path / "m.gguf"))
    check_file(str(tmp_path / "m-00001-of-00002.gguf"))


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("missing.gguf", None, "doesn't exist"),
        ("foreign.gguf", b"PK\x03\x04", "not a GGUF"),
        ("empty.gguf", b"", "not a GGUF"),
        (".", None, "folder"),
        ("m-00001-of-00002.gguf", HEAD, "m-00002-of-00002.gguf doesn't exist"),
        ("m-00002-of-00002.gguf", HEAD, "first part"),
    ],
)
def test_anything_else_is_named(name: str, content: bytes | None, word: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadModelFile, match=word) as refused:
        check_file(str(path))
    assert len(str(refused.value).splitlines()) == 1
