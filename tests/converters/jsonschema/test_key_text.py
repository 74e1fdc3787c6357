"""Keys of open objects: a declared key has its own schema, every other key, however alike, the additional one."""

from __future__ import annotations

import json
import random
from itertools import product
from typing import Any

import pytest

from converters import JsonSchema, compile_constraint
from converters.grammar.match import Matcher

ALPHABET = ("a", "b", "c", "d", "é", '"')
WORDS = ["".join(letters) for n in range(4) for letters in product(ALPHABET, repeat=n)]
PLAIN = [word for word in WORDS if word.isascii() and '"' not in word]


def matcher(declared: list[str], required: list[str]) -> Matcher:
    """Strings under the declared keys, integers under all others."""
    properties = {key: {"type": "string"} for key in declared}
    others = {"type": "integer"}
    schema: dict[str, Any] = {
        "type": "object", "properties": properties, "additionalProperties": others, "required": required,
    }  # fmt: skip
    return Matcher.from_tables(compile_constraint(JsonSchema(schema)).tables)


def draw(seed: int) -> list[str]:
    rng = random.Random(seed)
    return rng.sample(PLAIN, rng.randint(1, 14))


@pytest.mark.parametrize("seed", range(8))
def test_every_key_is_told_apart(seed: int) -> None:
    declared = draw(seed)
    judged = matcher(declared, [])
    for word in WORDS:
        for ascii_only in (False, True):
            key = json.dumps(word, ensure_ascii=ascii_only)
            assert judged.accepts(f'{{{key}: "x"}}') == (word in declared), word
            assert judged.accepts(f"{{{key}: 1}}") == (word not in declared), word


@pytest.mark.parametrize("seed", range(8))
def test_any_choice_of_declared_keys_in_order_and_then_others(seed: int) -> None:
    declared = draw(seed + 100)
    rng = random.Random(seed)
    required = rng.sample(declared, len(declared) // 4)
    judged = matcher(declared, required)
    others = [word for word in WORDS if word not in declared]
    for _ in range(40):
        chosen = [key for key in declared if key in required or rng.random() < 0.5]
        value: dict[str, object] = {**dict.fromkeys(chosen, "x"), **dict.fromkeys(rng.sample(others, rng.randint(0, 2)), 1)}
        assert judged.accepts(json.dumps(value)), value
        without = [key for key in value if key not in required[:1]]
        assert judged.accepts(json.dumps({key: value[key] for key in without})) == (not required)
        if len(chosen) > 1:
            swapped = [chosen[1], chosen[0], *chosen[2:]]
            assert not judged.accepts(json.dumps({key: value[key] for key in swapped}))
            again = json.dumps(dict.fromkeys(chosen, "x"))[:-1] + f', {json.dumps(chosen[0])}: "x"}}'
            assert not judged.accepts(again)
