"""What a grammar permits of the vocabulary, asked as cheaply as can be (spec section 8, points 1 and 2).

The native grammar sampler is the only judge: nothing here reads a grammar. Asking about one token costs microseconds, about
a whole vocabulary 10 to 150 ms; so the vocabulary is indexed by first byte, and only tokens whose first byte is permitted
are asked. A byte is permitted exactly if the token that spells this one byte is.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from server.engine.backend import Reference

Ids: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]

_NO_TOKEN = -1
_LARGE = 1024  # from here on the index is cheaper than asking about every candidate


class NativeGrammar(Protocol):
    """llama.cpp's grammar sampler in some state."""

    def filter(self, ids: Ids) -> Mask:
        """Which of `ids` may come next."""

    def permits(self, token: int) -> bool:
        """Whether `token` may come next."""

    def accept(self, token: int) -> None:
        """Go on with `token`. A token that isn't permitted kills the process."""

    def free(self) -> None:
        """Give the native state back."""


class Pool:
    """A set of candidate tokens: `ids` in rising order, and `table` to look one up (None: it is the whole vocabulary)."""

    __slots__ = ("ids", "table")

    def __init__(self, ids: Ids, n_tokens: int) -> None:
        self.ids = ids
        self.table: Mask | None = None
        if len(ids) < n_tokens:
            self.table = np.zeros(n_tokens, dtype=np.bool_)
            self.table[ids] = True

    def without(self, banned: tuple[int, ...], n_tokens: int) -> Pool:
        """The pool but for the `banned` tokens."""
        return Pool(np.setdiff1d(self.ids, np.array(banned, dtype=np.int32)), n_tokens) if banned else self


class VocabularyIndex:
    """The vocabulary's tokens by kind and by first byte. `text_ids` are those that count as text, in rising order."""

    def __init__(self, pieces: list[bytes], no_text: Mask, eogs: Mask) -> None:
        n_tokens = len(pieces)
        firsts = np.fromiter((piece[0] if piece else 256 for piece in pieces), dtype=np.int32, count=n_tokens)
        lengths = np.fromiter(map(len, pieces), dtype=np.int32, count=n_tokens)
        is_text = ~no_text & ~eogs & (lengths > 0)
        self.n_tokens = n_tokens
        all_ids: Ids = np.arange(n_tokens, dtype=np.int32)
        self.eog_ids: Ids = all_ids[eogs]
        self.eogs = frozenset(self.eog_ids.tolist())
        self.text_ids: Ids = all_ids[is_text]
        self.all = Pool(all_ids, n_tokens)
        self.no_eog = Pool(all_ids[~eogs], n_tokens)
        self.text = Pool(self.text_ids, n_tokens)
        self.text_and_end = Pool(np.union1d(self.text_ids, self.eog_ids), n_tokens)
        text_firsts = firsts[self.text_ids]
        self.buckets: list[Ids] = [self.text_ids[text_firsts == byte] for byte in range(256)]
        singles = [self._single(bucket, lengths) for bucket in self.buckets]
        self.probes: Ids = np.array([token for token in singles if token != _NO_TOKEN], dtype=np.int32)
        self.probe_bytes: list[int] = [byte for byte, token in enumerate(singles) if token != _NO_TOKEN]
        self.byte_tokens: dict[int, int] = {byte: token for byte, token in enumerate(singles) if token != _NO_TOKEN}
        unprobed = [bucket for bucket, token in zip(self.buckets, singles, strict=True) if token == _NO_TOKEN and len(bucket)]
        self.unprobed_ids: Ids = np.concatenate(unprobed) if unprobed else np.empty(0, dtype=np.int32)

    @staticmethod
    def _single(bucket: Ids, lengths: NDArray[np.int32]) -> int:
        """The token of this bucket that is one byte long, if there is one."""
        singles = bucket[lengths[bucket] == 1]
        return int(singles[0]) if len(singles) else _NO_TOKEN

    @property
    def is_byte_complete(self) -> bool:
        """Whether every byte that UTF-8 uses (NUL excepted, which no grammar matches) can be spelled alone."""
        spelled = set(self.probe_bytes)
        return all(byte in spelled for byte in range(1, 256) if byte not in (0xC0, 0xC1) and byte < 0xF5)


