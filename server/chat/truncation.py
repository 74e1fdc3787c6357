"""Prompts that are too long for the context lose their oldest turns, where a request allows it. Knows no dialect."""

from __future__ import annotations

from dataclasses import replace

from server.chat.service import Service
from server.chat.types import ChatPrompt, GenerateRequest, Message


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
        return await service.count_prompt_tokens(asked) <= n_free

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
