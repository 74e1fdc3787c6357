"""Regular expressions against Python's `re`, judged by llama.cpp over the default model's vocabulary, and by the matcher.

The patterns: every `pattern` and patternProperties key of a corpus of real schemas, the hand-made table, and generated ones.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from converters.errors import LimitExceeded, Unsatisfiable, UnsupportedFeature
from converters.grammar.expr import RuleBook
from converters.grammar.gbnf import print_prepared
from converters.grammar.match import Matcher, build_tables
from converters.grammar.passes import prepare, printable
from converters.limits import Budget
from converters.regex import lower_regex, regex_dfa
from converters.regex.edges import Mode
from tests.converters.regex.generate import patterns as generated
from tests.converters.regex.judge import matches, near
from tests.converters.regex.reference import reference
from tests.converters.regex.test_syntax import MATCH, SEARCH
from tests.oracle import Oracle

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1200)]

CORPUS = Path(__file__).parents[3] / "shared" / "data" / "maskbench-dev.jsonl.gz"
MODES: tuple[Mode, ...] = ("search", "match")
MAX_REFUSED = 2  # a back-reference, and one to spare


def corpus_patterns() -> list[str]:
    """Every pattern of the corpus that Python's `re` compiles."""
    found: dict[str, None] = {}
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        for line in lines:
            found.update(dict.fromkeys(_patterns(json.loads(line))))
    return [pattern for pattern in found if _compiles(pattern)]


def _patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        if isinstance(schema.get("patternProperties"), dict):
            yield from schema["patternProperties"]
        for value in schema.values():
            yield from _patterns(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _patterns(value)


def _compiles(pattern: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except re.error:
        return False
    return True


@dataclass(frozen=True, repr=False)
class Judges:
    """llama.cpp, and the bytes for which its vocabulary has tokens (the default model's lacks some)."""

    oracle: Oracle
    single_bytes: frozenset[int]

    def can_spell(self, text: str) -> bool:
        """Can the vocabulary spell `text`, whatever the merges?"""
        return self.single_bytes.issuperset(text.encode()) and "\0" not in text


@pytest.fixture(scope="module")
def judges(model_oracle: Oracle) -> Judges:
    """The default model's vocabulary as judge."""
    return Judges(model_oracle, frozenset(piece[0] for piece in model_oracle.token_pieces() if len(piece) == 1))


def disagreements(pattern: str, mode: Mode, judges: Judges) -> list[tuple[str, str, str, bool]]:
    """Texts about which `re` differs from llama.cpp or from the matcher; raises ConversionError for a refused pattern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge = reference(pattern)
    texts = [text for text in near(regex_dfa(pattern, mode, Budget()), random.Random(pattern), 26) if judges.can_spell(text)]
    wanted = [matches(judge, mode, text) for text in texts]
    book = RuleBook()
    prepared = prepare(book.build(lower_regex(pattern, mode, book, Budget())), Budget())
    by_llama = judges.oracle.accepts(print_prepared(printable(prepared)), texts)
    matcher = Matcher.from_tables(build_tables(prepared))
    return [
        (mode, pattern, text, right)
        for text, right, llama in zip(texts, wanted, by_llama, strict=True)
        if llama != right or matcher.accepts(text) != right
    ]


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not here")
@pytest.mark.parametrize("mode", MODES)
def test_corpus(mode: Mode, judges: Judges) -> None:
    found = corpus_patterns()
    refused: list[str] = []
    wrong = [difference for pattern in found for difference in or_refused(pattern, mode, judges, refused)]
    assert wrong == []
    assert len(refused) <= MAX_REFUSED, refused
    assert len(found) >= 2000


def or_refused(pattern: str, mode: Mode, judges: Judges, refused: list[str]) -> list[tuple[str, str, str, bool]]:
    """The disagreements; for a pattern that is refused none, but a note. No words at all is right if `re` finds none."""
    try:
        return disagreements(pattern, mode, judges)
    except Unsatisfiable:
        return [] if regex_dfa(pattern, mode, Budget()).is_empty() else [(mode, pattern, "", False)]
    except (UnsupportedFeature, LimitExceeded) as error:
        refused.append(f"{pattern}: {error}")
        return []


def test_hand_made_table(judges: Judges) -> None:
    wrong: list[tuple[str, str, str, bool]] = []
    for mode, table in (("match", MATCH), ("search", SEARCH)):
        for pattern, accepted, rejected in table:
            book = RuleBook()
            mode_: Mode = "match" if mode == "match" else "search"
            try:
                prepared = prepare(book.build(lower_regex(pattern, mode_, book, Budget())), Budget())
            except Unsatisfiable:
                assert not accepted
                continue
            texts = [text for text in accepted + rejected if judges.can_spell(text)]
            answers = judges.oracle.accepts(print_prepared(printable(prepared)), texts)
            wrong += [(mode, pattern, t, t in accepted) for t, a in zip(texts, answers, strict=True) if a != (t in accepted)]
    assert wrong == []


@given(generated.filter(_compiles), st.sampled_from(MODES))
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate], derandomize=True)
def test_generated(judges: Judges, pattern: str, mode: Mode) -> None:
    refused: list[str] = []
    assert or_refused(pattern, mode, judges, refused) == []
    assert refused == []
