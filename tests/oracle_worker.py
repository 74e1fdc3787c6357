"""The process in which llama.cpp's grammar sampler judges texts. Started by `tests.oracle`; it may die of what it is given.

Requests and answers are pickled tuples on stdin and stdout: ("load", path) first, then the rest in any number.
"""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import llama_cpp as llama

Walk = tuple[bool, int]
"""Whether the text is a sentence, and how many of its bytes llama.cpp took."""


class Judge:
    """One vocabulary, and samplers over it."""

    def __init__(self, path: str) -> None:
        params = llama.llama_model_default_params()
        params.vocab_only = True
        self.model = llama.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp can't load the vocabulary {path}")
        self.vocab = llama.llama_model_get_vocab(self.model)
        self.eog = llama.llama_vocab_eos(self.vocab)
        self.is_bpe = llama.llama_vocab_type(self.vocab) == llama.LLAMA_VOCAB_TYPE_BPE
        self.pieces = [self._piece(token) for token in range(llama.llama_vocab_n_tokens(self.vocab))]
        self.longest = max(map(len, self.pieces))
        control = llama.LLAMA_TOKEN_ATTR_CONTROL
        self.by_piece = {
            piece: token
            for token, piece in reversed(list(enumerate(self.pieces)))
            if piece and not llama.llama_vocab_get_attr(self.vocab, token) & control
        }
        only = (llama.llama_token_data * 1)()
        self._candidate: Any = only[0]  # its fields are declared as C types, and take Python's
        self._candidates = llama.llama_token_data_array(data=only, size=1, selected=-1, sorted=False)

    def _piece(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(512)
        n = llama.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, True)
        return buffer.raw[: max(n, 0)]

    def tokenize(self, text: bytes) -> list[int]:
        """A BPE vocabulary's own tokens; the longest pieces, from the left, of any other."""
        if self.is_bpe:
            tokens = (llama.llama_token * (len(text) + 8))()
            n = llama.llama_tokenize(self.vocab, text, len(text), tokens, len(tokens), False, False)
            found = list(tokens[: max(n, 0)])
            if b"".join(self.pieces[token] for token in found) == text:
                return found
        return self._tokenize_greedily(text)

    def _tokenize_greedily(self, text: bytes) -> list[int]:
        tokens = []
        at = 0
        while at < len(text):
            for n in range(min(self.longest, len(text) - at), 0, -1):
                token = self.by_piece.get(text[at : at + n])
                if token is not None:
                    break
            else:
                raise ValueError(f"the vocabulary can't spell {text[at : at + 8]!r}")
            tokens.append(token)
            at += n
        return tokens

    @contextmanager
    def sampler(self, gbnf: str) -> Iterator[object]:
        """A grammar sampler, or None when llama.cpp refuses the text."""
        made = llama.llama_sampler_init_grammar(self.vocab, gbnf.encode(), b"root")
        try:
            yield made or None
        finally:
            if made:
                llama.llama_sampler_free(made)

    def allows(self, sampler: object, token: int) -> bool:
        self._candidate.id = token
        self._candidate.logit = 1.0
        self._candidates.size = 1
        llama.llama_sampler_apply(sampler, ctypes.byref(self._candidates))
        return not math.isinf(self._candidate.logit)

    def walk(self, sampler: object, tokens: list[int], length: int) -> Walk:
        n_bytes = 0
        for token in tokens:
            if not self.allows(sampler, token):
                return False, n_bytes
            llama.llama_sampler_accept(sampler, token)
            n_bytes += len(self.pieces[token])
        return self.allows(sampler, self.eog), length

    # ---- requests

    def parse(self, gbnf: str) -> float | None:
        """Milliseconds that parsing took; None when llama.cpp refuses the text."""
        started = time.perf_counter()
        with self.sampler(gbnf) as sampler:
            taken = (time.perf_counter() - started) * 1000
            return taken if sampler else None

    def walks(self, gbnf: str, texts: list[bytes]) -> list[Walk] | None:
        """How far each text gets."""
        with self.sampler(gbnf) as sampler:
            if not sampler:
                return None
            found = []
            for text in texts:
                llama.llama_sampler_reset(sampler)
                found.append(self.walk(sampler, self.tokenize(text), len(text)))
            return found

    def walk_tokens(self, gbnf: str, sequences: list[list[int]]) -> list[Walk] | None:
        """`walks` for token ids."""
        with self.sampler(gbnf) as sampler:
            if not sampler:
                return None
            found = []
            for tokens in sequences:
                llama.llama_sampler_reset(sampler)
                found.append(self.walk(sampler, tokens, sum(len(self.pieces[token]) for token in tokens)))
            return found

    def costs(self, gbnf: str, text: bytes) -> list[float] | None:
        """Microseconds that asking for the next token took, at each token of `text` (the best of five)."""
        with self.sampler(gbnf) as sampler:
            if not sampler:
                return None
            costs = []
            for token in self.tokenize(text):
                times = []
                for _ in range(5):
                    started = time.perf_counter()
                    allowed = self.allows(sampler, token)
                    times.append((time.perf_counter() - started) * 1e6)
                if not allowed:
                    break
                costs.append(min(times))
                llama.llama_sampler_accept(sampler, token)
            return costs

    def spellable(self, texts: list[bytes]) -> list[bool]:
        """For each text whether the vocabulary has tokens for it."""
        return [self._is_spellable(text) for text in texts]

    def _is_spellable(self, text: bytes) -> bool:
        try:
            self.tokenize(text)
        except ValueError:
            return False
        return True

    def token_pieces(self) -> list[bytes]:
        """The piece of every token."""
        return self.pieces


def _answer(judge: Judge | None, name: str, arguments: list[object]) -> object:
    """The answer, or the error that a question itself is to blame for."""
    try:
        return getattr(judge, name)(*arguments)
    except ValueError as error:
        return error


def main(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the input ends. What llama.cpp printed comes back beside each answer."""
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        judge: Judge | None = None
        while True:
            try:
                name, *arguments = pickle.load(requests)
            except EOFError:
                return
            log.truncate(0)
            log.seek(0)
            if name == "load":
                judge = Judge(*arguments)
                answer: object = None
            else:
                answer = _answer(judge, name, arguments)
            log.seek(0)
            pickle.dump((answer, log.read(2000).decode(errors="replace")), answers)
            answers.flush()


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints to stdout must not get between the answers
    main(sys.stdin.buffer, replies)
