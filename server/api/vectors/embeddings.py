"""/v1/embeddings: texts or token ids in, vectors out, as numbers or base64."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from server.api.body import read_decoded
from server.api.fields import Integer, ModelFields, String, read_fields
from server.api.inputs import read_inputs
from server.api.interrupt import run_interruptibly
from server.chat.embedding import Embeddings, EmbedRequest, embed, floats
from server.chat.types import JsonObject
from server.json_text import dump_json
from server.values import missing

router = APIRouter()

MAX_INPUTS = 2048
_VECTORS_AT_ONCE = 64  # encoded between two looks at what else the event loop has to do


Encoding: TypeAlias = Literal["float", "base64"]


class EmbeddingFields(ModelFields):
    """The scalar fields of a request; `user` has no effect."""

    dimensions: Annotated[Integer, Field(ge=1)] | None = None
    encoding_format: Encoding = "float"
    user: String | None = None


@router.post("/v1/embeddings")
@router.post("/embeddings", include_in_schema=False)
async def create_embeddings(request: Request) -> Response:
    """Vectors of the inputs, each of length 1."""
    decoded, encoding = await read_decoded(request, decode_request)
    manager = request.app.state.manager
    found = await run_interruptibly(embed(manager, decoded), request.receive, request.app.state.drain)
    return Response(await encode_answer(found, encoding), media_type="application/json")


def decode_request(body: JsonObject) -> tuple[EmbedRequest, Encoding]:
    """The request. Raises BadRequest that names the field."""
    fields = read_fields(EmbeddingFields, body)
    if (value := body.get("input")) is None:
        raise missing("input")
    inputs, is_single = read_inputs(value, "input", MAX_INPUTS)
    request = EmbedRequest(inputs, fields.model, is_single=is_single, n_dimensions=fields.dimensions)
    return request, fields.encoding_format


async def encode_answer(found: Embeddings, encoding: Encoding) -> bytes:
    """The body. Made in pieces: two thousand vectors take a second, in which others want to be served."""
    entries = []
    for number, vector in enumerate(found.vectors):
        entries.append(f'{{"object":"embedding","index":{number},"embedding":{_encode_vector(vector, encoding)}}}')
        if number % _VECTORS_AT_ONCE == _VECTORS_AT_ONCE - 1:
            await asyncio.sleep(0)
    usage = {"prompt_tokens": found.n_prompt_tokens, "total_tokens": found.n_prompt_tokens}
    tail = dump_json({"model": found.model, "usage": usage})[1:]
    return f'{{"object":"list","data":[{",".join(entries)}],{tail}'.encode()


def _encode_vector(vector: bytes, encoding: Encoding) -> str:
    """Nine digits tell any float32."""
    if encoding == "base64":
        return f'"{base64.b64encode(vector).decode("ascii")}"'
    return f"[{','.join([f'{number:.9g}' for number in floats(vector)])}]"