class GrammarMask:
    """One sequence's grammar. `named` are the token ids that its text names; with `negates` it names some by `!<…>`."""

    def __init__(self, native: NativeGrammar, index: VocabularyIndex, named: Ids, negates: bool) -> None:
        self._native = native
        self._index = index
        self._negates = negates
        self._can_end: bool | None = None
        self._offered = _NO_TOKEN
        self._reference: Reference | None = None
        self._lately_permitted = _NO_TOKEN  # a probe that passed before is likely to pass again
        self._named_text: Ids = np.setdiff1d(named, index.eog_ids)
        self.text, self.text_and_end = index.text, index.text_and_end
        self._make_pools()

    def _make_pools(self) -> None:
        index = self._index
        named = self._named_text if self._offered == _NO_TOKEN else np.append(self._named_text, np.int32(self._offered))
        self.text, self.text_and_end = index.text, index.text_and_end
        if len(named):
            self.text = Pool(np.union1d(index.text_ids, named), index.n_tokens)
            self.text_and_end = Pool(np.union1d(self.text.ids, index.eog_ids), index.n_tokens)

    def offer(self, token: int) -> None:
        """Permit `token` too, as the next one."""
        self._offered = token
        self._make_pools()

    def refer(self, reference: Reference | None) -> None:
        """Heed a second opinion."""
        self._reference = reference
        self._can_end = None

    @property
    def can_end(self) -> bool:
        """Whether the text so far is a sentence of the grammar: exactly then are end-of-generation tokens permitted."""
        if self._can_end is None:
            eogs = self._index.eog_ids
            may_end = self._reference is None or self._reference.may_end()
            self._can_end = may_end and bool(len(eogs)) and self._native.permits(int(eogs[0]))
        return self._can_end

    def must_end(self) -> bool:
        """Whether the text is a sentence that can't go on."""
        return self.can_end and not self.can_continue()

    def can_continue(self) -> bool:
        """Whether any token but the end is permitted."""
        if self._offered != _NO_TOKEN:
            return True
        if self._lately_permitted != _NO_TOKEN and self._native.permits(self._lately_permitted):
            return True
        for ids in (self._index.probes, self._named_text, self._index.unprobed_ids):
            if len(ids) and (passed := ids[self._native.filter(ids)]).size:
                self._lately_permitted = int(passed[0])
                return True
        return self._negates and bool(self._native.filter(self.text.ids).any())

    def permits(self, token: int) -> bool:
        """Whether `token` may come next. The last word: `filter` doesn't ask the second opinion."""
        if token == self._offered:
            return True
        if token in self._index.eogs:
            return self.can_end
        return (self._reference is None or self._reference.permits(token)) and self._native.permits(token)

    @property
    def is_doubted(self) -> bool:
        """Whether the native sampler may permit what the second opinion refuses."""
        return self._reference is not None

    def filter_exactly(self, ids: Ids) -> Mask:
        """Which of `ids` may come next, every one asked by itself."""
        return np.fromiter((self.permits(token) for token in ids.tolist()), dtype=np.bool_, count=len(ids))

    def filter(self, ids: Ids) -> Mask:
        """Which of `ids` may come next; through the index where that is cheaper."""
        if len(ids) < _LARGE:
            return np.asarray(self._native.filter(ids) | (ids == self._offered))
        table = np.zeros(self._index.n_tokens, dtype=np.bool_)
        table[self.all_permitted()] = True
        return table[ids]

    def all_permitted(self) -> Ids:
        """Every permitted token of the vocabulary (end-of-generation tokens included)."""
        end = self._index.eog_ids if self.can_end else self._index.eog_ids[:0]
        asked = self.text.ids if self._negates else self._begun_ids()
        offered = np.array([self._offered] if self._offered != _NO_TOKEN else [], dtype=np.int32)
        return np.concatenate([asked[self._native.filter(asked)], end, offered])

    def _begun_ids(self) -> Ids:
        """The tokens that begin with a permitted byte, and those that the index can't judge."""
        index = self._index
        passed = self._native.filter(index.probes)
        buckets = [index.buckets[byte] for byte, ok in zip(index.probe_bytes, passed.tolist(), strict=True) if ok]
        return np.unique(np.concatenate([*buckets, index.unprobed_ids, self._named_text])).astype(np.int32)

    def accept(self, token: int) -> None:
        """Go on with a token that `permits` or `filter` has let through in this state."""
        if token != self._offered:
            self._native.accept(token)
        self._can_end = None
        if self._offered != _NO_TOKEN:
            self._offered = _NO_TOKEN
            self._make_pools()

    def free(self) -> None:
        """Give the native state back."""
        self._native.free()
