"""/metrics: what the server has counted, as Prometheus reads it. Names follow llama.cpp's server; nothing is counted here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.metrics import Histogram, Metrics, ModelTotals
from server.model_status import ModelStatus

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

router = APIRouter()

_PREFIX = "gramserve_"

Read = Callable[[Any], float]

_TOTALS: Sequence[tuple[str, str, Read]] = (
    ("model_requests", "Generations and embeddings that a model was asked for.", lambda m: m.n_requests),
    ("prompt_tokens", "Prompt tokens of generations.", lambda m: m.n_prompt_tokens),
    ("prompt_tokens_cached", "Of these, tokens that were in a slot already.", lambda m: m.n_cached_tokens),
    ("prompt_seconds", "Time from a prompt's start to its end.", lambda m: m.prompt_s),
    ("tokens_predicted", "Tokens written.", lambda m: m.n_completion_tokens),
    ("tokens_predicted_seconds", "Time from choices' first tokens to their last.", lambda m: m.decode_s),
    ("tokens_reasoning", "Of the tokens written, those of thinking.", lambda m: m.n_reasoning_tokens),
    ("tokens_forced", "Of the tokens written, those that a grammar left no choice about.", lambda m: m.n_forced_tokens),
    ("tokens_rejected", "Drawn tokens that a grammar refused.", lambda m: m.n_rejected_tokens),
    ("tokens_drafted", "Tokens that speculation guessed.", lambda m: m.n_drafted_tokens),
    ("tokens_accepted", "Of the tokens guessed, those that were what was drawn then.", lambda m: m.n_accepted_tokens),
    ("embedded_tokens", "Tokens of inputs to embeddings and ranks.", lambda m: m.n_embedded_tokens),
    ("model_loads", "How often a model's process was started on demand.", lambda m: m.n_loads),
    ("requests_lost", "Requests that ended because the model's process died.", lambda m: m.n_lost_requests),
)
"""Counters by model: name, help, how it is read from ModelTotals."""

_GAUGES: Sequence[tuple[str, str, Read]] = (
    ("requests_processing", "Requests that have a slot.", lambda s: s.n_running),
    ("requests_deferred", "Requests that wait for one.", lambda s: s.n_waiting),
    ("kv_cache_tokens", "Tokens that running requests hold in the KV cache.", lambda s: s.n_kv_tokens),
    ("kv_cache_usage_ratio", "The same as a share of all slots' context.", lambda s: _kv_share(s)),
    ("model_loaded", "1 where the model has a process.", lambda s: s.is_loaded),
    ("model_memory_bytes", "What the loaded model takes, estimated: weights and KV cache.", lambda s: s.memory_bytes),
)
"""Gauges by model that is loaded or being loaded, read from ModelStatus."""


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Counters, gauges and histograms in Prometheus' text format."""
    manager = request.app.state.manager
    statuses = manager.statuses()
    text = await asyncio.to_thread(render, manager.metrics, statuses)  # the first time, the library is imported
    return Response(text, media_type="text/plain; version=0.0.4")


def render(counted: Metrics, statuses: Sequence[ModelStatus]) -> bytes:
    """The text. prometheus-client is imported here: most servers are never asked."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(counted, statuses))
    return generate_latest(registry)


class _Collector:
    """What prometheus-client asks for the families."""

    def __init__(self, counted: Metrics, statuses: Sequence[ModelStatus]) -> None:
        self._counted = counted
        self._statuses = statuses

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from _model_families(list(self._counted.models.items()))
        yield from _gauge_families(self._statuses)
        yield from _http_families(self._counted)
        yield from _constraint_families(self._counted)


def _model_families(models: Sequence[tuple[str, ModelTotals]]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, text, read in _TOTALS:
        family = CounterMetricFamily(_PREFIX + name, text, labels=["model"])
        for alias, totals in models:
            family.add_metric([alias], read(totals))
        yield family
    waits = [([alias], totals.first_token_s) for alias, totals in models]
    yield _histogram("time_to_first_token_seconds", "From a generation's start to its first text.", ["model"], waits)


def _gauge_families(statuses: Sequence[ModelStatus]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for name, text, read in _GAUGES:
        family = GaugeMetricFamily(_PREFIX + name, text, labels=["model"])
        for status in statuses:
            family.add_metric([status.alias], read(status))
        yield family


def _http_families(counted: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(_PREFIX + "http_requests", "Answered requests.", labels=["route", "method", "status"])
    for (route, method, status), number in list(counted.http.items()):
        family.add_metric([route, method, str(status)], number)
    yield family
    times = [([route], histogram) for route, histogram in list(counted.http_s.items())]
    yield _histogram("http_response_seconds", "From a request's start to its answer's headers.", ["route"], times)


def _constraint_families(counted: Metrics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    cache = CounterMetricFamily(_PREFIX + "constraint_cache", "Constraints that were compiled or cached.", labels=["result"])
    for result in ("hit", "miss"):
        cache.add_metric([result], counted.cache[result])
    yield cache
    text = "Constraints that the compiler refused."
    yield CounterMetricFamily(_PREFIX + "constraints_rejected", text, value=counted.n_rejected_constraints)
    yield _histogram("constraint_compile_seconds", "Compile times, cached ones left out.", [], [([], counted.compile_s)])


def _histogram(name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], Histogram]]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(_PREFIX + name, text, labels=labels)
    for values, histogram in rows:
        bounds = [*map(str, histogram.bounds), "+Inf"]
        family.add_metric(values, list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.total)
    return family


def _kv_share(status: ModelStatus) -> float:
    n_cells = (status.n_slots or 0) * (status.n_ctx_slot or 0)
    return status.n_kv_tokens / n_cells if n_cells else 0.0
