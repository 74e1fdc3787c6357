"""What one question to llama.cpp costs: a candidate token under a regex's grammar beside the same token under `[^\\x00]*`."""

from __future__ import annotations

from statistics import median

import pytest

from converters.compile import compile_constraint
from converters.constraint import Regex
from tests.oracle import Oracle

pytestmark = pytest.mark.bench

FREE = "root ::= [^\\x00]*"
CASES = {
    "email": (r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}", "first.last+news@mail.example-domain.co.uk"),
    "url": (
        r"https?://([\w-]+\.)+[\w-]+(:\d+)?(/[\w./?%&=-]*)?",
        "https://www.example.com:8080/path/to/page.html?query=1&more=2",
    ),
    "uuid": (
        r"[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
        "123e4567-e89b-12d3-a456-426614174000",
    ),
    "date": (r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", "2024-02-29"),
    "words": (r"[a-z ]{1,500}", "the quick brown fox jumps over the lazy dog " * 11),
    "many words": (r"[a-z ]{1,65536}", "the quick brown fox jumps over the lazy dog " * 11),
}
LIMIT = 1.3


@pytest.mark.parametrize("name", CASES)
def test_a_question_costs_little_more_than_no_constraint(model_oracle: Oracle, name: str) -> None:
    pattern, text = CASES[name]
    gbnf = compile_constraint(Regex(pattern)).gbnf
    ratios = []
    for _ in range(5):
        constrained, free = model_oracle.check_costs(gbnf, text), model_oracle.check_costs(FREE, text)
        assert len(constrained) == len(free)
        ratios.append(median(a / b for a, b in zip(constrained, free, strict=True)))
    print(f"\n{name}: {min(ratios):.2f} times the cost of no constraint")
    assert min(ratios) <= LIMIT
