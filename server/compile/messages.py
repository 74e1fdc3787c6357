"""Everything that the server and its compile process say to each other, as frozen data: a job, then its one reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from converters.compile import Compiled, CompileOptions
from converters.constraint import Constraint
from converters.errors import ConversionError


@dataclass(frozen=True, slots=True)
class CompileJob:
    """Compile this; the reply is Done(Compiled) or Refused."""

    constraint: Constraint
    options: CompileOptions


@dataclass(frozen=True, slots=True)
class ExamplesJob:
    """The shortest sentence of a compiled grammar and up to `n_random` others; the reply is Done(tuple of str)."""

    tables: bytes
    n_random: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has loaded the compiler and takes jobs."""


@dataclass(frozen=True, slots=True)
class Done:
    """The job's result."""

    value: Compiled | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The constraint can't become a grammar."""

    error: ConversionError


@dataclass(frozen=True, slots=True)
class Crashed:
    """The compiler failed in a way that it shouldn't; `report` is the traceback."""

    report: str


Job: TypeAlias = CompileJob | ExamplesJob
Reply: TypeAlias = Ready | Done | Refused | Crashed
