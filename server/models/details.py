"""Reading a model's files for what can be told of them before llama.cpp opens them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from server.model_status import ModelDetails
from server.models.gguf import find_parts
from server.models.metadata import read_header


def read_details(path: Path, sha256: str | None = None) -> ModelDetails:
    """Of the model whose first file is `path`; `sha256` where it is known. Raises ModelError, UnreadableHeader, OSError."""
    parts = find_parts(path)
    states = [part.stat() for part in parts]
    headers = [read_header(part) for part in parts]
    size, modified_s = sum(state.st_size for state in states), max(state.st_mtime for state in states)
    first = headers[0].metadata, headers[0].infill_markers
    digest = sha256 or hashlib.sha256(f"{path.name} {size} {modified_s}".encode()).hexdigest()
    return ModelDetails(path, size, modified_s, digest, sum(header.n_params for header in headers), *first)
