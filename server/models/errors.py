"""What can go wrong before a model is loaded. The text is one line, fit for a terminal.

ModelError
 ├ CatalogueError       models.txt can't be read; has the line number
 ├ UnknownModel         no alias, source or file of that name
 ├ ModelFileMissing     a local file, or one part of a split one, isn't there
 ├ NotGguf              a file that llama.cpp can't load
 ├ ChecksumMismatch     a file is not the one that models.txt means
 └ FetchFailed          the source didn't give the file
"""

from __future__ import annotations

from pathlib import Path


class ModelError(Exception):
    """A model can't be had."""


class CatalogueError(ModelError):
    """A bad line in models.txt. `line` counts from 1."""

    def __init__(self, reason: str, *, path: str, line: int | None = None) -> None:
        super().__init__(f"{path}:{line}: {reason}" if line is not None else f"{path}: {reason}")
        self.reason = reason
        self.path = path
        self.line = line


class UnknownModel(ModelError):
    """Nothing is called `name`; `known` are the aliases that exist."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no model {name!r} in models.txt (it has: {', '.join(known) or 'none'}), and no file of that name")
        self.name = name
        self.known = known


class ModelFileMissing(ModelError):
    """A file that should be there isn't."""

    def __init__(self, path: Path, *, part_of: Path | None = None) -> None:
        role = f" (a part of the split model {part_of.name})" if part_of is not None else ""
        super().__init__(f"FileNotFoundError: no such model file: {path}{role}")
        self.path = path


class NotGguf(ModelError):
    """`path` is a file, but no model that llama.cpp can load."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"not a GGUF file: {path} {reason}")
        self.path = path


class ChecksumMismatch(ModelError):
    """`what` has the sha256 `actual` where `expected` was asked for."""

    def __init__(self, what: str, *, expected: str, actual: str, consequence: str) -> None:
        super().__init__(f"sha256 mismatch: {what} is {actual}, but models.txt says {expected}; {consequence}")
        self.expected = expected
        self.actual = actual


class FetchFailed(ModelError):
    """The source didn't give the file. What was fetched so far is kept where it can be resumed."""
