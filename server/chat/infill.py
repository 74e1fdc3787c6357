"""Filling a middle: a text before and one after, in the form that a model's vocabulary has tokens for. Knows no dialect."""

from __future__ import annotations

from dataclasses import replace

from server.chat.model import LoadedModel
from server.chat.types import GenerateRequest, TextPrompt, TokenPrompt
from server.engine.client import EngineClient
from server.errors import BadRequest, UnsupportedParameter
from server.infill_form import FORMS, InfillForm


async def with_suffix(request: GenerateRequest, model: LoadedModel) -> GenerateRequest:
    """The request, whose prompts are texts, with prompts of tokens that ask for what stands between each and the suffix.

    What the texts spell is never read as a special token. Raises UnsupportedParameter for a model that fills no middles.
    """
    suffix = request.suffix
    if not suffix:
        return request
    if request.echo:
        raise BadRequest("suffix and echo can't both be set", param="suffix")
    form = await _form_of(model.engine)
    if form is None:
        message = f"suffix: model {model.name} does not support insert: its vocabulary has no tokens for filling a middle"
        raise UnsupportedParameter(message, param="suffix")
    prompts = []
    for prompt in request.prompts:
        if not isinstance(prompt, TextPrompt):
            raise BadRequest(f"suffix needs a {request.param} of text", param="suffix")
        prompts.append(TokenPrompt(await _tokens(prompt.text, suffix, form, model.engine)))
    return replace(request, prompts=tuple(prompts), suffix=None)


async def _form_of(engine: EngineClient) -> InfillForm | None:
    for form in FORMS:
        if all([await _is_token(marker, engine) for marker in form.markers]):
            return form
    return None


async def _is_token(marker: str, engine: EngineClient) -> bool:
    special = await engine.tokenize(marker, add_special=False, parse_special=True)
    return len(special) == 1 and special != await engine.tokenize(marker, add_special=False, parse_special=False)


async def _tokens(before: str, after: str, form: InfillForm, engine: EngineClient) -> tuple[int, ...]:
    async def marked(marker: str, text: str) -> tuple[int, ...]:
        plain = await engine.tokenize(text, add_special=False, parse_special=False) if text else ()
        return (*await engine.tokenize(marker, add_special=False, parse_special=True), *plain)

    begin = await engine.tokenize("", add_special=True, parse_special=True)
    parts = [await marked(form.prefix, before), await marked(form.suffix, after)]
    if form.is_suffix_first:
        parts.reverse()
    end = await marked(form.middle, "") if form.middle is not None else ()
    return (*begin, *parts[0], *parts[1], *end)
