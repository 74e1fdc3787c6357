"""/v1/rerank, as Jina, Cohere and llama.cpp's server have it: documents ordered by how well they answer a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from converters.constraint import JsonValue
from server.api.body import read_decoded
from server.api.fields import Boolean, Integer, ModelFields, String, read_fields
from server.api.interrupt import run_interruptibly
from server.api.respond import json_response
from server.chat.embedding import Ranking, RankRequest, rank
from server.chat.types import JsonObject
from server.errors import BadRequest, wrong_type
from server.values import missing

router = APIRouter()

MAX_DOCUMENTS = 2048


class RankFields(ModelFields):
    """The scalar fields of a request."""

    query: String | None = None
    top_n: Annotated[Integer, Field(ge=1)] | None = None
    return_documents: Boolean | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """How the answer is wanted; `top_n` None: all documents."""

    documents: tuple[str, ...]
    top_n: int | None = None
    returns_documents: bool = False


@router.post("/v1/rerank")
@router.post("/rerank", include_in_schema=False)
@router.post("/v1/reranking", include_in_schema=False)
@router.post("/reranking", include_in_schema=False)
async def rerank(request: Request) -> Response:
    """{"query", "documents"} → {"results": [{"index", "relevance_score"}]}, the best first."""
    decoded, wanted = await read_decoded(request, decode_request)
    state = request.app.state
    ranking = await run_interruptibly(rank(state.manager, decoded), request.receive, state.drain)
    return json_response(encode_answer(ranking, wanted))


def decode_request(body: JsonObject) -> tuple[RankRequest, Wanted]:
    """The request. Raises BadRequest that names the field."""
    fields = read_fields(RankFields, body)
    if fields.query is None:
        raise missing("query")
    documents = _documents(body.get("documents"))
    wanted = Wanted(documents, fields.top_n, bool(fields.return_documents))
    return RankRequest(fields.query, documents, fields.model), wanted


def _documents(value: JsonValue) -> tuple[str, ...]:
    if value is None:
        raise missing("documents")
    if not isinstance(value, list):
        raise wrong_type("documents", "a list of strings", value)
    if not 1 <= len(value) <= MAX_DOCUMENTS:
        message = f"documents must have 1 to {MAX_DOCUMENTS} entries, not {len(value)}"
        raise BadRequest(message, param="documents", code="invalid_value")
    return tuple(_document(entry, f"documents[{i}]") for i, entry in enumerate(value))


def _document(value: JsonValue, path: str) -> str:
    """A text, or an object that has one."""
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise wrong_type(path, 'a string or {"text": …}', value)
    return text


def encode_answer(ranking: Ranking, wanted: Wanted) -> dict[str, Any]:
    """The body; of two documents with one score the earlier comes first."""
    order = sorted(range(len(ranking.scores)), key=lambda index: -ranking.scores[index])
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": ranking.scores[index]} for index in order[: wanted.top_n]
    ]
    if wanted.returns_documents:
        results = [{**result, "document": {"text": wanted.documents[result["index"]]}} for result in results]
    usage = {"prompt_tokens": ranking.n_prompt_tokens, "total_tokens": ranking.n_prompt_tokens}
    return {"object": "list", "model": ranking.model, "results": results, "usage": usage}
