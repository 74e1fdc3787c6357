"""Records what models really write, for the splitter's tests: `python -m tests.live.record_outputs OUT.jsonl`.

The default model and a tiny one answer prompts about the tools of those tests, in every format for calls: held to the format's
grammar, free after the beginning of a call or of thinking, and free altogether; ended by the model or cut by max_tokens. A line
is `{"codec", "thinking", "text", "model"}`; `thinking`: null, "start" (the text may begin with it) or "inside".
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from converters.compile import compile_constraint
from converters.constraint import ToolCalls
from converters.tools.codec import Codec
from converters.tools.codecs import CODECS
from server.chat.types import JsonObject
from server.engine.client import LocalClient
from server.engine.llama import LlamaBackend
from server.engine.messages import EngineRequest, ModelSpec, Sampling, TextChunk
from tests.converters.tools.test_splitter import TOOLS
from tests.default_model import default_model_path
from tests.tiny_models import TinyModel, write_tiny_model

QUESTIONS = ("What time is it?", "How is the weather in São Paulo for three days?", "Run print('a\\n') for me.", "Say hello.")
CONTROLS = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<think>",
            "</think>")  # fmt: skip
MAX_TOKENS = {"default": 60, "tiny": 120}
N_EACH = {"default": 2, "tiny": 5}  # of each format and way


@dataclass(frozen=True, slots=True)
class Way:
    """How an output comes about: what is written already, whether a grammar holds the rest, whether it may think."""

    begun: str
    is_held: bool
    thinking: str | None = None


def ways(codec: Codec) -> Iterator[Way]:
    opening = codec.openings[0].triggers[0]
    yield Way("", is_held=True)
    yield Way(opening, is_held=False)
    yield Way(f'{opening}{{"name": "get_weather", "arguments": {{"city": "S', is_held=False)
    yield Way("", is_held=False)
    yield Way("<think>\n", is_held=False, thinking="start")
    yield Way("", is_held=False, thinking="inside")


def prompt_of(codec: Codec, question: str) -> str:
    functions = [{"name": tool.name, "parameters": tool.parameters or {}} for tool in TOOLS]
    shown: list[JsonObject] = [{"type": "function", "function": function} for function in functions]
    tools = codec.describe_tools(shown)
    return f"<|im_start|>system\n{tools}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


async def output(client: LocalClient, codec: Codec, way: Way, seed: int, max_tokens: int) -> str:
    """One output: what was begun, and what the model makes of it."""
    rng = random.Random(seed)
    key = None
    if way.is_held:
        compiled = compile_constraint(ToolCalls(TOOLS, codec.name))
        key = f"{codec.name}-calls"
        await client.put_grammar(key, compiled.gbnf, compiled.tables)
    request = EngineRequest(
        0,
        prompt_of(codec, rng.choice(QUESTIONS)) + way.begun,
        sampling=Sampling(temperature=rng.choice([0.3, 0.8, 1.2]), seed=seed),
        grammar_key=key,
        max_tokens=max_tokens if rng.random() < 0.7 else rng.randint(2, 20),
        on_length="cut",
        visible=(*codec.markers, "<think>", "</think>"),
    )
    text = way.begun
    async with aclosing(client.generate(request)) as events:
        async for event in events:
            if isinstance(event, TextChunk):
                text += event.text
    return text


async def record(name: str, model: Path, out: Path) -> None:
    client = LocalClient(LlamaBackend(ModelSpec(str(model), n_ctx=2048, n_threads=1)))
    await client.start()
    seed = 0
    try:
        with out.open("a", encoding="utf-8") as lines:
            for codec in CODECS.values():
                for way in ways(codec):
                    for _ in range(N_EACH[name]):
                        seed += 1
                        text = await output(client, codec, way, seed, MAX_TOKENS[name])
                        entry = {"codec": codec.name, "thinking": way.thinking, "text": text, "model": name}
                        print(json.dumps(entry, ensure_ascii=False), file=lines, flush=True)
                print(name, codec.name, seed, flush=True)
    finally:
        await client.stop()


def main() -> None:
    out = Path(sys.argv[1])
    out.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tiny = write_tiny_model(Path(folder) / "tiny.gguf", TinyModel(controls=CONTROLS))
        asyncio.run(record("tiny", tiny, out))
    asyncio.run(record("default", default_model_path(), out))


if __name__ == "__main__":
    main()
