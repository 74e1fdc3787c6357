"""Fixtures that more than one part of the tests needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.default_model import default_model_path


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The GGUF file of the default model, for tests marked `live`."""
    return default_model_path()
