"""JSON as requests carry it: strict parsing with bounds, and exact printing.

Strict: UTF-8, no NaN or Infinity, no repeated keys, no lone surrogates, nesting bounded without recursion. Fractions are
`Decimal`, so that a schema's bounds stay what was written. No knowledge of any field.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from itertools import accumulate
from typing import Any, NoReturn

from converters.constraint import JsonValue
from server.errors import BadRequest
from server.large_json import TooLarge, read_large_json
from server.settings import RequestLimits

LARGE_BYTES = 256 * 1024  # above this a text is read step by step
_MAX_VALUES = RequestLimits().json_values

_STRING = re.compile(rb'"[^"]*"?')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # +1 and -1 as signed bytes
_AT_ONCE = 64 * 1024  # brackets
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class InvalidJson(BadRequest):
    """Not a JSON text that this server takes."""

    default_code = "invalid_json"


def parse_json(
    data: bytes,
    *,
    max_depth: int,
    max_values: int = _MAX_VALUES,
    what: str = "the request body",
    param: str | None = None,
) -> JsonValue:
    """The value of a JSON text. Raises InvalidJson; `what` and `param` name the text there.

    A large text may be read in a thread: others get their turn meanwhile.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidJson(f"{what} is not valid UTF-8 (byte {error.start})", param=param) from None
    is_large = len(data) > min(LARGE_BYTES, 2 * max_values)  # a value and what parts it from the next are two bytes or more
    if not is_large:
        _check_depth(data, max_depth, what, param)
    try:
        value: JsonValue = read_large_json(text, max_depth, max_values) if is_large else _DECODER.decode(text)
    except TooLarge as error:
        if error.limit == "json_depth":
            raise _too_deep(max_depth, what, param) from None
        message = f"{what} has more than {max_values} JSON values (json_values)"
        raise InvalidJson(message, param=param, code="limit_exceeded") from None
    except RecursionError:
        raise _too_deep(max_depth, what, param) from None
    except (ValueError, ArithmeticError) as error:
        raise InvalidJson(f"{what} is not valid JSON: {error}", param=param) from None
    if _SURROGATE_ESCAPE.search(text):
        _check_surrogates(value, what, param)
    return value


def parse_json_text(text: str, *, max_depth: int, max_values: int = _MAX_VALUES, param: str) -> JsonValue:
    """The same for a JSON text inside a request's string field `param`."""
    return parse_json(text.encode("utf-8"), max_depth=max_depth, max_values=max_values, what=param, param=param)


def has_more_values(value: JsonValue, most: int) -> bool:
    """Whether a JSON value has more than `most` values in it: its text has more bytes then, too. Looks no further than that."""
    pending: list[Any] = [value]
    n = 0
    while pending and n <= most:
        item = pending.pop()
        n += 1
        if isinstance(item, Mapping):
            n += len(item)  # the keys
            pending += item.values()
        elif isinstance(item, list | tuple):
            pending += item
    return n + len(pending) > most


def dump_json(value: JsonValue) -> str:
    """Compact JSON text, key order kept, fractions digit for digit: equal text is the same constraint."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except TypeError:
        return _dump(value)


def _dump(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"key {counts.most_common(1)[0][0]!r} is repeated")
    return result


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_unique)


def _check_depth(data: bytes, max_depth: int, what: str, param: str | None) -> None:
    """Bounds the nesting before anything recursive sees the text: a running sum over the brackets outside strings."""
    bare = _STRING.sub(b"", data.replace(b"\\\\", b"").replace(b'\\"', b""))
    steps = memoryview(bare.translate(_STEPS, _NOT_BRACKETS)).cast("b")
    depth = 0
    for begin in range(0, len(steps), _AT_ONCE):  # in pieces, so that other threads run in between
        depths = list(accumulate(steps[begin : begin + _AT_ONCE], initial=depth))
        if max(depths) > max_depth:
            raise _too_deep(max_depth, what, param)
        depth = depths[-1]


def _too_deep(max_depth: int, what: str, param: str | None) -> InvalidJson:
    return InvalidJson(f"{what} is nested more than {max_depth} levels deep (json_depth)", param=param, code="json_too_deep")


def _check_surrogates(value: JsonValue, what: str, param: str | None) -> None:
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += item
            pending += item.values()
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, str) and not _is_encodable(item):
            raise InvalidJson(f"{what} has a lone surrogate escape, which is no character", param=param)


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
