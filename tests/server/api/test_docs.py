"""Every curl example of docs/constraints.md is a request that the server takes, and every field has one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from server.constraints import EXCLUSIVE_FIELDS, GUIDED_FIELDS, LEGACY_TYPES, RESPONSE_FORMATS, STRUCTURED_KINDS
from tests.server.fakes import Served

TEXT = (Path(__file__).parents[3] / "docs" / "constraints.md").read_text("utf-8")
EXAMPLES: list[tuple[str, dict[str, Any]]] = [
    (path, json.loads(body))
    for path, body in re.findall(r"curl http://127\.0\.0\.1:8080(\S+) -d '(\{.*?\n\})'\n```", TEXT, re.DOTALL)
]


def test_every_block_is_read() -> None:
    assert len(EXAMPLES) == TEXT.count("```sh")


@pytest.mark.parametrize(("path", "body"), EXAMPLES, ids=[str(sorted(body)) for _, body in EXAMPLES])
async def test_the_example_is_taken(served: Served, path: str, body: dict[str, Any]) -> None:
    reply = await served.client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    assert served.engine.grammars or path == "/v1/constraints/compile"


def test_every_field_has_an_example() -> None:
    bodies = [body for _, body in EXAMPLES]
    inner = {
        f"{name}.format" for body in bodies for name, value in body.items() if isinstance(value, dict) and "format" in value
    }
    assert {name for body in bodies for name in body} | inner >= {*GUIDED_FIELDS, *EXCLUSIVE_FIELDS}
    legacy = {body["constraint_type"] for body in bodies if "constraint_type" in body}
    assert legacy | {"json"} == set(LEGACY_TYPES)
    formats = {body["response_format"]["type"] for body in bodies if "response_format" in body}
    assert formats | {"text"} == set(RESPONSE_FORMATS)
    kinds = {name for body in bodies for name in body.get("structured_outputs", ())}
    assert kinds >= set(STRUCTURED_KINDS)
