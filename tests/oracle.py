"""llama.cpp's own grammar sampler as the judge of grammars, in a helper process.

    with Oracle() as oracle:
        oracle.accepts('root ::= "a"+', ["a", "aa", "b"])   # [True, True, False]
        oracle.parse(gbnf).ok

A helper that dies or hangs is a verdict, not the end of the tests: it is started again for the next question. In tests take
the fixture `oracle` (a tiny vocabulary, always there) or `model_oracle` (the default model's, for marked tests).
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, Literal

from tests.tiny_vocabulary import write_tiny_vocabulary

REPOSITORY = Path(__file__).parents[1]


class OracleFailed(AssertionError):
    """llama.cpp crashed or hung on what it was given."""


@dataclass(frozen=True, slots=True)
class Parse:
    """What llama.cpp made of a grammar's text: `ms` is the time it took, `message` what it printed."""

    status: Literal["ok", "refused", "crashed", "hung"]
    ms: float = 0.0
    message: str = ""

    @property
    def ok(self) -> bool:
        """True when llama.cpp took it."""
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class Stop:
    """How far a text got: `offset` in characters (the whole length when only the end is missing)."""

    accepted: bool
    offset: int


class Oracle:
    """Judges over the vocabulary at `model` (None: the tiny one). `timeout_s` bounds one question."""

    def __init__(self, model: Path | str | None = None, timeout_s: float = 20.0) -> None:
        self._timeout_s = timeout_s
        self._folder = tempfile.TemporaryDirectory()
        self._model = str(model) if model else str(write_tiny_vocabulary(Path(self._folder.name) / "tiny.gguf"))
        self._process: subprocess.Popen[bytes] | None = None
        self._log = ""
        self._answers: Queue[Any] = Queue()

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the helper process."""
        self._kill()
        self._folder.cleanup()

    # ---- questions

    def accepts(self, gbnf: str, texts: Sequence[str]) -> list[bool]:
        """For each text whether it is a sentence. Raises OracleFailed when llama.cpp refuses the grammar, crashes or hangs."""
        return [stop.accepted for stop in self.stops(gbnf, texts)]

    def stops(self, gbnf: str, texts: Sequence[str]) -> list[Stop]:
        """For each text where it stops being the beginning of a sentence."""
        encoded = [text.encode() for text in texts]
        walks = self._ask("walks", gbnf, encoded)
        if walks is None:
            raise OracleFailed(f"llama.cpp refuses the grammar: {self._log}\n{gbnf[:2000]}")
        return [
            Stop(accepted, len(text[:n_bytes].decode(errors="ignore")))
            for text, (accepted, n_bytes) in zip(encoded, walks, strict=True)
        ]

    def walk_tokens(self, gbnf: str, sequences: Sequence[Sequence[int]]) -> list[bool]:
        """For each sequence of token ids whether it is a sentence."""
        walks = self._ask("walk_tokens", gbnf, [list(tokens) for tokens in sequences])
        if walks is None:
            raise OracleFailed(f"llama.cpp refuses the grammar: {self._log}\n{gbnf[:2000]}")
        return [accepted for accepted, _ in walks]

    def parse(self, gbnf: str) -> Parse:
        """Does llama.cpp take the text? A crash or a hang is an answer too."""
        try:
            ms = self._ask("parse", gbnf)
        except OracleFailed as failure:
            return Parse("hung" if "hangs" in str(failure) else "crashed", message=str(failure))
        return Parse("refused", message=self._log) if ms is None else Parse("ok", ms)

    def check_costs(self, gbnf: str, text: str) -> list[float]:
        """Microseconds of asking about one candidate token, at each token of `text` until the first that is refused."""
        return list(self._ask("costs", gbnf, text.encode()) or ())

    def spellable(self, texts: Sequence[str]) -> list[bool]:
        """For each text whether the vocabulary has tokens for it; asking about another raises ValueError."""
        return list(self._ask("spellable", [text.encode() for text in texts]))

    def token_pieces(self) -> list[bytes]:
        """The piece of every token of the vocabulary."""
        return list(self._ask("token_pieces"))

    # ---- the helper

    def _ask(self, *question: object) -> Any:
        if self._process is None:
            self._start()
        return self._exchange(question)

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.oracle_worker"]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._answers = Queue()
        Thread(target=_read_answers, args=(self._process, self._answers), daemon=True).start()
        self._exchange(("load", self._model), timeout_s=60.0)

    def _exchange(self, question: tuple[object, ...], timeout_s: float | None = None) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            pickle.dump(question, self._process.stdin)
            self._process.stdin.flush()
            answer = self._answers.get(timeout=timeout_s or self._timeout_s)
        except BrokenPipeError:
            answer = None
        except Empty:
            self._kill()
            raise OracleFailed(f"llama.cpp hangs on {str(question)[:2000]}") from None
        if answer is None:
            code = self._process.wait()
            self._kill()
            raise OracleFailed(f"llama.cpp died with code {code} on {str(question)[:2000]}")
        value, self._log = answer
        if isinstance(value, ValueError):
            raise value
        return value

    def _kill(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process = None


def _read_answers(process: subprocess.Popen[bytes], answers: Queue[Any]) -> None:
    """Hand answers over as they come; None when the process has ended."""
    assert process.stdout is not None
    with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):
        while True:
            answers.put(pickle.load(process.stdout))
    answers.put(None)
