"""The inputs of public bug reports of comparable servers (`../shared/cases/reports.jsonl`) that are about constraints.

Each is compiled, and its sentences are judged by llama.cpp and by the matcher; "http_400" is a ConversionError here. What needs
a server (prompts, streams, sampling) is tested elsewhere.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from converters.compile import compile_constraint
from converters.constraint import Choice, Constraint, Gbnf, JsonSchema, Lark, Regex
from converters.errors import ConversionError
from converters.grammar.match import Matcher
from tests.oracle import Oracle

CASES = Path(__file__).parents[3] / "shared" / "cases" / "reports.jsonl"
LATER = {
    "g-token-oov": "ids are held against a vocabulary by the engine",
}


def evaluate(text: str) -> str:
    """The value of an expression of string literals, `+` and `*`."""

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        assert isinstance(node, ast.BinOp)
        left, right = value(node.left), value(node.right)
        return left + right if isinstance(node.op, ast.Add) else left * right

    return str(value(ast.parse(text, mode="eval").body))


def constraint_of(request: dict[str, Any]) -> Constraint | None:
    """The constraint of a case, when all that the request says is one constraint."""
    chat = {key: value for key, value in request.get("chat", {}).items() if key not in ("messages", "max_tokens", "stream")}
    match request or None:
        case {"gbnf": text}:
            return Gbnf(text)
        case {"gbnf_expr": text}:
            return Gbnf(evaluate(text))
        case {"regex": pattern}:
            return Regex(pattern)
        case {"lark": text}:
            return Lark(text)
        case {"json_schema": schema}:
            return JsonSchema(schema)
    match chat:
        case {"guided_choice": [*options]} if len(chat) == 1 and all(isinstance(option, str) for option in options):
            return Choice(tuple(options))
        case {"guided_regex": str(pattern)} if len(chat) == 1:
            return Regex(pattern)
        case {"guided_json": schema} if len(chat) == 1 and isinstance(schema, dict):
            return JsonSchema(schema)
        case {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}} if len(chat) == 1:
            return JsonSchema(schema)
    return None


def cases() -> list[Any]:
    if not CASES.exists():
        return []
    found = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    kept = [case for case in found if constraint_of(case["request"]) is not None and case["id"] not in LATER]
    return [pytest.param(case, id=case["id"]) for case in kept]


@pytest.mark.parametrize("case", cases())
def test_report(case: dict[str, Any], oracle: Oracle) -> None:
    constraint = constraint_of(case["request"])
    assert constraint is not None
    outcomes = [outcome.strip() for outcome in case["expect"].split(" or ")]
    try:
        compiled = compile_constraint(constraint)
    except ConversionError as error:
        if not any(outcome.startswith("http_400") for outcome in outcomes):
            pytest.fail(f"refused: {error}")
        return
    assert "http_400" not in outcomes or len(outcomes) > 1, compiled.gbnf[:2000]
    texts = [*case["accept"], *case["reject"], *case.get("reject_policy", ())]
    meant = [True] * len(case["accept"]) + [False] * (len(texts) - len(case["accept"]))
    matcher = Matcher.from_tables(compiled.tables)
    assert dict(zip(texts, [matcher.accepts(text) for text in texts], strict=True)) == dict(zip(texts, meant, strict=True))
    spellable = [text for text in texts if "\0" not in text]
    assert oracle.accepts(compiled.gbnf, spellable) == [matcher.accepts(text) for text in spellable]


def test_the_cases_are_there() -> None:
    if CASES.exists():
        kinds = [type(constraint_of(case.values[0]["request"])).__name__ for case in cases()]
        assert {kind: kinds.count(kind) for kind in ("Gbnf", "Regex", "Lark", "Choice")} == {
            "Gbnf": 20,
            "Regex": 29,
            "Lark": 3,
            "Choice": 4,
        }
        assert kinds.count("JsonSchema") > 70
