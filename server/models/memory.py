"""How much memory models take, about, and how much there is. Estimates: llama.cpp tells nothing before it has loaded."""

from __future__ import annotations

import os
from pathlib import Path

from server.engine.messages import ModelSpec
from server.model_status import ModelDetails

_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
_SHARE = 0.8  # of the machine's memory; the rest is for the system and for what isn't counted


def usable_bytes() -> float:
    """What models may take together where nothing else is said: most of this machine's, or container's, memory.

    Infinite where it can't be told.
    """
    try:
        physical = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        physical = float("inf")
    return _SHARE * min(physical, _container_bytes())


def _container_bytes() -> float:
    """The limit of the control group (version 2) that this process runs in."""
    try:
        text = _CONTAINER_LIMIT.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return float("inf")
    return float(text) if text.isdecimal() else float("inf")


def memory_of(path: Path, details: ModelDetails | None, spec: ModelSpec) -> int:
    """The weights and the KV cache of all slots. Raises OSError where the file is gone."""
    if details is None:
        return path.stat().st_size
    n_cells = context_of(details, spec) * spec.n_slots
    kv_bytes = details.kv_bytes(n_cells) if details.is_generative and not spec.embedding else 0
    return details.size_bytes + kv_bytes


def context_of(details: ModelDetails | None, spec: ModelSpec) -> int:
    """Tokens of one slot's context."""
    return spec.n_ctx_of(0 if details is None else details.n_ctx_train)
