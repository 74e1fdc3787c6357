"""The model of the live tests: $GRAMSERVE_TEST_MODEL if that is set, else the default of models.txt, fetched once."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from server.models.catalogue import load_catalogue
from server.models.store import Store, default_root

REPOSITORY = Path(__file__).parents[1]


@cache
def default_model_path() -> Path:
    """The GGUF file. Raises ModelError when it can't be had: a live test without its model has failed, it isn't skipped."""
    chosen = os.environ.get("GRAMSERVE_TEST_MODEL")
    if chosen:
        return Path(chosen)
    catalogue = load_catalogue(str(REPOSITORY / "models.txt"))
    return Store(default_root()).fetch(catalogue.default)
