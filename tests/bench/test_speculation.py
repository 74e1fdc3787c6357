"""What speculation gives where text repeats itself, and that it costs nothing where it doesn't; on and off in turn.

CPU time of one thread, so that a busy machine doesn't spoil the ratios.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from queue import SimpleQueue

import pytest

from server.engine.core import Core
from server.engine.intake import Intake
from server.engine.llama import LlamaBackend
from server.engine.messages import EngineRequest, Finished, ModelSpec, Sampling

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

STORY = "Tell me a long story about a dragon and a lighthouse keeper."
TEXT = (
    "The old lighthouse at Cape Marrow was built in 1847 by a Scottish engineer named Alasdair Finch. Its lamp burned whale "
    "oil until 1902, when the keeper, a quiet woman called Ruth Okafor, replaced it with a kerosene mantle. Storms took the "
    "pier twice. In 1931 the tower was painted red and white, and in 1969 the light was made automatic. Today the tower is a "
    "museum, open from May to September, with 212 steps to the gallery."
)
CODE = "\n".join(f"def get_{name}(self):\n    return self._{name}\n" for name in ("name", "price", "count", "colour", "weight"))
COPIES = (
    f"Repeat this text word for word:\n\n{TEXT}",
    f"Repeat this text, and nothing else:\n\n{TEXT[:300]}",
    f"Copy this code:\n\n```python\n{CODE}```",
    "Copy this list:\n\n" + "\n".join(f"- {number}: {number * number}" for number in range(12, 30)),
)


class Bench:
    """All requests at once, in this thread."""

    def __init__(self, model: Path) -> None:
        self.backend = LlamaBackend(ModelSpec(str(model), n_ctx=1024, n_threads=1))

    def rate(self, requests: list[EngineRequest], *, speculates: bool) -> tuple[float, int, int]:
        """Tokens a second once all prompts are read, and how many were drafted and accepted."""
        core = Core(self.backend, speculates=speculates)
        intake = Intake(self.backend, SimpleQueue(), lambda message: None)
        for request in requests:
            core.add(intake.prepare(request))
        ends: list[Finished] = []
        while not all(job.is_prefilled for job in core._scheduler.started) or not core._scheduler.started:
            core.step()
        n_read = sum(sequence.n_tokens for sequence in core._scheduler.running)
        begun = time.process_time()
        while core.has_work:
            ends.extend(event for event in core.step() if isinstance(event, Finished))
        n_tokens = sum(end.n_completion_tokens for end in ends) - n_read
        return (
            n_tokens / (time.process_time() - begun),
            sum(end.n_drafted_tokens for end in ends),
            sum(end.n_accepted_tokens for end in ends),
        )


def chat(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def free(n_clients: int, seed: int) -> list[EngineRequest]:
    return [
        EngineRequest(i, chat(f"[{i}] {STORY}"), max_tokens=128, sampling=Sampling(seed=seed + i, ignore_eos=True))
        for i in range(n_clients)
    ]


def copies(n_clients: int, seed: int) -> list[EngineRequest]:
    """The same for all clients: where one ends before the others these share their decodes with fewer."""
    texts = [f"[{i}] {COPIES[seed % len(COPIES)]}" for i in range(n_clients)]
    return [
        EngineRequest(i, chat(text), max_tokens=160, sampling=Sampling(seed=seed + i, temperature=0.0, ignore_eos=True))
        for i, text in enumerate(texts)
    ]


@pytest.mark.parametrize("n_clients", [1, 4])
@pytest.mark.parametrize(("make", "least"), [(free, 0.99), (copies, 1.2)], ids=["free", "copies"])
def test_speculation_pays_or_stays_away(default_model: Path, make: object, least: float, n_clients: int) -> None:
    """Median of 5 rounds. Beside three others a drafted token saves little: there it must not cost anything."""
    assert callable(make)
    bench = Bench(default_model)
    bench.rate(make(n_clients, 0), speculates=True)
    ratios = []
    for seed in range(5):
        off, _, _ = bench.rate(make(n_clients, seed), speculates=False)
        on, n_drafted, n_accepted = bench.rate(make(n_clients, seed), speculates=True)
        ratios.append(on / off)
        print(f"\noff {off:.1f} tok/s, on {on:.1f}, ratio {ratios[-1]:.2f}, {n_accepted} of {n_drafted} accepted")
    print(f"median ratio {statistics.median(ratios):.3f}")
    assert statistics.median(ratios) >= (least if n_clients == 1 else 0.99)
