"""Vectors of texts, and ranks of documents, for every dialect: tokenizing, length checks, the engine. Knows no HTTP."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import dataclass
from typing import TypeAlias

from server.chat.model import LoadedModel, ModelManager
from server.engine.client import EngineClient
from server.engine.messages import ModelInfo
from server.errors import BadRequest, ContextOverflow, UnsupportedParameter

Input: TypeAlias = str | tuple[int, ...]

_AT_ONCE = 64  # tokenizations under way together


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """Texts, or token ids taken as they are. `is_single`: they came as one value and not in a list, which errors show.

    truncates: an input that is too long loses its end, else it is an error. n_dimensions: as many numbers as the vectors
    must have; a model whose vectors have another length is an error (only some may be cut, and files don't say which).
    """

    inputs: tuple[Input, ...]
    model: str | None = None
    param: str = "input"
    is_single: bool = False
    truncates: bool = False
    n_dimensions: int | None = None

    def path(self, number: int) -> str:
        """How errors name an input."""
        return self.param if self.is_single else f"{self.param}[{number}]"


@dataclass(frozen=True, slots=True)
class Embeddings:
    """A vector of each input, of length 1, as little-endian float32 (see `floats`)."""

    model: str
    vectors: tuple[bytes, ...]
    n_prompt_tokens: int

    def as_lists(self) -> list[list[float]]:
        """The vectors' numbers, rounded to what tells float32 apart. Two thousand vectors take a second."""
        return [[float(f"{number:.9g}") for number in floats(vector)] for vector in self.vectors]


@dataclass(frozen=True, slots=True)
class RankRequest:
    """Documents to be scored for a query; `params` name the request's fields of both."""

    query: str
    documents: tuple[str, ...]
    model: str | None = None
    params: tuple[str, str] = ("query", "documents")


@dataclass(frozen=True, slots=True)
class Ranking:
    """A score of each document, higher is better; the model's own, of any size."""

    model: str
    scores: tuple[float, ...]
    n_prompt_tokens: int


def floats(vector: bytes) -> array[float]:
    """The numbers of a vector."""
    numbers = array("f", vector)
    if numbers.itemsize != 4:  # not on any platform that Python runs on
        raise AssertionError("a C float has four bytes")
    return numbers


async def embed(manager: ModelManager, request: EmbedRequest) -> Embeddings:
    """The inputs' vectors. Raises ServerError that names the input at fault; cancelling the wait cancels the work."""
    model = await manager.engine(request.model)
    info = model.engine.info
    if info.pooling == "rank":
        message = f"model {model.name} ranks documents and makes no embeddings: use /v1/rerank"
        raise UnsupportedParameter(message, param="model")
    if request.n_dimensions not in (None, info.n_embd):
        message = f"dimensions must be {info.n_embd}: the vectors of model {model.name} can't be made shorter or longer"
        raise UnsupportedParameter(message, param="dimensions")
    tokens = await _tokenize_all(model.engine, request.inputs)
    for number, found in enumerate(tokens):
        _check(found, info, request.path(number), may_be_long=request.truncates)
    if request.truncates:
        tokens = [_truncated(found, info) for found in tokens]
    return Embeddings(model.name, await model.engine.embed(tuple(tokens)), sum(map(len, tokens)))


async def rank(manager: ModelManager, request: RankRequest) -> Ranking:
    """The documents' scores. Raises ServerError; UnsupportedParameter where the model can't rank."""
    model: LoadedModel = await manager.engine(request.model)
    info = model.engine.info
    frame = info.rank_frame
    if frame is None:
        message = f"model {model.name} can't rank documents: that needs a reranker (a GGUF whose pooling type is rank)"
        raise UnsupportedParameter(message, param="model")
    query, *documents = await _tokenize_all(model.engine, (request.query, *request.documents), add_special=False)
    pairs = [(*frame.before, *query, *frame.between, *document, *frame.after) for document in documents]
    for number, pair in enumerate(pairs):
        _check(pair, info, f"{request.params[1]}[{number}]", beside=f" together with {request.params[0]}")
    scores = await model.engine.embed(tuple(pairs), is_ranking=True)
    return Ranking(model.name, tuple(floats(score)[0] for score in scores), sum(map(len, pairs)))


async def _tokenize_all(engine: EngineClient, inputs: tuple[Input, ...], *, add_special: bool = True) -> list[tuple[int, ...]]:
    async def tokenize(value: Input) -> tuple[int, ...]:
        return await engine.tokenize(value, add_special=add_special) if isinstance(value, str) else value

    found: list[tuple[int, ...]] = []
    for start in range(0, len(inputs), _AT_ONCE):
        found += await asyncio.gather(*map(tokenize, inputs[start : start + _AT_ONCE]))
    return found


def _check(tokens: tuple[int, ...], info: ModelInfo, path: str, *, may_be_long: bool = False, beside: str = "") -> None:
    if not tokens:
        raise BadRequest(f"{path} is empty", param=path, code="invalid_value")
    if len(tokens) > info.n_ctx_embed and not may_be_long:
        message = f"{path} has {len(tokens)} tokens{beside}, more than the {info.n_ctx_embed} that the model takes at once"
        raise ContextOverflow(message, param=path)
    worst = max(tokens)
    if worst >= info.n_vocab:
        raise BadRequest(f"{path}: there is no token {worst}, the model has {info.n_vocab}", param=path, code="invalid_value")


def _truncated(tokens: tuple[int, ...], info: ModelInfo) -> tuple[int, ...]:
    """As many tokens as the model takes; the last one stays, which ends a text where the vocabulary does that."""
    return tokens if len(tokens) <= info.n_ctx_embed else (*tokens[: info.n_ctx_embed - 1], tokens[-1])
