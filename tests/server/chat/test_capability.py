"""What models are said to be able to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from server.chat.capability import capabilities
from server.infill_form import FORMS, InfillForm
from server.model_status import ModelStatus
from tests.server.fakes import DETAILS

HERMES = "{% if tools %}<tool_call>{% endif %}<|im_start|>"
UNKNOWN = "{{ tools }}<|call_a_tool|>"


@pytest.mark.parametrize(
    ("metadata", "line", "expected"),
    [
        ({"tokenizer.chat_template": HERMES}, {}, ("completion", "tools")),
        ({"tokenizer.chat_template": HERMES + "{{ enable_thinking }}"}, {}, ("completion", "tools", "thinking")),
        ({"tokenizer.chat_template": HERMES + "<think></think>"}, {}, ("completion", "tools", "thinking")),
        ({"tokenizer.ggml.fim_pre_token_id": 5}, {}, ("completion", "tools")),
        ({"tokenizer.chat_template": UNKNOWN}, {}, ("completion",)),
        ({"tokenizer.chat_template": UNKNOWN}, {"codec": "hermes"}, ("completion", "tools")),
        ({"tokenizer.chat_template": UNKNOWN}, {"template": "chatml"}, ("completion", "tools")),
        ({"llama.pooling_type": 3, "tokenizer.chat_template": UNKNOWN}, {}, ("completion", "embedding")),
        ({"llama.attention.causal": False, "llama.pooling_type": 1}, {}, ("embedding",)),
        ({"llama.attention.causal": False, "llama.pooling_type": 4}, {}, ("rerank",)),
        ({"tokenizer.chat_template": HERMES}, {"is_for_embeddings": True}, ("embedding",)),
    ],
)
def test_capabilities(metadata: dict[str, Any], line: dict[str, Any], expected: tuple[str, ...]) -> None:
    details = replace(DETAILS, metadata={**DETAILS.metadata, **metadata})
    assert capabilities(ModelStatus("m", "m.gguf", "ready", details, **line)) == expected


@pytest.mark.parametrize("form", FORMS, ids=[form.prefix for form in FORMS])
def test_what_fills_middles_is_said_to(form: InfillForm) -> None:
    for markers, expected in ((form.markers, True), (form.markers[1:], False)):
        details = replace(DETAILS, infill_markers=frozenset(markers))
        assert ("insert" in capabilities(ModelStatus("m", "m.gguf", "ready", details))) == expected


def test_nothing_is_known_of_a_model_that_is_not_here() -> None:
    assert capabilities(ModelStatus("m", "hf:a/b", "stopped")) == ()
