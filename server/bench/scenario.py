"""What is asked of every server: the requests of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CHARACTER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "email": {"type": "string", "pattern": r"^[a-z]{3,10}@[a-z]{3,10}\.(com|org|net)$"},
        "class": {"enum": ["warrior", "mage", "rogue"]},
    },
    "required": ["name", "age", "email", "class"],
    "additionalProperties": False,
}
_PARTY = {"type": "array", "items": _CHARACTER, "minItems": 4, "maxItems": 4}
_CHANNELS = [f"measurement_channel_{number}_calibrated_value" for number in range(12)]
_READINGS = {
    "type": "object",
    "properties": {name: {"type": "integer", "minimum": 0, "maximum": 9} for name in _CHANNELS},
    "required": _CHANNELS,
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of request. `fields` are the request's own; `is_json` says that a whole reply is a JSON text."""

    about: str
    prompt: str
    max_tokens: int
    fields: Mapping[str, Any]
    is_json: bool = True

    def body(self, client: int, round_number: int) -> dict[str, Any]:
        """The request of client number `client`: clients differ in prompt and seed, rounds in the seed alone."""
        return {
            "messages": [{"role": "user", "content": f"[{client}] {self.prompt}"}],
            "max_tokens": self.max_tokens,
            "temperature": 0.8,
            "seed": 7 + round_number + client,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.fields,
        }


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


SCENARIOS: Mapping[str, Scenario] = {
    "free": Scenario(
        "text without a constraint", "Tell me a long story about a dragon and a lighthouse keeper.", 128, {}, is_json=False
    ),
    "schema": Scenario("a list of four objects with free strings and patterns", "Make four characters.", 400, _schema(_PARTY)),
    "keys": Scenario("twelve long required keys, a digit each", "Report the channels.", 500, _schema(_READINGS)),
    "json": Scenario(
        "any JSON object",
        "Write a JSON object describing a castle, its rooms and its people.",
        128,
        {"response_format": {"type": "json_object"}},
    ),
}
