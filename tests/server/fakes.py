"""Stand-ins for what is behind the HTTP layer: an engine that follows a script, its manager, a compiler in this process."""

from __future__ import annotations

import asyncio
import math
import random
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
from fastapi import FastAPI

from converters import compile_constraint
from converters.compile import CompileCache, CompileOptions, cache_key
from converters.constraint import Constraint
from converters.grammar.match import Matcher
from server.app import create_app
from server.chat.constraint import CompileOutcome
from server.engine.backend import GrammarRejected
from server.engine.grammar_tokens import find_tokens
from server.engine.messages import (
    EngineEvent,
    EngineRequest,
    Finished,
    FinishReason,
    ModelInfo,
    ModelState,
    PromptScored,
    SlotState,
    Started,
    TextChunk,
    TokenLogprob,
    TokenLogprobs,
)
from server.errors import ConstraintRejected, EngineStartFailed, ModelNotFound
from server.metrics import Metrics
from server.model_status import FetchProgress, ModelDetails, ModelStatus
from server.settings import Settings

INFO = ModelInfo(
    name="fake",
    n_vocab=1000,
    n_ctx_slot=256,
    n_ctx_train=256,
    n_slots=4,
    n_params=1,
    size_bytes=1,
    description="fake",
    chat_template=None,
    bos_token="<s>",
    eos_token="</s>",
    add_bos=True,
    add_space_prefix=False,
    n_embd=2,
    n_ctx_embed=256,
)

DETAILS = ModelDetails(
    path=Path("fake.gguf"),
    size_bytes=98_000_000,
    modified_s=1_700_000_000.0,
    digest="ab" * 32,
    n_params=135_000_000,
    metadata={
        "general.architecture": "llama",
        "general.file_type": 3,
        "llama.context_length": 8192,
        "llama.embedding_length": 576,
        "llama.block_count": 30,
        "tokenizer.chat_template": "{% for message in messages %}<|im_start|>{{ message.content }}{% endfor %}",
    },
)


def logprob(text: str, value: float = -0.5) -> TokenLogprobs:
    chosen = TokenLogprob(7, text.encode(), value)
    return TokenLogprobs(chosen, (chosen, TokenLogprob(8, b"\xe2\x82", value - 1)))


