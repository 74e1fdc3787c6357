"""What is told of a model, loaded or not: its files, its state, its memory. Data only; `models.manager` makes it.

Nothing here reads a file or knows an engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from server.engine.messages import ModelState

Scalar: TypeAlias = str | int | float | bool

_QUANTIZATIONS: Mapping[int, str] = {
    # llama.cpp's llama_ftype
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
}
_RANK_POOLING = 4  # LLAMA_POOLING_TYPE_RANK
_KV_BYTES = 2  # a number in the KV cache is a half
_TEMPLATE = "tokenizer.chat_template"


@dataclass(frozen=True, slots=True)
class ModelDetails:
    """A model's files. Of a split model, `path` is the first part, and sizes are those of all parts.

    digest: a sha256 in hex; without a known one, of where the file is, its size and its time, which tells files apart.
    modified_s: seconds since 1970. metadata: the GGUF's, without vocabularies. infill_markers: those that its vocabulary has.
    """

    path: Path
    size_bytes: int
    modified_s: float
    digest: str
    n_params: int
    metadata: Mapping[str, Scalar | tuple[Scalar, ...]] = field(default_factory=dict)
    infill_markers: frozenset[str] = frozenset()

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the model family, "" where the file doesn't say."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def quantization(self) -> str:
        """llama.cpp's name of the file type: "Q4_K_M"; "unknown" where the file doesn't say."""
        return _QUANTIZATIONS.get(self._number("general.file_type", -1), "unknown")

    @property
    def parameter_size(self) -> str:
        """The number of parameters as people say it: "135M", "7.2B"."""
        for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
            if self.n_params >= size:
                value = self.n_params / size
                return f"{value:.0f}{letter}" if value >= 20 or letter != "B" else f"{value:.1f}{letter}"
        return str(self.n_params)

    @property
    def n_ctx_train(self) -> int:
        """Tokens of context that the model was trained for; 0 where the file doesn't say."""
        return self._of_family("context_length")

    @property
    def n_embd(self) -> int:
        """The length of the model's vectors; 0 where the file doesn't say."""
        return self._of_family("embedding_length")

    @property
    def chat_template(self) -> str | None:
        """The GGUF's own."""
        template = self.metadata.get(_TEMPLATE)
        return template if isinstance(template, str) else None

    @property
    def is_generative(self) -> bool:
        """Whether it writes text; else it only makes vectors."""
        return self.metadata.get(f"{self.architecture}.attention.causal", True) is not False

    @property
    def is_embedder(self) -> bool:
        """Whether it was made for embeddings or ranks."""
        return not self.is_generative or f"{self.architecture}.pooling_type" in self.metadata

    @property
    def is_ranker(self) -> bool:
        """Whether it scores pairs of query and document."""
        return self._of_family("pooling_type") == _RANK_POOLING

    def kv_bytes(self, n_tokens: int) -> int:
        """About what the KV cache of `n_tokens` takes, in halves; sliding windows and compressed caches take less."""
        n_heads = self._of_family("attention.head_count")
        n_kv_heads = self._of_family("attention.head_count_kv") or n_heads
        head_size = self.n_embd // n_heads if n_heads else 0
        widths = [self._of_family(f"attention.{name}_length") or head_size for name in ("key", "value")]
        return self._of_family("block_count") * n_tokens * n_kv_heads * sum(widths) * _KV_BYTES

    def _of_family(self, key: str) -> int:
        return self._number(f"{self.architecture}.{key}", 0)

    def _number(self, key: str, default: int) -> int:
        """A number of the metadata; of one per layer the largest."""
        value = self.metadata.get(key, default)
        numbers = value if isinstance(value, tuple) else (value,)
        return max((int(number) for number in numbers if isinstance(number, int)), default=default)


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A model of the catalogue. `details` is None where its file isn't here or can't be read.

    source: as models.txt has it, of a local file its name. template, codec, is_for_embeddings: what models.txt says.
    n_ctx_slot: None unless loaded.
    memory_bytes: about what it takes while it is loaded (files and KV cache), else 0. n_running, n_waiting: requests now.
    expires_at_s: when it will be unloaded if nobody asks for it, in seconds since 1970; None: never, or it isn't loaded.
    """

    alias: str
    source: str
    state: ModelState
    details: ModelDetails | None = None
    is_default: bool = False
    template: str | None = None
    codec: str | None = None
    is_for_embeddings: bool = False
    n_slots: int | None = None
    n_ctx_slot: int | None = None
    memory_bytes: int = 0
    n_running: int = 0
    n_waiting: int = 0
    n_kv_tokens: int = 0
    expires_at_s: float | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether it has a live process."""
        return self.state in ("ready", "restarting")


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far a fetch is. `name` is of the file that is coming; `total_bytes` None where the source doesn't say."""

    name: str
    done_bytes: int
    total_bytes: int | None
