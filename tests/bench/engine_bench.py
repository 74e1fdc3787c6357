"""The engine's speed: `python -m tests.bench.engine_bench MODEL.gguf [rounds]`.

bare: llama_decode and llama_sampler_sample in a plain loop; engine: the same work through a ProcessClient. Then what a
constraint costs a token, and eight different constraints with n=2 at once against one after another. Cases take turns, the
table shows medians. Wants a quiet machine.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from server.engine.client import ProcessClient
from server.engine.messages import EngineRequest, Finished, ModelSpec, Sampling

PROMPT = "<|im_start|>user\nTell a long story about a cat and a dog.<|im_end|>\n<|im_start|>assistant\n"
N_TOKENS = 128
FREE = Sampling(seed=1, ignore_eos=True)
CONSTRAINTS = {
    "date": 'root ::= [0-9]{4} "-" [0-9]{2} "-" [0-9]{2}',
    "choice": 'root ::= "red" | "green" | "blue" | "yellow" | "I do not know"',
    "words": 'root ::= [a-z]{3,12} (" " [a-z]{1,12}){7,9} "."',
    "object": 'root ::= "{\\"name\\": \\"" [a-zA-Z ]{1,24} "\\", \\"age\\": " [0-9]{1,3} "}"',
    "list": 'root ::= "[" [0-9]{1,4} (", " [0-9]{1,4}){7} "]"',
    "email": 'root ::= [a-z]{2,12} "@" [a-z]{2,12} "." [a-z]{2,3}',
    "title": 'root ::= ([A-Z] [a-z]{1,10} " "){4,6} "End"',
    "bits": "root ::= [01]{24}",
}

BARE = """
import sys, time
import llama_cpp as L
path, n_seq, n_tokens, n_threads, prompt = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
keep = L.llama_log_callback(lambda level, text, data: None)
L.llama_log_set(keep, None)
L.llama_backend_init()
params = L.llama_model_default_params()
params.use_extra_bufts = b"AMX_INT8 = 1" not in L.llama_print_system_info()  # as the engine loads it
model = L.llama_model_load_from_file(path.encode(), params)
p = L.llama_context_default_params()
p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max, p.kv_unified = 4096, 512, 512, n_seq, True
p.n_threads = p.n_threads_batch = n_threads
ctx = L.llama_init_from_model(model, p)
vocab = L.llama_model_get_vocab(model)
tokens = (L.llama_token * 4096)()
n = L.llama_tokenize(vocab, prompt.encode(), len(prompt.encode()), tokens, 4096, True, True)
batch = L.llama_batch_init(512, 0, 1)
chains = []
for seq in range(n_seq):
    chain = L.llama_sampler_chain_init(L.llama_sampler_chain_default_params())
    for s in (L.llama_sampler_init_top_k(40), L.llama_sampler_init_top_p(0.95, 1), L.llama_sampler_init_min_p(0.05, 1),
              L.llama_sampler_init_temp(0.8), L.llama_sampler_init_dist(seq)):
        L.llama_sampler_chain_add(chain, s)
    chains.append(chain)
def put(entries):
    batch.n_tokens = len(entries)
    for i, (token, pos, seq, out) in enumerate(entries):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, pos, 1, out
        batch.seq_id[i][0] = seq
    assert L.llama_decode(ctx, batch) == 0
put([(tokens[i], i, seq, i == n - 1) for seq in range(n_seq) for i in range(n)])
last = [L.llama_sampler_sample(chains[seq], ctx, seq * n + n - 1) for seq in range(n_seq)]
begun = time.perf_counter()
for step in range(n_tokens - 1):
    put([(last[seq], n + step, seq, True) for seq in range(n_seq)])
    last = [L.llama_sampler_sample(chains[seq], ctx, seq) for seq in range(n_seq)]
print(n_seq * (n_tokens - 1) / (time.perf_counter() - begun))
"""


def bare(path: str, n_sequences: int, n_threads: int) -> float:
    """Decoded tokens a second of a plain loop in a process of its own."""
    arguments = [str(value) for value in (n_sequences, N_TOKENS, n_threads)]
    run = subprocess.run([sys.executable, "-c", BARE, path, *arguments, PROMPT], capture_output=True, text=True, check=True)
    return float(run.stdout)


async def generate(client: ProcessClient, request: EngineRequest) -> Finished:
    """Run a request; returns its last end."""
    async with aclosing(client.generate(request)) as events:
        ends = [event async for event in events if isinstance(event, Finished)]
    return ends[-1]


async def engine(client: ProcessClient, n_sequences: int, **fields: object) -> float:
    """Decoded tokens a second with so many requests at once, the prompt's time left out."""
    request = EngineRequest(0, PROMPT, max_tokens=N_TOKENS, sampling=FREE, **fields)  # type: ignore[arg-type]
    ends = await asyncio.gather(*(generate(client, request) for _ in range(n_sequences)))
    return (N_TOKENS - 1) * n_sequences / max(end.decode_s for end in ends)


def requests() -> list[EngineRequest]:
    """Each constraint with n=2."""
    return [
        EngineRequest(0, PROMPT, n=2, grammar_key=key, max_tokens=100, sampling=Sampling(seed=i))
        for i, key in enumerate(CONSTRAINTS)
    ]


async def together(client: ProcessClient) -> float:
    begun = time.perf_counter()
    await asyncio.gather(*(generate(client, request) for request in requests()))
    return time.perf_counter() - begun


async def in_turn(client: ProcessClient) -> float:
    begun = time.perf_counter()
    for request in requests():
        await generate(client, request)
    return time.perf_counter() - begun


async def main(path: str, n_rounds: int) -> None:
    n_threads = os.cpu_count() or 1
    client = ProcessClient(ModelSpec(path, n_ctx=1024, n_slots=16))
    begun = time.perf_counter()
    await client.start()
    print(f"start: {time.perf_counter() - begun:.2f} s")
    for key, text in CONSTRAINTS.items():
        await client.put_grammar(key, text)
    await client.put_grammar("anything", "root ::= [^\\x00]+")
    await client.put_grammar("letters", "root ::= [a-zA-Z ,.]+")

    async def plain(n_sequences: int) -> float:
        return await asyncio.to_thread(bare, path, n_sequences, n_threads)

    cases: dict[str, Callable[[], Awaitable[float]]] = {
        "bare loop, 1 sequence, tok/s": lambda: plain(1),
        "engine, 1 sequence, tok/s": lambda: engine(client, 1),
        "engine, 1 sequence, any text by grammar, tok/s": lambda: engine(client, 1, grammar_key="anything"),
        "engine, 1 sequence, letters by grammar, tok/s": lambda: engine(client, 1, grammar_key="letters"),
        "bare loop, 4 sequences, tok/s": lambda: plain(4),
        "engine, 4 sequences, tok/s": lambda: engine(client, 4),
        "8 constraints with n=2 together, s": lambda: together(client),
        "8 constraints with n=2 in turn, s": lambda: in_turn(client),
    }
    figures: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(n_rounds):
        for name, measure in cases.items():
            figures[name].append(await measure())
    for name, values in figures.items():
        print(f"{name:52} {statistics.median(values):8.2f}   {' '.join(f'{value:.1f}' for value in values)}")
    in_turn_s, together_s = (statistics.median(figures[f"8 constraints with n=2 {how}, s"]) for how in ("in turn", "together"))
    print(f"{'throughput together / in turn':52} {in_turn_s / together_s:8.2f}")
    await client.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5))
