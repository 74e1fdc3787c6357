"""The settings of a server: one frozen value, built in `server.cli` from flags and GRAMSERVE_* variables, then passed on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from converters.limits import Limits


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds of a request's texts (spec section 9, first rows), inclusive. Sizes are in bytes of UTF-8.

    kept_responses, kept_response_bytes: how many responses are kept to be continued, with their conversations.
    """

    regex_bytes: int = 4096
    grammar_bytes: int = 16 * 1024
    schema_bytes: int = 16 * 1024
    tools_bytes: int = 256 * 1024
    n_choice_options: int = 10_000
    choice_bytes: int = 1024 * 1024
    json_depth: int = 200
    json_values: int = 500_000
    body_bytes: int = 16 * 1024 * 1024
    tokenize_bytes: int = 1024 * 1024
    max_waiting: int = 64
    kept_responses: int = 1000
    kept_response_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set about a server. `None` in model settings means: what models.txt or the model says.

    keep_alive_s: how long a model that wasn't named at start stays after its last use (infinite: for ever).
    max_memory_bytes: of all loaded models together; None: most of the machine's.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str | None = None
    allow_origins: tuple[str, ...] = ()
    models_file: str | None = None
    models: tuple[str, ...] = ()
    cache_dir: str | None = None
    n_ctx: int | None = None
    parallel: int | None = None
    n_gpu_layers: int | None = None
    n_threads: int | None = None
    chat_template_file: str | None = None
    keep_alive_s: float = 300.0
    max_memory_bytes: int | None = None
    disable_reasoning: bool = False
    fast_forward: bool = True
    speculation: bool = True
    flash_attention: bool | None = None
    repack: bool | None = None
    constraint_failure: Literal["error", "unconstrained"] = "error"
    stall_timeout_s: float = 30.0
    hang_timeout_s: float = 60.0
    drain_timeout_s: float = 5.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    request_limits: RequestLimits = field(default_factory=RequestLimits)
    compile_limits: Limits = field(default_factory=Limits)
