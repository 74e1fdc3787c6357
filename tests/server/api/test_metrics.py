"""/metrics, /props, /slots and /v1/models: what is told of the server's insides."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from server.api.native.metrics import render
from server.metrics import Histogram, Metrics
from server.model_status import ModelStatus
from tests.server.fakes import FakeEngine, Served, serve


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Value by name and labels' values, in the order of the labels' names."""
    families = text_string_to_metric_families(text)
    found = [sample for family in families for sample in family.samples]
    return {(sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value for sample in found}


async def read(client: httpx.AsyncClient) -> dict[tuple[str, ...], float]:
    reply = await client.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain")
    return samples(reply.text)


async def test_requests_and_constraints_are_counted(served: Served) -> None:
    for _ in range(3):
        await served.chat(guided_choice=["Hello", "no"])
    await served.chat(guided_regex="(")
    await served.chat(temperature="hot")
    found = await read(served.client)
    assert found["gramserve_http_requests_total", "POST", "/v1/chat/completions", "200"] == 3
    assert found["gramserve_http_requests_total", "POST", "/v1/chat/completions", "400"] == 2
    assert found["gramserve_http_response_seconds_count", "/v1/chat/completions"] == 5
    assert (found["gramserve_constraint_cache_total", "miss"], found["gramserve_constraint_cache_total", "hit"]) == (1, 2)
    assert found["gramserve_constraints_rejected_total",] == 1
    assert found["gramserve_constraint_compile_seconds_count",] == 1
    assert found["gramserve_model_loaded", "fake"] == 1


def test_what_is_told_of_models() -> None:
    counted = Metrics()
    totals = counted.model("a")
    totals.n_completion_tokens, totals.n_rejected_tokens, totals.n_forced_tokens = 50, 7, 5
    totals.n_drafted_tokens, totals.n_accepted_tokens = 20, 15
    totals.first_token_s.add(0.2)
    status = ModelStatus("a", "a.gguf", "ready", n_slots=4, n_ctx_slot=100, n_running=2, n_waiting=1, n_kv_tokens=100)
    found = samples(render(counted, [status]).decode())
    expected = {
        "gramserve_tokens_predicted_total": 50,
        "gramserve_tokens_rejected_total": 7,
        "gramserve_tokens_forced_total": 5,
        "gramserve_tokens_drafted_total": 20,
        "gramserve_tokens_accepted_total": 15,
        "gramserve_requests_processing": 2,
        "gramserve_requests_deferred": 1,
        "gramserve_kv_cache_usage_ratio": 0.25,
    }
    assert {name: found[name, "a"] for name in expected} == expected
    assert found["gramserve_time_to_first_token_seconds_bucket", "0.1", "a"] == 0
    assert found["gramserve_time_to_first_token_seconds_bucket", "0.25", "a"] == 1


def test_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 3.0):
        histogram.add(value)
    assert (histogram.counts, histogram.total) == ([2, 2, 1], 8.0)


async def test_props(served: Served) -> None:
    body = (await served.client.get("/props")).json()
    assert (body["total_slots"], body["model_alias"], body["model_path"]) == (4, "fake", "fake.gguf")
    assert body["default_generation_settings"]["n_ctx"] == 256
    assert body["default_generation_settings"]["params"]["top_k"] == 40
    assert (body["bos_token"], body["eos_token"]) == ("<s>", "</s>")
    assert (await served.client.get("/props?model=nobody")).status_code == 404


async def test_slots(served: Served) -> None:
    first, second = (await served.client.get("/slots?model=fake")).json()
    assert (first["id"], first["is_processing"], first["id_task"], first["n_ctx"]) == (0, True, 7, 256)
    assert first["next_token"][0] == {"has_next_token": True, "n_remain": 3, "n_decoded": 2}
    assert (second["id"], second["is_processing"], second["id_task"]) == (1, False, -1)


async def test_models_have_details() -> None:
    async with serve(FakeEngine()) as served:
        known, other = (await served.client.get("/v1/models")).json()["data"]
        assert (known["status"], other["status"]) == ({"value": "loaded"}, {"value": "unloaded"})
        assert known["meta"]["n_params"] == 135_000_000
        assert (known["meta"]["n_ctx"], known["meta"]["n_ctx_train"], known["meta"]["quantization"]) == (256, 8192, "Q4_1")
        assert known["capabilities"] == ["completion", "tools"]
        assert (other["meta"], other["capabilities"]) == (None, [])
        assert (await served.client.get("/v1/models/fake")).json() == known
