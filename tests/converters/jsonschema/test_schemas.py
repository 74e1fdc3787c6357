"""Generated schemas: a generated value is accepted exactly when the judge calls it valid, and random sentences are valid.

Objects are written with their keys in the schema's order, which is the one freedom that the grammar takes.
"""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from converters import ConversionError, JsonSchema, compile_constraint
from converters.grammar.match import Matcher
from tests.conformance.schema_judge import Judge
from tests.draws import draws

KEYS = ("a", "b", "ab")
scalars = st.sampled_from([None, True, 0, 1, 5, -3, 1.5, "", "a", "ab", "b1"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)
_leaves = st.sampled_from(
    [
        True,
        {},
        {"type": "string"},
        {"type": "integer"},
        {"type": ["null", "boolean"]},
        {"type": "number", "minimum": 1},
        {"maximum": 3},
        {"multipleOf": 1.5},
        {"type": "string", "minLength": 1},
        {"maxLength": 1},
        {"pattern": "^a"},
        {"enum": ["a", 1, None, [1]]},
        {"const": {"a": 1}},
        {"required": ["a"]},
        {"type": "object", "required": ["b"]},
        {"maxProperties": 1},
        {"minProperties": 1},
        {"dependentRequired": {"a": ["b"]}},
        {"minItems": 1, "type": "array"},
        {"maxItems": 2},
    ]
)


def _composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pair = st.lists(inner, min_size=1, max_size=2)
    keyed = st.dictionaries(st.sampled_from(KEYS), inner, min_size=1, max_size=2)
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("object"), "properties": keyed}),
        st.fixed_dictionaries({"properties": keyed, "additionalProperties": inner | st.just(False)}),
        st.fixed_dictionaries({"patternProperties": st.fixed_dictionaries({"^a": inner})}),
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"prefixItems": pair, "items": inner | st.just(False)}),
        st.fixed_dictionaries({"contains": inner}),
        st.fixed_dictionaries({"allOf": pair}),
        st.fixed_dictionaries({"anyOf": pair}),
        st.fixed_dictionaries({"oneOf": pair}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"if": inner, "then": inner, "else": inner}),
        st.fixed_dictionaries({"dependentSchemas": st.fixed_dictionaries({"a": inner})}),
        st.builds(lambda a, b: {**a, **b}, *[inner.map(lambda s: s if isinstance(s, dict) else {})] * 2),
        st.fixed_dictionaries({"properties": keyed, "anyOf": pair, "unevaluatedProperties": inner}),
    )


schemas = st.recursive(_leaves, _composed, max_leaves=5)


def orders(value: Any) -> list[str]:
    """The texts of a value with its objects' keys in every order (they are few)."""
    if isinstance(value, list):
        out = [""]
        for i, item in enumerate(value):
            out = [text + (", " if i else "") + inner for text in out for inner in orders(item)]
        return [f"[{text}]" for text in out]
    if isinstance(value, dict):
        texts = [""] if not value else []
        for key in value:
            rest = {k: v for k, v in value.items() if k != key}
            for first in orders(value[key]):
                more = [f", {others[1:-1]}" if rest else "" for others in orders(rest)]
                texts += [f"{json.dumps(key)}: {first}{others}" for others in more]
        return [f"{{{text}}}" for text in texts]
    return [json.dumps(value)]


@draws(15, 60)
def test_values_and_sentences_agree_with_the_judge(n_draws: int) -> None:
    @settings(max_examples=n_draws, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(schemas, st.lists(values, min_size=4, max_size=8), st.integers(0, 2**32))
    def agree(schema: Any, drawn: list[Any], seed: int) -> None:
        judge = Judge(schema)
        try:
            matcher = Matcher.from_tables(compile_constraint(JsonSchema(schema)).tables)
        except ConversionError as error:
            if type(error).__name__ == "Unsatisfiable":
                assert [value for value in drawn if not judge.errors(json.dumps(value))] == []
            return
        for value in drawn:
            valid = not judge.errors(json.dumps(value))
            accepted = [text for text in orders(value) if matcher.accepts(text)]
            assert bool(accepted) == valid, (schema, value)
        rng = random.Random(seed)
        for _ in range(5):
            sentence = matcher.random_sentence(rng, 60)
            assert judge.errors(sentence) == [], (schema, sentence)

    agree()
