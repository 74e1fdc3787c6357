"""/v1/completions, the legacy shape: decode_request, Encoder, encode_completion."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from typing_extensions import assert_never

from server.api.fields import FieldMap, read_fields
from server.api.inputs import read_inputs
from server.api.openai.wire import CompletionFields
from server.api.openai_shape import DONE, Envelope, encode_usage, error_frame
from server.api.respond import Answer
from server.api.sse import COMMENT, frame
from server.chat import types
from server.chat.fold import keep_best
from server.constraints import merge_extra_body, read_constraint
from server.errors import BadRequest, ServerError
from server.settings import RequestLimits
from server.values import missing

MAX_PROMPTS = 2048


def decode_request(body: types.JsonObject, limits: RequestLimits) -> tuple[types.GenerateRequest, CompletionFields]:
    """The internal request and the wire's fields. Raises BadRequest naming the field."""
    fields = read_fields(CompletionFields, body)
    best_of = _best_of(fields)
    is_ranked = best_of > (fields.n or 1)
    request = types.GenerateRequest(
        prompts=_prompts(merge_extra_body(body)),
        model=fields.model,
        n=best_of,
        sampling=fields.sampling(),
        stop=fields.stop or (),
        on_length=fields.on_length or "complete",
        max_tokens=fields.max_tokens,
        constraint=read_constraint(body, limits),
        logprobs=0 if fields.logprobs is None and is_ranked else fields.logprobs,
        echo=bool(fields.echo),
        suffix=fields.suffix or None,
    )
    if fields.max_tokens == 0 and not fields.echo:
        raise BadRequest("max_tokens 0 makes sense only with echo", param="max_tokens")
    return request, fields


def _best_of(fields: CompletionFields) -> int:
    n = fields.n or 1
    best_of = n if fields.best_of is None else fields.best_of
    if best_of < n:
        raise BadRequest(f"best_of must be at least n ({n})", param="best_of")
    if best_of > n and fields.is_stream:
        raise BadRequest("best_of above n can't be streamed", param="best_of")
    return best_of


def _prompts(fields: FieldMap) -> tuple[types.Prompt, ...]:
    """A string, strings, token ids, or lists of token ids."""
    if "prompt" not in fields:
        raise missing("prompt")
    path, value = fields["prompt"]
    inputs, _ = read_inputs(value, path, MAX_PROMPTS)
    return tuple(types.TextPrompt(entry) if isinstance(entry, str) else types.TokenPrompt(entry) for entry in inputs)


def answer(request: types.GenerateRequest, fields: CompletionFields) -> Answer:
    """How to answer a request with these fields."""
    has_logprobs = fields.logprobs is not None
    stream = Encoder(fields.wants_usage, has_logprobs) if fields.is_stream else None
    return Answer(stream, partial(_encode_kept, request=request, n=fields.n or 1, has_logprobs=has_logprobs))


def _encode_kept(completion: types.Completion, request: types.GenerateRequest, n: int, has_logprobs: bool) -> dict[str, Any]:
    kept = keep_best(completion, len(request.prompts), n) if request.n > n else completion
    return encode_completion(kept, has_logprobs)


