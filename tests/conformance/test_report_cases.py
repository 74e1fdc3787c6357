"""Chat cases of the bug reports that the project starts from, through HTTP: the real engine and compiler, a tiny model."""

from __future__ import annotations

from typing import Any

import pytest

from server.engine.llama import LlamaBackend
from server.engine.messages import ModelSpec
from tests.conformance.report_cases import CASES, NotServed, Session, cases, judge
from tests.server.chat.test_reasoning import serving
from tests.tiny_models import TinyModel, write_tiny_model

pytestmark = [pytest.mark.conformance, pytest.mark.skipif(not CASES.exists(), reason="the cases aren't here")]
NAMES_ONLY = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}{# <tool_call> #}"
)
"""A template under which sixty tools fit a small context."""


def backend_of(folder: Any, chat_template: str | None) -> LlamaBackend:
    controls = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
    model = TinyModel(controls=controls, n_ctx_train=8192, chat_template=chat_template)
    return LlamaBackend(ModelSpec(str(write_tiny_model(folder / "tiny.gguf", model)), n_ctx=32768, n_threads=1))


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LlamaBackend]:
    templates = {"plain": None, "names": NAMES_ONLY}
    return {name: backend_of(tmp_path_factory.mktemp(name), template) for name, template in templates.items()}


@pytest.mark.parametrize("row", cases(), ids=lambda row: row["id"])
async def test_case(backends: dict[str, LlamaBackend], row: dict[str, Any]) -> None:
    async with serving(backends["names" if row["id"] == "tc-58-tools" else "plain"]) as served:
        try:
            await judge(Session(served.client, 600), row)
        except NotServed as error:
            pytest.skip(f"{error} is not served")
