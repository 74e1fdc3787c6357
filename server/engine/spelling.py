"""Text to the tokens that add exactly its bytes to a reply, as the model itself would cut it.

`llama_tokenize` is made for whole texts: it puts a space before the first word of a SentencePiece model, and it takes no half
characters. Here the text goes on from something, and may begin with the rest of a character.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from server.engine.backend import Vocabulary

_N_REMEMBERED = 1024


class Speller:
    """Spells with one vocabulary. Safe to use from any thread."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.tokens = lru_cache(_N_REMEMBERED)(self._tokens)
        self.settled = lru_cache(_N_REMEMBERED)(self._settled)

    @property
    def longest_piece(self) -> int:
        """The most bytes that one token spells."""
        return self._vocabulary.longest_piece

    def piece(self, token: int) -> bytes:
        """The bytes that a token spells, a control token its name."""
        return self._vocabulary.piece(token)

    def named(self, name: str) -> int | None:
        """The token that `name` stands for: a control token, or one that is this text; None where it takes several."""
        tokens = self._vocabulary.tokenize(name, False, True)
        return tokens[0] if len(tokens) == 1 and self.piece(tokens[0]) == name.encode() else None

    def marked(self, text: str) -> tuple[int, ...] | None:
        """The tokens of markup: names of control tokens in it are those tokens. None if the vocabulary can't spell it."""
        tokens = self._vocabulary.tokenize(text, False, True)
        return tokens if self._joined(tokens) == text.encode() else self.tokens(text.encode())

    def _tokens(self, text: bytes) -> tuple[int, ...] | None:
        """The tokens of plain text, which may begin inside a character; None if the vocabulary can't spell it."""
        whole = text.lstrip(_CONTINUING)
        head = self._bytes(text[: len(text) - len(whole)])
        rest = self._whole(whole)
        return None if head is None or rest is None else head + rest

    def _settled(self, text: bytes, goes_on: bool) -> tuple[int, ...] | None:
        """The tokens of plain text that stay the same whatever follows it; all of them where the text doesn't go on.

        Left out is the longest run at the end whose bytes a longer token begins with: the model might write that one.
        """
        tokens = self.tokens(text)
        if tokens is None or not goes_on:
            return tokens
        n_kept, tail = len(tokens), b""
        for place in range(len(tokens) - 1, -1, -1):
            tail = self.piece(tokens[place]) + tail
            if len(tail) >= self.longest_piece:
                break
            if self._vocabulary.begins_token(tail):
                n_kept = place
        return tokens[:n_kept]

    def _whole(self, text: bytes) -> tuple[int, ...] | None:
        if not text:
            return ()
        decoded = text.decode("utf-8", "replace")
        for prefix in ("", "\n"):
            tokens = self._vocabulary.tokenize(prefix + decoded, False, False)
            for start in range(min(3, len(tokens))) if prefix else (0,):  # a space, a line end
                if self._joined(tokens[start:]) == text and not any(map(self._is_markup, tokens[start:])):
                    return tokens[start:]
        return self._bytes(text)

    def _bytes(self, text: bytes) -> tuple[int, ...] | None:
        """One token a byte."""
        tokens = [self._vocabulary.byte_token(byte) for byte in text]
        return None if None in tokens else tuple(token for token in tokens if token is not None)

    def _joined(self, tokens: Iterable[int]) -> bytes:
        return b"".join(map(self._vocabulary.piece, tokens))

    def _is_markup(self, token: int) -> bool:
        return self._vocabulary.is_control(token) or self._vocabulary.is_eog(token)


_CONTINUING = bytes(range(0x80, 0xC0))
