"""A bug in what makes requests ready is told to who asked, and to the log: nobody waits for ever, or hears something else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from server.engine.backend import Grammar
from server.engine.client import LocalClient
from server.engine.messages import EngineRequest, Finished
from server.errors import ConstraintRejected, GenerationFailed
from tests.server.engine.fake_backend import FakeBackend, FakeVocabulary


class BrokenVocabulary(FakeVocabulary):
    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        if text == "broken":
            raise OverflowError("too large to count")
        return super().tokenize(text, add_special, parse_special)


class BrokenBackend(FakeBackend):
    def compile_grammar(self, gbnf: str) -> Grammar:
        if gbnf == "broken":
            raise ZeroDivisionError("no rules at all")
        return super().compile_grammar(gbnf)


@pytest_asyncio.fixture
async def client() -> AsyncIterator[LocalClient]:
    client = LocalClient(BrokenBackend(vocabulary=BrokenVocabulary()))
    await client.start()
    yield client
    await client.stop()


async def reply(client: LocalClient, prompt: str = "hi", grammar_key: str | None = None) -> object:
    """The last event."""
    return [event async for event in client.generate(EngineRequest(0, prompt, max_tokens=2, grammar_key=grammar_key))][-1]


async def test_a_grammar_that_breaks_its_reader(client: LocalClient, caplog: pytest.LogCaptureFixture) -> None:
    await client.put_grammar("bad", "broken", b"")
    await client.put_grammar("good", "xx", b"")
    for _ in range(2):
        with pytest.raises(GenerationFailed, match="ZeroDivisionError: no rules at all"):
            await reply(client, grammar_key="bad")
        with pytest.raises(GenerationFailed, match="no rules at all"):
            await client.check_grammar("bad")
    assert [record.exc_info is not None for record in caplog.records if "can't be read" in record.message] == [True]
    assert isinstance(await reply(client, grammar_key="good"), Finished)


async def test_a_grammar_that_is_refused_is_refused_each_time(client: LocalClient) -> None:
    await client.put_grammar("refused", "!", b"")
    for _ in range(2):
        with pytest.raises(ConstraintRejected, match="the fake refuses"):
            await reply(client, grammar_key="refused")
        with pytest.raises(ConstraintRejected, match="the fake refuses"):
            await client.check_grammar("refused")


async def test_a_text_that_breaks_the_tokenizer(client: LocalClient, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(GenerationFailed, match="too large to count"):
        await client.tokenize("broken")
    with pytest.raises(GenerationFailed, match="too large to count"):
        await reply(client, prompt="broken")
    assert len([record for record in caplog.records if record.exc_info]) == 2
    assert await client.tokenize("hi") == (104, 105)
