"""Filling a middle: the form that a vocabulary has tokens for, through the APIs that know a suffix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from server.engine.client import LocalClient
from server.engine.llama import LlamaBackend
from server.engine.messages import ModelSpec
from server.infill_form import FORMS, InfillForm, form_of
from server.models.details import read_details
from tests.server.fakes import FakeEngine, Served, serve
from tests.tiny_models import TinyModel, write_tiny_model


@dataclass
class MarkedEngine(FakeEngine):
    """Its vocabulary has the markers, from 900 on."""

    markers: tuple[str, ...] = ()

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        if parse_special and text in self.markers:
            return (900 + self.markers.index(text),)
        plain = await FakeEngine.tokenize(self, text, add_special=add_special, parse_special=parse_special)
        return (899, *plain) if add_special else plain


async def fill(served: Served, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    reply = await served.client.post(path, json={"prompt": "a<b", "suffix": "c", "stream": False, **fields})
    return reply.status_code, reply.json()


@pytest.mark.parametrize("path", ["/v1/completions", "/api/generate"])
@pytest.mark.parametrize("form", FORMS, ids=[form.prefix for form in FORMS])
async def test_every_form(form: InfillForm, path: str) -> None:
    async with serve(MarkedEngine(markers=form.markers)) as served:
        status, answer = await fill(served, path)
        assert (status, "context" in answer) == (200, False)
        before, after = (900, *map(ord, "a<b")), (901, ord("c"))
        parts = (*after, *before) if form.is_suffix_first else (*before, *after)
        assert served.engine.requests[-1].prompt == (899, *parts, *((902,) if form.middle is not None else ()))


@pytest.mark.parametrize("path", ["/v1/completions", "/api/generate"])
async def test_a_model_that_fills_no_middles(served: Served, path: str) -> None:
    status, answer = await fill(served, path)
    assert status == 400
    assert "suffix" in str(answer["error"])
    assert "does not support insert" in str(answer["error"])
    assert (await fill(served, path, suffix=""))[0] == 200
    assert (await fill(served, path, suffix=5))[0] == 400


async def test_what_does_not_go_with_a_suffix() -> None:
    async with serve(MarkedEngine(markers=FORMS[0].markers)) as served:
        for path, fields in (
            ("/v1/completions", {"echo": True}),
            ("/v1/completions", {"prompt": [1, 2]}),
            ("/api/generate", {"system": "S"}),
            ("/api/generate", {"context": [1]}),
        ):
            status, answer = await fill(served, path, **fields)
            assert (status, "suffix" in str(answer["error"])) == (400, True)


async def test_several_prompts_and_a_constraint() -> None:
    async with serve(MarkedEngine(markers=FORMS[0].markers)) as served:
        status, answer = await fill(served, "/v1/completions", prompt=["a", "b"], guided_choice=["Hello"])
        assert (status, len(answer["choices"])) == (200, 2)
        assert all(request.grammar_key for request in served.engine.requests)


async def test_a_real_vocabulary(tmp_path: Path) -> None:
    """Markers that a prompt spells are text, and no markers."""
    form = FORMS[0]
    path = write_tiny_model(tmp_path / "coder.gguf", TinyModel(controls=("<|im_end|>", *form.markers)))
    assert form_of(read_details(path).infill_markers) is form, "the file tells what the model can do"
    assert not read_details(write_tiny_model(tmp_path / "other.gguf", TinyModel())).infill_markers
    client = LocalClient(LlamaBackend(ModelSpec(str(path), n_ctx=256, n_threads=1)))
    await client.start()
    try:
        async with serve(cast(FakeEngine, client)) as served:
            fields = {"prompt": f"the {form.middle} cat", "max_tokens": 4, "options": {"num_predict": 4}}
            counted = [(await fill(served, "/api/generate", **fields))[1]["prompt_eval_count"]]
            counted.append((await fill(served, "/v1/completions", **fields))[1]["usage"]["prompt_tokens"])
            plain = await client.tokenize(f"the {form.middle} cat", add_special=False, parse_special=False)
            assert counted == [len(plain) + 4 + (1 if client.info.add_bos else 0)] * 2
    finally:
        await client.stop()
