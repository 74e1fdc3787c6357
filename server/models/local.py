"""Source `path`: a model file of the user's own. It is used where it lies; nothing is copied, nothing deleted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from server.models.errors import ModelError
from server.models.gguf import check_gguf, find_parts


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A file, any part of a split one included. `path` is absolute."""

    text: str
    path: Path

    @staticmethod
    def parse(text: str, base: Path) -> LocalSource:
        """`text` relative to the folder `base`; `~` is the user's home. ValueError when empty."""
        if not text:
            raise ValueError("a path is missing")
        return LocalSource(text, (base / Path(text).expanduser()).absolute())

    def locate(self) -> tuple[Path, ...]:
        """All files of the model, first part first. Raises ModelFileMissing, NotGguf, ModelError for what may not be read."""
        try:
            parts = find_parts(self.path)
            for part in parts:
                check_gguf(part)
        except OSError as error:
            raise ModelError(f"can't read {self.path}: {error.strerror or error}") from error
        return parts
