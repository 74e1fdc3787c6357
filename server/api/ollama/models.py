"""What /api/tags, /api/show and /api/ps tell of models. Only those whose files are here are known to Ollama's clients."""

from __future__ import annotations

import time
from typing import Any

from server.api.timestamp import timestamp
from server.chat.capability import capabilities
from server.model_status import ModelDetails, ModelStatus

_FOR_EVER_S = 2**63 / 1e9  # as far from now as Ollama puts it


def tagged(alias: str) -> str:
    """The name under which a model is listed. Clients look names up in the list, and add `:latest` to one without a tag."""
    return alias if ":" in alias else f"{alias}:latest"


def encode_tags(statuses: tuple[ModelStatus, ...]) -> dict[str, Any]:
    """The models whose files are here."""
    return {"models": [_listed(status, status.details) for status in statuses if status.details is not None]}


def encode_ps(statuses: tuple[ModelStatus, ...]) -> dict[str, Any]:
    """The models that are loaded."""
    loaded = (status for status in statuses if status.is_loaded)
    return {"models": [_running(status, status.details) for status in loaded if status.details is not None]}


def encode_show(status: ModelStatus, details: ModelDetails, *, is_verbose: bool) -> dict[str, Any]:
    """All about one model."""
    metadata = {name: value for name, value in details.metadata.items() if name != "tokenizer.chat_template"}
    info = {name: value if is_verbose or not isinstance(value, tuple) else None for name, value in metadata.items()}
    return {
        "license": str(metadata.get("general.license", "")),
        "modelfile": f"# {status.alias} of models.txt\nFROM {status.source}\n",
        "parameters": "" if status.n_ctx_slot is None else f"num_ctx {status.n_ctx_slot}",
        "template": details.chat_template or "",
        "details": _family(details),
        "model_info": {**info, "general.parameter_count": details.n_params},
        "capabilities": list(capabilities(status)),
        "modified_at": timestamp(details.modified_s),
    }


def _listed(status: ModelStatus, details: ModelDetails) -> dict[str, Any]:
    more = {"modified_at": timestamp(details.modified_s), "capabilities": list(capabilities(status))}
    return {**_named(status, details, details.size_bytes), **more}


def _running(status: ModelStatus, details: ModelDetails) -> dict[str, Any]:
    ends_s = time.time() + _FOR_EVER_S if status.expires_at_s is None else status.expires_at_s
    more = {"expires_at": timestamp(ends_s), "size_vram": 0, "context_length": status.n_ctx_slot}
    return {**_named(status, details, status.memory_bytes), **more}


def _named(status: ModelStatus, details: ModelDetails, size_bytes: int) -> dict[str, Any]:
    name = tagged(status.alias)
    return {"name": name, "model": name, "size": size_bytes, "digest": details.digest, "details": _family(details)}


def _family(details: ModelDetails) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "gguf",
        "family": details.architecture,
        "families": [details.architecture],
        "parameter_size": details.parameter_size,
        "quantization_level": details.quantization,
    }
