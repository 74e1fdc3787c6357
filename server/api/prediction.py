"""OpenAI's `prediction`: what the client thinks that the reply will be. It makes a reply quicker, never another one."""

from __future__ import annotations

from server.api.openai_shape import content_text
from server.chat.types import JsonObject
from server.errors import UnsupportedParameter
from server.values import read_object, read_text


def decode_prediction(body: JsonObject) -> str:
    """The predicted text; "" without one. Raises BadRequest naming the field."""
    value = body.get("prediction")
    if value is None:
        return ""
    prediction = read_object(value, "prediction")
    kind = read_text(prediction, "type", "prediction")
    if kind != "content":
        raise UnsupportedParameter(f"prediction.type {kind!r} is not supported: only content is", param="prediction.type")
    return content_text(prediction.get("content"), "prediction.content")