@dataclass(slots=True)
class Encoder:
    """Events -> chunks: text as it comes, a finish chunk per choice, the usage chunk, [DONE]. No role chunk here."""

    wants_usage: bool = False
    has_logprobs: bool = False
    envelope: Envelope = field(default_factory=lambda: Envelope("cmpl", "text_completion"))
    media_type: str = "text/event-stream"
    heartbeat: bytes = COMMENT
    _model: str = ""
    _places: dict[int, _Place] = field(default_factory=dict)

    def encode(self, event: types.Event) -> bytes:
        """The frames of one event."""
        match event:
            case types.Started(model=model):
                self._model = model
                return b""
            case types.PromptEcho(index=index, text=text):
                place = self._places[index] = _Place()
                logprobs = _encode_echo(event, place) if self.has_logprobs else None
                return self._chunk(index, text, logprobs)
            case types.TextDelta(index=index, text=text, logprobs=entries):
                if not text and not entries:
                    return b""
                place = self._places.setdefault(index, _Place())
                return self._chunk(index, text, _encode_logprobs(entries, place) if self.has_logprobs else None)
            case types.ReasoningDelta() | types.CallStarted() | types.ArgumentsDelta():
                return b""  # no chat, so none of these
            case types.ChoiceCompleted(index=index, reason=reason):
                return self._chunk(index, "", finish_reason=reason.value)
            case types.Completed(usage=usage):
                last = frame(self.envelope.wrap(self._model, [], encode_usage(usage))) if self.wants_usage else b""
                return last + DONE
            case _:
                assert_never(event)

    def encode_error(self, error: ServerError) -> bytes:
        """The stream's last event."""
        return error_frame(error)

    def _chunk(self, index: int, text: str, logprobs: dict[str, Any] | None = None, finish_reason: str | None = None) -> bytes:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
        return frame(self.envelope.wrap(self._model, [choice]))


def encode_completion(completion: types.Completion, has_logprobs: bool = False) -> dict[str, Any]:
    """A whole answer."""
    choices = [_choice(entry, has_logprobs) for entry in completion.choices]
    return Envelope("cmpl", "text_completion").wrap(completion.model, choices, encode_usage(completion.usage))


def _choice(entry: types.Answer, has_logprobs: bool) -> dict[str, Any]:
    return {
        "index": entry.index,
        "text": (entry.echo.text if entry.echo is not None else "") + entry.text,
        "logprobs": _all_logprobs(entry) if has_logprobs else None,
        "finish_reason": entry.reason.value,
    }


# ---- logprobs in the legacy shape: parallel lists, one entry a token


@dataclass(slots=True)
class _Place:
    """Where in a choice's text the next token begins, in characters; half a character belongs to the token that ends it."""

    offset: int = 0
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))

    def take(self, token: bytes) -> int:
        """The token's offset; the place is behind it then."""
        offset = self.offset
        self.offset += len(self.decoder.decode(token))
        return offset


def _all_logprobs(entry: types.Answer) -> dict[str, Any]:
    place = _Place()
    echo = _encode_echo(entry.echo, place) if entry.echo is not None else {}
    own = _encode_logprobs(entry.logprobs, place)
    return {name: [*echo.get(name, ()), *values] for name, values in own.items()}


def _encode_echo(echo: types.PromptEcho, place: _Place) -> dict[str, Any]:
    """The prompt's tokens; the first has no value. The answer's tokens begin where its text ends."""
    first = [] if echo.first_token is None else [(echo.first_token, None, None)]
    encoded = _encode_tokens([*first, *map(_columns, echo.logprobs)], place)
    place.offset = len(echo.text)
    return encoded


def _encode_logprobs(entries: Sequence[types.TokenLogprobs], place: _Place) -> dict[str, Any]:
    return _encode_tokens(list(map(_columns, entries)), place)


_Columns: TypeAlias = tuple[bytes, float | None, dict[str, float] | None]


def _columns(entry: types.TokenLogprobs) -> _Columns:
    return entry.chosen.bytes, entry.chosen.logprob, _top(entry)


def _encode_tokens(columns: Sequence[_Columns], place: _Place) -> dict[str, Any]:
    return {
        "tokens": [token.decode("utf-8", "replace") for token, _, _ in columns],
        "token_logprobs": [value for _, value, _ in columns],
        "top_logprobs": [top for _, _, top in columns],
        "text_offset": [place.take(token) for token, _, _ in columns],
    }


def _top(entry: types.TokenLogprobs) -> dict[str, float]:
    """The alternatives by text, with the chosen token among them, as OpenAI has it."""
    alternatives = {other.bytes.decode("utf-8", "replace"): other.logprob for other in reversed(entry.top)}
    best_first = dict(reversed(alternatives.items()))
    best_first.setdefault(entry.chosen.bytes.decode("utf-8", "replace"), entry.chosen.logprob)
    return best_first
