"""The official JSON Schema test suite: which groups come out right, per draft; committed, and may only rise.

A group is right when it compiles and every test of it comes out right, or when it has no valid instance and is refused as
Unsatisfiable. No invalid instance may ever be accepted; a valid one is rejected only for the order of its keys or, in draft 4,
for an integer written with a fraction; those are listed in the results.
`python -m tests.conformance.test_json_schema_suite` writes the results anew.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from converters import ConversionError, JsonSchema, Unsatisfiable, compile_constraint
from converters.grammar.match import Matcher

RESULTS = Path(__file__).with_name("json_schema_suite.json")
SUITE = Path(__file__).parents[3] / "shared" / "data" / "json-schema-test-suite.jsonl.gz"
DRAFTS = {
    "draft4": "draft4",
    "draft6": "draft6",
    "draft7": "draft7",
    "draft2019-09": "2019-09",
    "draft2020-12": "2020-12",
}


@dataclass
class Outcome:
    """What came of one draft's groups."""

    total: int = 0
    right: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    accepted_invalid: list[str] = field(default_factory=list)
    rejected_valid: list[str] = field(default_factory=list)


def groups() -> Iterator[dict[str, Any]]:
    """Every group that isn't optional."""
    with gzip.open(SUITE, "rt", encoding="utf-8") as lines:
        for line in lines:
            group = json.loads(line)
            if not group["file"].startswith("optional"):
                yield group


def judge(group: dict[str, Any], outcome: Outcome) -> None:
    """Compile one group and run its tests."""
    outcome.total += 1
    name = f"{group['file']}: {group['description']}"
    formats = "annotation" if group["file"] == "format" else "assert"
    try:
        constraint = JsonSchema(group["schema"], default_draft=DRAFTS[group["draft"]], formats=formats)  # type: ignore[arg-type]
        matcher = Matcher.from_tables(compile_constraint(constraint).tables)
    except Unsatisfiable:
        valid = [test["description"] for test in group["tests"] if test["valid"]]
        outcome.rejected_valid += [f"{name}: {test}" for test in valid]
        outcome.right += not valid
        return
    except ConversionError as error:
        outcome.refused[f"{group['file']}: {error}"] += 1
        return
    wrong = [test for test in group["tests"] if matcher.accepts(json.dumps(test["data"])) != test["valid"]]
    for test in wrong:
        (outcome.rejected_valid if test["valid"] else outcome.accepted_invalid).append(f"{name}: {test['description']}")
    outcome.right += not wrong


def run() -> dict[str, Outcome]:
    """The outcome of every draft."""
    outcomes = {draft: Outcome() for draft in DRAFTS}
    for group in groups():
        judge(group, outcomes[group["draft"]])
    return outcomes


def as_json(outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """The results file."""
    return {
        draft: {
            "right": outcome.right,
            "total": outcome.total,
            "rejected_valid": sorted(outcome.rejected_valid),
            "refused": dict(sorted(outcome.refused.items())),
        }
        for draft, outcome in outcomes.items()
    }


@pytest.mark.conformance
@pytest.mark.skipif(not SUITE.exists(), reason="the suite is not part of the repository")
def test_official_suite_only_gets_better() -> None:
    committed = json.loads(RESULTS.read_text(encoding="utf-8"))
    for draft, outcome in run().items():
        assert outcome.accepted_invalid == []
        assert set(outcome.rejected_valid) <= set(committed[draft]["rejected_valid"])
        assert outcome.right >= committed[draft]["right"], f"{draft}: {outcome.right} of {outcome.total}"
        unnamed = [refusal for refusal in outcome.refused if "(at /" not in refusal]
        assert unnamed == []


if __name__ == "__main__":
    RESULTS.write_text(json.dumps(as_json(run()), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
