# ruff: noqa: E501 (a row is one line)
"""The string formats: rows of accepted and rejected texts, and random texts of each against the judge."""

from __future__ import annotations

import random

import jsonschema
import pytest

from converters import JsonSchema, compile_constraint
from converters.automata import random_word
from converters.grammar.match import Matcher
from converters.jsonschema.formats import FORMATS, format_dfa

ROWS: dict[str, tuple[list[str], list[str]]] = {
    "date": (["2024-02-29", "0001-01-31"], ["2023-02-29", "2024-04-31", "0000-01-01", "2024-3-15"]),
    "time": (["23:59:59Z", "01:02:03.5+01:30"], ["24:00:00Z", "01:02:03", "1:02:03Z"]),
    "date-time": (["2024-02-29T00:00:00Z", "2024-01-01t01:02:03.123z"], ["2024-01-01", "2024-01-01 00:00:00Z"]),
    "duration": (["P1Y2M3D", "PT1H", "P2W", "P1DT5M"], ["P", "PT", "P1Y3D", "1D"]),
    "email": (["a@b", "x.y+z@ex-ample.org", '"a b"@c.d', "a@[127.0.0.1]"], ["a", "a@", "@b", ".a@b", "a@-b.c", "a@b@c"]),
    "idn-email": (["실례@실례.테스트"], ["a"]),
    "hostname": (["localhost", "a-b.example.org", "x" * 63 + ".y"], ["-a", "a-", "a..b", "x" * 64, "a_b", ""]),
    "ipv4": (["127.0.0.1", "255.255.255.255"], ["256.0.0.1", "01.2.3.4", "1.2.3"]),
    "ipv6": (["::", "::1", "1:2:3:4:5:6:7:8", "fe80::1:2", "::ffff:1.2.3.4", "1:2:3:4:5:6:7::"], ["1:2", ":::", "12345::", "1::2::3"]),
    "uuid": (["00ff00ff-ABCD-1234-5678-0123456789ab"], ["00ff00ffabcd12345678 0123456789ab", "00ff00ff-abcd-1234-5678-0123456789"]),
    "uri": (["http://a.b/c?d=e#f", "urn:x:y", "mailto:a@b", "http://[::1]:80/"], ["/a", "a b:c", "http://a b", "", "http://[1]/"]),
    "uri-reference": (["/a?b", "", "#x", "a:b"], ["\\", "a b"]),
    "iri": (["http://é.x/ü"], ["/a", "http://a b"]),
    "json-pointer": (["", "/a~0b/~1"], ["a", "/~2", "/~"]),
    "relative-json-pointer": (["0#", "1/a"], ["01", "/a", ""]),
    "uri-template": (["http://x/{a}{?b,c*}"], ["{", "{}"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    dfa = format_dfa(name)
    accepted, rejected = ROWS[name]
    assert [text for text in accepted if not dfa.accepts(text)] == []
    assert [text for text in rejected if dfa.accepts(text)] == []


SLOW_JUDGES = ("iri", "iri-reference")  # Earley parsers


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.conformance if name in SLOW_JUDGES else ()) for name in FORMATS]
)
def test_random_texts_pass_the_judge(name: str) -> None:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    rng = random.Random(7)
    texts = [random_word(format_dfa(name), rng, length) or "" for length in (3, 10, 40, 200) for _ in range(20)]
    assert [text for text in texts if not checker.conforms(text, name)] == []


def test_unknown_formats_are_annotations() -> None:
    matcher = Matcher.from_tables(compile_constraint(JsonSchema({"type": "string", "format": "int32"})).tables)
    assert matcher.accepts('"x"')


def test_formats_can_be_annotations() -> None:
    constraint = JsonSchema({"type": "string", "format": "date"}, formats="annotation")
    assert Matcher.from_tables(compile_constraint(constraint).tables).accepts('"x"')