@dataclass
class FakeEngine:
    """Says `pieces` in every choice of every request. `before` runs before each event and may raise or wait."""

    pieces: Sequence[str] = ("Hel", "lo")
    reason: FinishReason = FinishReason.STOP
    info: ModelInfo = INFO
    state: ModelState = "ready"
    before: Callable[[EngineRequest, EngineEvent], object] | None = None
    requests: list[EngineRequest] = field(default_factory=list)
    grammars: dict[str, str] = field(default_factory=dict)
    busy: list[bool] = field(default_factory=list)
    embedded: list[tuple[tuple[int, ...], ...]] = field(default_factory=list)
    n_running: int = 0
    n_most_running: int = 0
    n_cancelled: int = 0

    async def start(self) -> ModelInfo:
        return self.info

    async def stop(self) -> None:
        self.state = "stopped"

    async def put_grammar(self, key: str, gbnf: str, tables: bytes) -> None:
        self.grammars[key] = gbnf

    async def generate(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        self.requests.append(request)
        self.n_running += 1
        self.n_most_running = max(self.n_most_running, self.n_running)
        is_done = False
        try:
            for event in self._events(request):
                if self.before is not None:
                    outcome = self.before(request, event)
                    if asyncio.iscoroutine(outcome):
                        await outcome
                await asyncio.sleep(0)
                yield event
            is_done = True
        finally:
            self.n_running -= 1
            self.n_cancelled += not is_done

    def _events(self, request: EngineRequest) -> list[EngineEvent]:
        n_prompt = len(request.prompt)
        events: list[EngineEvent] = [Started(0, n_prompt, 1)]
        if request.prompt_logprobs is not None:
            events.append(PromptScored(0, (None, logprob("b", -2.0)), (5, b"a")))
        pieces = self.pieces[: request.max_tokens]
        for piece in pieces:
            logprobs = (logprob(piece),) if request.logprobs is not None else ()
            events += [TextChunk(0, k, piece, 1, logprobs) for k in range(request.n)]
        events += [Finished(0, k, self.reason, len(pieces)) for k in range(request.n)]
        return events

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        return tuple(ord(char) % self.info.n_vocab for char in text)

    async def tokenize_all(self, texts: tuple[str, ...], *, add_special: bool, most: int) -> tuple[tuple[int, ...] | int, ...]:
        found: list[tuple[int, ...] | int] = []
        for text in texts:
            if len(text) > most:
                return (*found, len(text))
            found.append(await self.tokenize(text, add_special=add_special))
        return tuple(found)

    async def spell(self, tokens: tuple[int, ...]) -> tuple[bytes, ...]:
        return tuple([await self.detokenize((token,)) for token in tokens])

    async def check_grammar(self, key: str) -> None:
        try:
            find_tokens(self.grammars[key], self.info.n_vocab, lambda name: tuple(map(ord, name)))
        except GrammarRejected as error:
            raise ConstraintRejected(str(error)) from None

    async def detokenize(self, tokens: tuple[int, ...]) -> bytes:
        return "".join(map(chr, tokens)).encode()

    async def embed(self, inputs: tuple[tuple[int, ...], ...], *, is_ranking: bool = False) -> tuple[bytes, ...]:
        """A vector of an input is (3, 4) / 5; its score the number of its tokens."""
        self.embedded.append(inputs)
        await asyncio.sleep(0)
        return tuple(struct.pack("<f", len(tokens)) if is_ranking else struct.pack("<2f", 0.6, 0.8) for tokens in inputs)

    async def slots(self) -> tuple[SlotState, ...]:
        return (SlotState(0, request=7, n_prompt=5, n_prompt_read=5, n_decoded=2, n_left=3), SlotState(1))

    def set_busy(self, busy: bool) -> None:
        self.busy.append(busy)


@dataclass(frozen=True)
class FakeModel:
    name: str
    engine: FakeEngine
    template: str | None = None
    codec: str | None = None

    def in_use(self) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass
class FakeManager:
    engine_: FakeEngine
    default: str = "fake"
    template: str | None = None
    failure: str | None = None
    touched: list[tuple[str, float]] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)

    def names(self) -> tuple[str, ...]:
        return (self.default, "dir/other")

    def state(self, name: str | None = None) -> ModelState:
        return self.engine_.state

    def loaded(self) -> tuple[FakeModel, ...]:
        return (FakeModel(self.default, self.engine_),)

    async def engine(self, name: str | None) -> FakeModel:
        self._alias(name)
        return FakeModel(self.default, self.engine_, self.template)

    def _alias(self, name: str | None) -> str:
        name = name.removesuffix(":latest") if name is not None else None
        if name not in (None, "", "default", *self.names()):
            raise ModelNotFound(f"model {name!r} not found", param="model")
        return name if name in self.names() else self.default

    def touch(self, name: str | None, keep_alive_s: float) -> None:
        self.touched.append((self._alias(name), keep_alive_s))

    def load(self, name: str | None) -> None:
        self.touched.append((self._alias(name), math.inf))

    def unload(self, name: str | None) -> None:
        self.touched.append((self._alias(name), 0.0))

    async def pull(self, name: str | None) -> AsyncGenerator[FetchProgress, None]:
        alias = self._alias(name)
        for n_bytes in (0, 5, 10):
            await asyncio.sleep(0)
            yield FetchProgress(f"{alias.split('/')[-1]}.gguf", n_bytes, 10)
        if self.failure is not None:
            raise EngineStartFailed(self.failure)

    async def remove(self, name: str | None) -> None:
        if self._alias(name) != self.default:
            raise ModelNotFound(f"model {name!r} not found", param="model")

    async def describe(self, name: str | None) -> ModelStatus:
        alias = self._alias(name)
        if alias != self.default:
            return ModelStatus(alias, "hf:some/other", "stopped")
        info = self.engine_.info
        return ModelStatus(
            alias, f"{alias}.gguf", self.engine_.state, DETAILS, True, n_slots=info.n_slots, n_ctx_slot=info.n_ctx_slot
        )

    async def describe_all(self) -> tuple[ModelStatus, ...]:
        return tuple([await self.describe(name) for name in self.names()])

    def statuses(self) -> tuple[ModelStatus, ...]:
        return (ModelStatus(self.default, "fake.gguf", self.engine_.state, is_default=True, n_slots=4, n_ctx_slot=256),)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


class InlineCompiler:
    """The real compiler, without its process."""

    def __init__(self) -> None:
        self.cache = CompileCache(1 << 20)

    async def compile(self, constraint: Constraint, options: CompileOptions) -> CompileOutcome:
        key = cache_key(constraint, options)
        cached = self.cache.get(key)
        compiled = cached or compile_constraint(constraint, options)
        self.cache.put(key, compiled)
        return CompileOutcome(key, compiled, cached is not None)

    async def examples(self, outcome: CompileOutcome, n_random: int) -> tuple[str, ...]:
        matcher = Matcher.from_tables(outcome.compiled.tables)
        rng = random.Random(0)
        return (matcher.shortest_completion(matcher.start), *(matcher.random_sentence(rng) for _ in range(n_random)))


@dataclass
class Served:
    """An app over fakes, and a client that talks to it without a socket."""

    app: FastAPI
    engine: FakeEngine
    client: httpx.AsyncClient

    async def chat(self, **fields: object) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}], **fields})

    async def complete(self, **fields: object) -> httpx.Response:
        return await self.client.post("/v1/completions", json={"prompt": "hi", **fields})


@asynccontextmanager
async def serve(
    engine: FakeEngine | None = None,
    settings: Settings | None = None,
    compiler: InlineCompiler | None = None,
    template: str | None = None,
) -> AsyncIterator[Served]:
    """`compiler`: one that remembers what other servers have compiled."""
    engine = engine or FakeEngine()
    app = create_app(settings or Settings(), FakeManager(engine, template=template), compiler or InlineCompiler())
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client,
    ):
        yield Served(app, engine, client)


def with_info(**changes: object) -> ModelInfo:
    return replace(INFO, **changes)  # type: ignore[arg-type]
