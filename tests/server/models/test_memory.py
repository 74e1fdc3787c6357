"""How much memory there is, and what a model is thought to take."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.engine.messages import ModelSpec
from server.models import memory
from server.models.details import read_details
from tests.tiny_models import TinyModel, write_tiny_model


@pytest.mark.parametrize(("text", "expected"), [("1000000\n", 800_000.0), ("max\n", None), ("?", None), (None, None)])
def test_a_container_has_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, expected: float | None
) -> None:
    path = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CONTAINER_LIMIT", path)
    whole = memory.usable_bytes()
    if text is not None:
        path.write_text(text)
    assert memory.usable_bytes() == (whole if expected is None else expected)


def test_what_a_model_takes(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", TinyModel(n_ctx_train=512))
    details = read_details(path)
    size = path.stat().st_size
    assert memory.memory_of(path, details, ModelSpec(str(path), n_slots=2)) == size + details.kv_bytes(1024)
    assert memory.memory_of(path, details, ModelSpec(str(path), n_ctx=100, n_slots=1)) == size + details.kv_bytes(100)
    assert memory.memory_of(path, details, ModelSpec(str(path), embedding=True)) == size
    assert memory.memory_of(path, None, ModelSpec(str(path))) == size
