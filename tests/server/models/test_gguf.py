"""What a file's name and first bytes tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.models.errors import ModelFileMissing, NotGguf
from server.models.gguf import check_gguf, find_parts, model_name, split_parts
from server.models.local import LocalSource

HEADER = b"GGUF\x03\x00\x00\x00" + bytes(24)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"GGUF", "cut off"),
        (b"GGUF\x00\x00\x00\x03" + bytes(24), "big-endian"),
        (b"GGUF\x63\x00\x00\x00" + bytes(24), "version 99"),
        (b"tjgg\x03\x00\x00\x00", "conversion"),
        (b"lmgg\x01\x00\x00\x00", "conversion"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"PK\x03\x04rest", "zip"),
        (b"just some text", "conversion"),
    ],
)
def test_what_is_not_gguf_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "old.bin"
    path.write_bytes(content)
    with pytest.raises(NotGguf, match=f"not a GGUF file.*{reason}"):
        check_gguf(path)


def test_a_gguf_header_passes(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(HEADER)
    check_gguf(tmp_path / "x.gguf")


def test_split_names() -> None:
    assert split_parts("x-00002-of-00003.gguf") == tuple(f"x-0000{i}-of-00003.gguf" for i in (1, 2, 3))
    assert split_parts("x.gguf") == ("x.gguf",)
    assert model_name("x-00002-of-00003.gguf") == "x"
    assert model_name("x.Q4_1.GGUF") == "x.Q4_1"


def test_any_part_stands_for_the_whole_and_a_missing_one_is_named(tmp_path: Path) -> None:
    for part in (1, 2):
        (tmp_path / f"x-0000{part}-of-00003.gguf").write_bytes(HEADER)
    second = tmp_path / "x-00002-of-00003.gguf"
    with pytest.raises(ModelFileMissing, match=r"x-00003-of-00003\.gguf"):
        find_parts(second)
    (tmp_path / "x-00003-of-00003.gguf").write_bytes(HEADER)
    assert LocalSource.parse(second.name, tmp_path).locate()[0].name == "x-00001-of-00003.gguf"


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFileMissing, match="FileNotFoundError"):
        LocalSource.parse("nope.gguf", tmp_path).locate()
    with pytest.raises(NotGguf, match="folder"):
        LocalSource.parse(".", tmp_path).locate()
