"""Facts that are told by a model file's name and first bytes. Nothing here reads metadata or tensors."""

from __future__ import annotations

import hashlib
import re
import struct
from pathlib import Path

from server.models.errors import ModelFileMissing, NotGguf

_SPLIT = re.compile(r"^(?P<stem>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)
_KNOWN_VERSIONS = (1, 2, 3)
_HEADER = struct.Struct("<4sI")
_CHUNK_BYTES = 1 << 20
_OLD_MAGICS = (b"lmgg", b"fmgg", b"tjgg", b"algg", b"ggml", b"ggmf", b"ggjt", b"ggla")
_OTHER_STARTS = (
    (b"PK\x03\x04", "(a zip archive or PyTorch checkpoint: convert it with llama.cpp's converter)"),
    (b"version https://git-lfs", "(a Git LFS pointer: the model itself was never fetched)"),
    (b"<!doctype", "(an HTML page)"),
    (b"<html", "(an HTML page)"),
)


def split_parts(name: str) -> tuple[str, ...]:
    """The names of all parts, in order, of the split model that `name` is a part of; for any other name just that."""
    found = _SPLIT.match(name)
    if found is None:
        return (name,)
    count = int(found["count"])
    return tuple(f"{found['stem']}-{part:05d}-of-{count:05d}.gguf" for part in range(1, count + 1))


def model_name(name: str) -> str:
    """A file's name as a model's: without `.gguf` and without the part number."""
    found = _SPLIT.match(name)
    return found["stem"] if found else re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE)


def find_parts(path: Path) -> tuple[Path, ...]:
    """The files of the model at `path`, first part first. Raises ModelFileMissing, which names the part that is missing."""
    parts = tuple(path.with_name(name) for name in split_parts(path.name))
    if not path.exists():
        raise ModelFileMissing(path)
    for part in parts:
        if not part.exists():
            raise ModelFileMissing(part, part_of=path)
    return parts


def check_gguf(path: Path) -> None:
    """Raise NotGguf, with what it is instead where that can be told, unless `path` starts like a GGUF file."""
    if path.is_dir():
        raise NotGguf(path, "(a folder)")
    with path.open("rb") as file:
        start = file.read(32)
    if not start.startswith(b"GGUF"):
        raise NotGguf(path, _name_start(start))
    if len(start) < _HEADER.size:
        raise NotGguf(path, "(cut off in its header)")
    _, version = _HEADER.unpack_from(start)
    if version not in _KNOWN_VERSIONS:
        swapped = int.from_bytes(start[4:8], "big") in _KNOWN_VERSIONS
        raise NotGguf(path, "(a big-endian one)" if swapped else f"(of the unknown version {version})")


def _name_start(start: bytes) -> str:
    if not start:
        return "(it is empty)"
    if start[:4] in _OLD_MAGICS:
        return "(an old GGML file: it needs conversion to GGUF with llama.cpp's converter)"
    for prefix, name in _OTHER_STARTS:
        if start.lower().startswith(prefix.lower()):
            return name
    return "(it doesn't begin with GGUF; a model in another format needs conversion with llama.cpp's converter)"


def sha256_of(path: Path) -> str:
    """The file's sha256 in lower-case hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
