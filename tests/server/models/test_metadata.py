"""The headers of GGUF files, whole and broken."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from server.models.details import read_details
from server.models.metadata import UnreadableHeader, read_header
from tests.tiny_models import TinyModel, write_tiny_model


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "m.gguf").read_bytes()


def test_a_header(tmp_path: Path) -> None:
    header = read_header(write_tiny_model(tmp_path / "m.gguf", TinyModel(vocabulary="sentencepiece", n_embd=32, n_layers=2)))
    assert header.metadata["llama.block_count"] == 2
    assert header.metadata["general.name"] == "tiny sentencepiece"
    assert header.metadata["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)
    assert "tokenizer.ggml.tokens" not in header.metadata
    per_layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64 + 2 * 32
    assert (header.n_params - 32 - 2 * per_layer) % (2 * 32) == 0  # what is left are two matrices of the vocabulary


def test_kv_bytes(tmp_path: Path) -> None:
    details = read_details(write_tiny_model(tmp_path / "m.gguf", TinyModel(n_embd=64, n_layers=3)))
    assert details.kv_bytes(100) == 3 * 100 * 2 * (16 + 16) * 2  # layers, tokens, heads, key and value, halves


@pytest.mark.parametrize("size", [0, 3, 8, 23, 100, 5000])
def test_a_file_that_is_cut_off(tmp_path: Path, whole: bytes, size: int) -> None:
    (tmp_path / "cut.gguf").write_bytes(whole[:size])
    with pytest.raises(UnreadableHeader):
        read_header(tmp_path / "cut.gguf")


@pytest.mark.parametrize(
    "pair",
    [
        struct.pack("<Q", 2**63),  # a key longer than any file
        struct.pack("<Q1sI", 1, b"a", 77),  # a type that nobody knows
        struct.pack("<Q1sIIQ", 1, b"a", 9, 8, 2**60),  # an array of more strings than there can be
        struct.pack("<Q1sIIQ", 1, b"a", 9, 9, 1),  # an array of arrays
        struct.pack("<Q1sIIQ", 1, b"a", 9, 4, 2**62),
    ],
)
def test_a_hostile_header(tmp_path: Path, pair: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 2) + pair)
    with pytest.raises(UnreadableHeader):
        read_header(tmp_path / "m.gguf")


def test_counts_of_parameters_are_said_as_people_do(tmp_path: Path) -> None:
    details = read_details(write_tiny_model(tmp_path / "m.gguf"))
    assert details.parameter_size.endswith("K")
    assert len(details.digest) == 64
