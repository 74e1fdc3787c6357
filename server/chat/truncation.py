"""Prompts that are too long for the context lose their oldest turns, where a request allows it. Knows no dialect."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from server.chat.service import Service
from server.chat.types import ChatPrompt, Event, GenerateRequest, Message
from server.errors import ContextOverflow


async def fit_to_context(service: Service, request: GenerateRequest) -> GenerateRequest:
    """The request without as many of its oldest turns as have to go, so that prompt and max_tokens fit.

    Instructions at the start stay, and so does the last turn, whatever its length. Without max_tokens a quarter of the context
    is left for the answer.
    """
    prompt = request.prompts[0]
    assert isinstance(prompt, ChatPrompt)
    n_ctx = (await service.manager.engine(request.model)).engine.info.n_ctx_slot
    n_free = n_ctx - (n_ctx // 4 if request.max_tokens is None else request.max_tokens)

    async def fits(asked: GenerateRequest) -> bool:
        return await service.count_prompt_tokens(asked, most=n_free) <= n_free

    if await fits(request):
        return request
    starts = _starts(prompt.messages)
    low, high = 0, len(starts) - 1  # the answer is among starts[low:high + 1]; the last one counts as fitting
    while low < high:
        middle = (low + high) // 2
        if await fits(_from(starts[middle], request, prompt)):
            high = middle
        else:
            low = middle + 1
    return _from(starts[low], request, prompt) if starts else request


async def generate_fitted(service: Service, request: GenerateRequest) -> AsyncGenerator[Event, None]:
    """`service.generate`; where the prompt, a chat, is longer than the context, of the request without its oldest turns."""
    try:
        async with aclosing(service.generate(request)) as events:
            async for event in events:
                yield event
        return
    except ContextOverflow:  # raised before the first event
        fitted = await fit_to_context(service, replace(request, max_tokens=None))
        if fitted.prompts == request.prompts:
            raise
    async with aclosing(service.generate(replace(request, prompts=fitted.prompts))) as events:
        async for event in events:
            yield event


def _n_leading(messages: tuple[Message, ...]) -> int:
    """System messages that stand before every turn."""
    return next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))


def _starts(messages: tuple[Message, ...]) -> list[int]:
    """Where turns after the first begin: at the user's messages."""
    users = [i for i, message in enumerate(messages) if message.role == "user"]
    return [i for i in users if i > _n_leading(messages)]


def _from(start: int, request: GenerateRequest, prompt: ChatPrompt) -> GenerateRequest:
    kept = prompt.messages[: _n_leading(prompt.messages)] + prompt.messages[start:]
    return replace(request, prompts=(replace(prompt, messages=kept),))
