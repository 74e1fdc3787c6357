"""`json_object` at temperature 1.5 and few tokens: every reply is a JSON object, through the `openai` package.

`python -m tests.clients.test_json_object [REPLIES]` takes many and prints counts.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.default_model import default_model_path
from tests.live_server import LiveServer

N_AT_ONCE = 5


def replies(url: str, n: int) -> Iterator[tuple[str, str]]:
    """Text and finish_reason of `n` replies, each with a seed of its own."""
    with OpenAI(base_url=f"{url}/v1", api_key="sesame", max_retries=0) as client:
        for seed in range(0, n, N_AT_ONCE):
            completion = client.chat.completions.create(
                model="default", messages=[{"role": "user", "content": "Describe a cat in JSON."}], temperature=1.5,
                max_tokens=60, n=min(N_AT_ONCE, n - seed), seed=seed, response_format={"type": "json_object"},
            )  # fmt: skip
            for choice in completion.choices:
                yield choice.message.content or "", choice.finish_reason


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@pytest.mark.client
def test_every_reply_is_an_object(live_server: LiveServer) -> None:
    found = list(replies(live_server.url, 5))
    assert len(found) == 5
    assert [text for text, _ in found if not is_object(text)] == []


if __name__ == "__main__":
    counts: Counter[str] = Counter()
    options = ("--parallel", "5", "--ctx", "1024", "--threads", "1", "--api-key", "sesame")
    with LiveServer(default_model_path(), *options) as server:
        for text, reason in replies(server.url, int(sys.argv[1]) if sys.argv[1:] else 50):
            counts.update(["replies", reason, "objects" if is_object(text) else "problems"])
            if not is_object(text):
                print(repr(text))
    print(dict(counts))
