"""What can be told of a model file before llama.cpp opens it: its own messages say little of a missing or foreign file."""

from __future__ import annotations

import re
from pathlib import Path

_MAGIC = b"GGUF"
_SPLIT = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<total>\d{5})\.gguf")


class BadModelFile(Exception):
    """The file can't be a model, or a part of it is missing. One line, for the user."""


def check_file(path: str) -> None:
    """Raises BadModelFile where `path`, or a part of a split model that begins there, is missing or no GGUF file."""
    for part in _parts(Path(path)):
        try:
            with part.open("rb") as file:
                magic = file.read(len(_MAGIC))
        except IsADirectoryError as error:
            raise BadModelFile(f"{part} is a folder, not a model file") from error
        except FileNotFoundError as error:
            raise BadModelFile(f"{part} doesn't exist") from error
        except OSError as error:
            raise BadModelFile(f"{part} can't be read: {error.strerror}") from error
        if magic != _MAGIC:
            raise BadModelFile(f"{part} is not a GGUF file")


def _parts(path: Path) -> list[Path]:
    """The file itself, or all parts of a split model (whose first part names their number)."""
    if (found := _SPLIT.fullmatch(path.name)) is None:
        return [path]
    if int(found["part"]) != 1:
        raise BadModelFile(f"{path} is a later part of a split model: name its first part, …-00001-of-{found['total']}.gguf")
    numbers = range(1, int(found["total"]) + 1)
    return [path.with_name(f"{found['stem']}-{number:05d}-of-{found['total']}.gguf") for number in numbers]
