"""Vectors of texts, and ranks of documents, for every dialect: tokenizing, length checks, the engine. Knows no HTTP."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import TypeAlias

from server.chat.model import LoadedModel, ModelManager
from server.chat.vocabulary import check_tokens
from server.engine.client import EngineClient
from server.engine.messages import ModelInfo
from server.errors import BadRequest, ContextOverflow, UnsupportedParameter

Input: TypeAlias = str | tuple[int, ...]

_TEXT_PER_TOKEN = 256  # characters; more of a text that may lose its end need not be tokenized
_NO_BOUND = 1 << 40


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
    with model.in_use():
        tokens = await _tokenize_all(model.engine, request)
        return Embeddings(model.name, await model.engine.embed(tokens), sum(map(len, tokens)))


async def rank(manager: ModelManager, request: RankRequest) -> Ranking:
    """The documents' scores. Raises ServerError; UnsupportedParameter where the model can't rank."""
    model: LoadedModel = await manager.engine(request.model)
    info = model.engine.info
    frame = info.rank_frame
    if frame is None:
        message = f"model {model.name} can't rank documents: that needs a reranker (a GGUF whose pooling type is rank)"
        raise UnsupportedParameter(message, param="model")
    with model.in_use():
        params = request.params
        (query,) = await _tokenize(model.engine, EmbedRequest((request.query,), param=params[0], is_single=True))
        documents = await _tokenize(model.engine, EmbedRequest(request.documents, param=params[1]))
        pairs = [(*frame.before, *query, *frame.between, *document, *frame.after) for document in documents]
        for number, pair in enumerate(pairs):
            if len(pair) > info.n_ctx_embed:
                raise _too_long(f"{params[1]}[{number}]", len(pair), info, f" together with {params[0]}")
        scores = await model.engine.embed(tuple(pairs), is_ranking=True)
        return Ranking(model.name, tuple(floats(score)[0] for score in scores), sum(map(len, pairs)))


async def _tokenize_all(engine: EngineClient, request: EmbedRequest) -> tuple[tuple[int, ...], ...]:
    """The inputs' tokens, with what the vocabulary puts around a text. Raises BadRequest that names the input."""
    info = engine.info
    if request.truncates:
        request = replace(request, inputs=tuple(value[: _TEXT_PER_TOKEN * info.n_ctx_embed] for value in request.inputs))
    found = await _tokenize(engine, request, add_special=True)
    for number, tokens in enumerate(found):
        if not tokens:
            path = request.path(number)
            raise BadRequest(f"{path} is empty", param=path, code="invalid_value")
        check_tokens(tokens, info, request.path(number))
    return tuple(_truncated(tokens, info) for tokens in found) if request.truncates else found


async def _tokenize(engine: EngineClient, request: EmbedRequest, *, add_special: bool = False) -> tuple[tuple[int, ...], ...]:
    """The inputs' tokens. Raises ContextOverflow for one that is too long, unless it may lose its end."""
    texts = tuple(value for value in request.inputs if isinstance(value, str))
    most = _NO_BOUND if request.truncates else engine.info.n_ctx_embed
    entries = iter(await engine.tokenize_all(texts, add_special=add_special, most=most) if texts else ())
    found: list[tuple[int, ...]] = []
    for number, value in enumerate(request.inputs):
        tokens = next(entries) if isinstance(value, str) else value
        n_tokens = tokens if isinstance(tokens, int) else len(tokens)
        if isinstance(tokens, int) or n_tokens > most:
            raise _too_long(request.path(number), n_tokens, engine.info)
        found.append(tokens)
    return tuple(found)


def _too_long(path: str, n_tokens: int, info: ModelInfo, beside: str = "") -> ContextOverflow:
    message = f"{path} has {n_tokens} tokens or more{beside}, where the model takes {info.n_ctx_embed} at once"
    return ContextOverflow(message, param=path)


def _truncated(tokens: tuple[int, ...], info: ModelInfo) -> tuple[int, ...]:
    """As many tokens as the model takes; the last one stays, which ends a text where the vocabulary does that."""
    return tokens if len(tokens) <= info.n_ctx_embed else (*tokens[: info.n_ctx_embed - 1], tokens[-1])
