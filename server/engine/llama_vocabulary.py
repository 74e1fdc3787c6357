"""llama.cpp's vocabulary: tokenizing, pieces, kinds of tokens. The bindings are handed in by `llama`, their only importer."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

import numpy as np

from server.engine.fast_forward import Beginnings
from server.engine.mask import VocabularyIndex
from server.engine.special import SpecialCuts

_PIECE_BYTES = 256
_CONTROL = 8  # attributes of tokens
_NO_TEXT = 1 | _CONTROL  # 1: unknown
_STRIPS_BEFORE = 128
_LONG_TEXT = 4096  # characters
_SENTENCEPIECE = 1  # LLAMA_VOCAB_TYPE_SPM


class LlamaVocabulary:
    """`backend.Vocabulary` over llama.cpp's. Pieces are cached; the index over all of them is made when first needed."""

    def __init__(self, lib: Any, handle: Any) -> None:
        self._lib = lib
        self.handle = handle
        self.n_tokens = int(self._lib.llama_vocab_n_tokens(handle))
        self._pieces: dict[int, bytes] = {}

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        if not parse_special or len(text) < _LONG_TEXT or self._lib.llama_vocab_get_add_eos(self.handle):
            return self._tokenize(text, add_special, parse_special)
        parts = enumerate(self._special_cuts.parts(text))
        return tuple(token for i, part in parts for token in self._tokenize(part, add_special and not i, True))

    def _tokenize(self, text: str, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
        n_most = len(data) + 8
        while True:
            tokens = (self._lib.llama_token * n_most)()
            n_found = self._lib.llama_tokenize(self.handle, data, len(data), tokens, n_most, add_special, parse_special)
            if n_found >= 0:
                return tuple(tokens[:n_found])
            n_most = -n_found

    @cached_property
    def _special_cuts(self) -> SpecialCuts:
        """At control tokens, but for those that swallow the space before them."""
        attributes = ((token, self._lib.llama_vocab_get_attr(self.handle, token)) for token in range(self.n_tokens))
        tokens = [token for token, attribute in attributes if attribute & _CONTROL and not attribute & _STRIPS_BEFORE]
        return SpecialCuts(self.piece(token).decode("utf-8", "ignore") for token in tokens)

    @cached_property
    def longest_piece(self) -> int:
        return max((len(self.piece(token)) for token in range(self.n_tokens)), default=1)

    def piece(self, token: int) -> bytes:
        if (piece := self._pieces.get(token)) is None:
            piece = self._pieces[token] = self._native_piece(token)
        return piece

    def _native_piece(self, token: int) -> bytes:
        size = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = self._lib.llama_token_to_piece(self.handle, token, buffer, size, 0, True)
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def begins_token(self, text: bytes) -> bool:
        return self._beginnings.begins(text)

    @cached_property
    def _beginnings(self) -> Beginnings:
        """Of tokens of text (40 ms for 49k tokens)."""
        return Beginnings(self.piece(token) for token in self.index.text_ids.tolist())

    def byte_token(self, byte: int) -> int | None:
        return self.index.byte_tokens.get(byte)

    def is_eog(self, token: int) -> bool:
        return bool(self._lib.llama_vocab_is_eog(self.handle, token))

    def is_control(self, token: int) -> bool:
        return bool(self._lib.llama_vocab_is_control(self.handle, token))

    @property
    def fallback_start(self) -> int | None:
        for token in (self._lib.llama_vocab_bos(self.handle), self._lib.llama_vocab_eos(self.handle)):
            if token >= 0:
                return int(token)
        return None

    @property
    def is_sentencepiece(self) -> bool:
        """Whether words begin with a space of their own, at the start of a text too."""
        return bool(self._lib.llama_vocab_type(self.handle) == _SENTENCEPIECE)

    @cached_property
    def index(self) -> VocabularyIndex:
        """All tokens by kind and first byte (a tenth of a second for 49k tokens)."""
        tokens = range(self.n_tokens)
        attributes = (self._lib.llama_vocab_get_attr(self.handle, token) for token in tokens)
        no_text = np.fromiter((bool(attribute & _NO_TEXT) for attribute in attributes), dtype=np.bool_, count=self.n_tokens)
        eogs = np.fromiter(map(self.is_eog, tokens), dtype=np.bool_, count=self.n_tokens)
        return VocabularyIndex([self.piece(token) for token in tokens], no_text, eogs)
