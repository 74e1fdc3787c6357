"""What a model may be given without a chat: text, or token ids, read by their path."""

from __future__ import annotations

from converters.constraint import JsonValue
from server.chat.embedding import Input
from server.errors import BadRequest, wrong_type

_WHAT = "a string, a list of strings, token ids, or lists of token ids"


def read_inputs(value: JsonValue, path: str, most: int) -> tuple[tuple[Input, ...], bool]:
    """A string, strings, token ids, or lists of token ids, at most so many; and whether it was a single input.

    Raises BadRequest with the path of what is wrong.
    """
    if isinstance(value, str):
        return (value,), True
    if not isinstance(value, list):
        raise wrong_type(path, _WHAT, value)
    if not value:
        raise BadRequest(f"{path} must not be empty", param=path, code="invalid_value")
    if _is_number(value[0]):
        return (_read_tokens(value, path),), True
    if len(value) > most:
        raise BadRequest(f"{path} may have at most {most} entries", param=path, code="limit_exceeded")
    return tuple(_read_input(entry, f"{path}[{i}]") for i, entry in enumerate(value)), False


def _read_input(value: JsonValue, path: str) -> Input:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(path, "a string or a list of token ids", value)
    if not value:
        raise BadRequest(f"{path} must not be empty", param=path, code="invalid_value")
    return _read_tokens(value, path)


def _read_tokens(values: list[JsonValue], path: str) -> tuple[int, ...]:
    """Token ids; whether the vocabulary has them is for the model to say."""
    return tuple(_read_token(value, f"{path}[{i}]") for i, value in enumerate(values))


def _read_token(value: JsonValue, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(path, "a token id", value)
    if not 0 <= value < 2**31:
        raise BadRequest(f"{path}: there is no token {value}", param=path, code="invalid_value")
    return value


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
