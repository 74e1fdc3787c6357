"""The errors of the compiler.

    ConversionError          path, position, option
     ├ InvalidSource         the source is not valid
     ├ UnsupportedFeature    valid, but there is no exact grammar for it
     ├ Unsatisfiable         nothing matches it
     └ LimitExceeded         a bound was hit: limit (its name), value (its setting)

They carry data; the text is made here, once. `path` is the JSON pointer of the culprit inside a JSON source ("" is the
whole), `position` the place in a text; `option` is the compile option at fault, where it isn't the source.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """A place in source text. `offset` counts code points from 0; `line` and `column` count from 1."""

    offset: int
    line: int
    column: int

    @staticmethod
    def at(text: str, offset: int) -> Position:
        """The place of code point `offset` in `text`."""
        line_start = text.rfind("\n", 0, offset) + 1
        return Position(offset, text.count("\n", 0, offset) + 1, offset - line_start + 1)


class ConversionError(Exception):
    """A constraint could not become a grammar."""

    def __init__(self, reason: str, *, path: str | None = None, position: Position | None = None) -> None:
        super().__init__(reason, path, position)
        self.reason = reason
        self.path = path
        self.position = position
        self.option: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.reason, self.path, self.position), {"option": self.option})

    def __str__(self) -> str:
        where = []
        if self.position is not None:
            where.append(f"line {self.position.line}, column {self.position.column}")
        if self.path:
            where.append(f"at {self.path}")
        return f"{self.reason} ({', '.join(where)})" if where else self.reason


class InvalidSource(ConversionError):
    """The source breaks the rules of its own language."""


class UnsupportedFeature(ConversionError):
    """The source is valid, but this compiler knows no exact grammar for it."""


class Unsatisfiable(ConversionError):
    """The source is valid and accepts nothing at all."""


class LimitExceeded(ConversionError):
    """A bound of the compiler was hit. `limit` is the setting's name, `value` what it is set to."""

    def __init__(
        self, reason: str, *, limit: str, value: float, path: str | None = None, position: Position | None = None
    ) -> None:
        super().__init__(reason, path=path, position=position)
        self.limit = limit
        self.value = value

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.reason, self.limit, self.value, self.path, self.position)
        return (_rebuild_limit, fields, {"option": self.option})


def _rebuild_limit(reason: str, limit: str, value: float, path: str | None, position: Position | None) -> LimitExceeded:
    return LimitExceeded(reason, limit=limit, value=value, path=path, position=position)


def _rebuild(cls: type[ConversionError], reason: str, path: str | None, position: Position | None) -> ConversionError:
    return cls(reason, path=path, position=position)
