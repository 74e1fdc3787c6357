"""A chat that goes on from the tokens of an earlier one, and the tokens that a later one can go on from. Knows no dialect."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from server.chat.service import Service
from server.chat.types import ChatPrompt, Completed, Event, GenerateRequest, TextDelta
from server.chat.vocabulary import check_tokens
from server.engine.client import EngineClient


async def generate_on(
    service: Service,
    request: GenerateRequest,
    tokens: tuple[int, ...],
    keep: Callable[[tuple[int, ...]], None],
    param: str = "context",
) -> AsyncGenerator[Event, None]:
    """`service.generate` of the request, a chat, behind the conversation that `tokens` spell.

    Before the last event `keep` is told the tokens of the whole: prompt, answer, the turn's end. Raises BadRequest naming
    `param` for tokens that the model doesn't have, and what `generate` does.
    """
    model = await service.manager.engine(request.model)
    engine = model.engine
    texts: list[str] = []
    with model.in_use():
        request = await _behind(request, tokens, engine, param)
        async with aclosing(service.generate_with(model, request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    texts.append(event.text)
                if isinstance(event, Completed):
                    text = await service.prompt_text_with(model, request) + "".join(texts) + engine.info.eos_token
                    text = text.removeprefix(engine.info.bos_token)
                    keep(await engine.tokenize(text, add_special=False, parse_special=True))
                yield event


async def _behind(request: GenerateRequest, tokens: tuple[int, ...], engine: EngineClient, param: str) -> GenerateRequest:
    if not tokens:
        return request
    check_tokens(tokens, engine.info, param)
    prompt = request.prompts[0]
    assert isinstance(prompt, ChatPrompt)
    before = (await engine.detokenize(tokens)).decode("utf-8", "replace")
    return replace(request, prompts=(replace(prompt, before=before),))
