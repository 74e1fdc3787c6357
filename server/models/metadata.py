"""The header of a GGUF file: its metadata and how many parameters its tensors have. No tensor data is read.

For models that aren't loaded, where llama.cpp can't be asked. The format: ggml's docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from server.infill_form import MARKERS
from server.model_status import Scalar

_STRING, _ARRAY = 8, 9
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_VERSIONS = (2, 3)
_LONGEST_KEPT_ARRAY = 512  # numbers; longer ones are vocabularies
_MOST_DIMENSIONS = 8
_VOCABULARY = "tokenizer.ggml.tokens"


class UnreadableHeader(Exception):
    """The file ends early, or isn't what this module reads."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """`metadata` has scalars, and short arrays of numbers as tuples; vocabularies are left out. `n_params` is of this file.

    `infill_markers`: what the vocabulary has of the tokens around a middle that is to be filled.
    """

    metadata: dict[str, Scalar | tuple[Scalar, ...]]
    n_params: int
    infill_markers: frozenset[str] = frozenset()


def read_header(path: Path) -> GgufHeader:
    """The header of one file (of a split model: of one part). Raises UnreadableHeader, OSError."""
    with path.open("rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise UnreadableHeader("the file is empty") from error
        with mapped:
            try:
                return _Reader(mapped).header()
            except (struct.error, IndexError, KeyError, OverflowError) as error:
                raise UnreadableHeader(f"{path}: {error}") from error


class _Reader:
    """A cursor over the file's bytes."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0
        self._markers: frozenset[str] = frozenset()

    def header(self) -> GgufHeader:
        if self._data[:4] != b"GGUF":
            raise UnreadableHeader("no GGUF file")
        self._at = 4
        if self._integer("<I") not in _VERSIONS:
            raise UnreadableHeader("an unknown version of GGUF")
        n_tensors, n_pairs = self._integer("<Q"), self._integer("<Q")
        metadata: dict[str, Scalar | tuple[Scalar, ...]] = {}
        for _ in range(n_pairs):
            key = self._string()
            begin = self._at
            value = self._value(self._integer("<I"))
            if value is not None:
                metadata[key] = value
            elif key == _VOCABULARY:
                self._markers = self._markers_in(begin, self._at)
        return GgufHeader(metadata, sum(self._tensor_size() for _ in range(n_tensors)), self._markers)

    def _markers_in(self, begin: int, end: int) -> frozenset[str]:
        """The markers among the strings that stand there, each after its length."""
        spelled = {marker: marker.encode() for marker in MARKERS}
        return frozenset(
            marker for marker, text in spelled.items() if self._data.find(struct.pack("<Q", len(text)) + text, begin, end) >= 0
        )

    def _unpack(self, form: str) -> Scalar:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        assert isinstance(value, int | float)
        return value

    def _integer(self, form: str) -> int:
        return int(self._unpack(form))

    def _string(self) -> str:
        size = self._integer("<Q")
        text = self._data[self._at : self._at + size]
        if len(text) != size:
            raise UnreadableHeader("the file ends in its header")
        self._at += size
        return text.decode("utf-8", "replace")

    def _value(self, kind: int) -> Scalar | tuple[Scalar, ...] | None:
        if kind == _STRING:
            return self._string()
        return self._array() if kind == _ARRAY else self._unpack(_FORMATS[kind])

    def _array(self) -> tuple[Scalar, ...] | None:
        """None for what is too long to be kept, and for arrays of anything but numbers."""
        kind, count = self._integer("<I"), self._integer("<Q")
        if kind == _STRING:
            self._skip_strings(count)
            return None
        if kind == _ARRAY:
            raise UnreadableHeader("an array of arrays")
        if count > _LONGEST_KEPT_ARRAY:
            self._at += count * struct.calcsize(_FORMATS[kind])
            return None
        return tuple(self._unpack(_FORMATS[kind]) for _ in range(count))

    def _skip_strings(self, count: int) -> None:
        unpack, data, at = struct.Struct("<Q").unpack_from, self._data, self._at
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
        self._at = at

    def _tensor_size(self) -> int:
        """How many numbers a tensor has."""
        self._string()
        n_dimensions = self._integer("<I")
        if n_dimensions > _MOST_DIMENSIONS:
            raise UnreadableHeader(f"a tensor of {n_dimensions} dimensions")
        size = 1
        for _ in range(n_dimensions):
            size *= self._integer("<Q")
        self._at += struct.calcsize("<IQ")  # its type and offset
        return size
