"""The closed set of places that a model can come from, told by the scheme of its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from server.models.hub import HubSource
from server.models.local import LocalSource
from server.models.pypi import PypiSource
from server.models.web import WebSource

RemoteSource: TypeAlias = PypiSource | HubSource | WebSource
Source: TypeAlias = RemoteSource | LocalSource

SOURCES: Mapping[str, Callable[[str], RemoteSource]] = {
    "pypi": PypiSource.parse,
    "hf": HubSource.parse,
    "https": WebSource.parse,
    "http": WebSource.parse,
}

_SCHEME = re.compile(r"^([a-z][a-z0-9+.-]+):")  # two letters at least: "C:" is a drive


def has_scheme(text: str) -> bool:
    """True when `text` names one of SOURCES (then it is no path)."""
    found = _SCHEME.match(text)
    return found is not None and found[1] in SOURCES


def parse_source(text: str, base: Path) -> Source:
    """The source that `text` means; paths are relative to the folder `base`. Raises ValueError with the reason."""
    found = _SCHEME.match(text)
    if found is None:
        return LocalSource.parse(text, base)
    if found[1] not in SOURCES:
        raise ValueError(f"unknown source {found[1]!r} (known: {', '.join(SOURCES)}, or a path)")
    return SOURCES[found[1]](text)
