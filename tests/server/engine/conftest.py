"""Tiny real models for the engine's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_models import TinyModel, write_tiny_model


@pytest.fixture(scope="session")
def tiny_bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE model of 400 KB."""
    model = TinyModel(vocabulary="bpe", user_defined=("<think>", "</think>"))
    return write_tiny_model(tmp_path_factory.mktemp("models") / "bpe.gguf", model)


@pytest.fixture(scope="session")
def tiny_sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model of 440 KB whose words begin with their space."""
    model = TinyModel(vocabulary="sentencepiece", controls=("<|im_start|>", "<|im_end|>", "<think>", "</think>"))
    return write_tiny_model(tmp_path_factory.mktemp("models") / "sentencepiece.gguf", model)
