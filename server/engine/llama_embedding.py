"""llama.cpp contexts that give vectors instead of logits. The bindings are handed in by `llama`, their only importer."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server.engine.backend import BackendError, Batch
from server.engine.llama_batch import NativeBatch
from server.engine.messages import Pooling, RankFrame

_POOLINGS: dict[str, Pooling] = {"1": "mean", "2": "cls", "3": "last", "4": "rank"}
_POOL_NONE = 0
_FIELDS = ("{query}", "{document}")


class NativeEmbeddings:
    """`backend.EmbeddingContext`: a context of its own over a model that is loaded already. Raises BackendError.

    `flash_attention` is that of the replies' context on a GPU, and off on the CPU: its values there are coarser, by 1 in 1,000
    of a vector's largest, for no gain in time.
    """

    def __init__(
        self,
        lib: Any,
        model: Any,
        n_ctx: int,
        n_batch: int,
        n_sequences: int,
        *,
        is_pooled: bool,
        pooling: Pooling,
        n_threads: int,
        flash_attention: int,
    ) -> None:
        self._lib = lib
        self.n_ctx, self.n_batch = n_ctx, n_batch
        self._n_embd = int(lib.llama_model_n_embd_out(model))
        self._n_pooled = int(lib.llama_model_n_cls_out(model)) if pooling == "rank" else self._n_embd
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = n_batch
        params.n_seq_max = n_sequences
        params.n_threads = params.n_threads_batch = n_threads
        params.kv_unified = True
        params.embeddings = True
        params.flash_attn_type = flash_attention
        params.pooling_type = _pooling_type(pooling) if is_pooled else _POOL_NONE
        self._context = lib.llama_init_from_model(model, params)
        if not self._context:
            raise BackendError(f"llama.cpp can't make a context for embeddings of {n_ctx} tokens")
        self._memory = lib.llama_get_memory(self._context)
        self._batch = NativeBatch(lib, n_batch)

    def decode(self, batch: Batch) -> float:
        native = self._batch.filled(batch)
        begun = time.monotonic()
        code = self._lib.llama_decode(self._context, native)
        if code != 0:
            raise BackendError(f"llama_decode failed with code {code}")
        return time.monotonic() - begun

    def row(self, index: int) -> NDArray[np.float32]:
        return _floats(self._lib.llama_get_embeddings_ith(self._context, index), self._n_embd)

    def pooled(self, seq_id: int) -> NDArray[np.float32]:
        return _floats(self._lib.llama_get_embeddings_seq(self._context, seq_id), self._n_pooled)

    def clear(self) -> None:
        if self._memory:
            self._lib.llama_memory_clear(self._memory, False)

    def free(self) -> None:
        self._batch.free()
        self._lib.llama_free(self._context)


def _pooling_type(pooling: Pooling) -> int:
    return next(int(number) for number, name in _POOLINGS.items() if name == pooling)


def _floats(pointer: Any, count: int) -> NDArray[np.float32]:
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    if not address:
        raise BackendError("llama.cpp gives no vector for an input")
    memory: Any = (ctypes.c_float * count).from_address(address)
    return np.array(np.frombuffer(memory, dtype=np.float32))


def pooling_of(metadata: dict[str, str]) -> Pooling:
    """How the model's vectors become one: what its file says, else their mean."""
    return _POOLINGS.get(metadata.get(f"{metadata.get('general.architecture')}.pooling_type", ""), "mean")


def is_causal(metadata: dict[str, str]) -> bool:
    """Whether the model could write text: others see all of an input at once."""
    return metadata.get(f"{metadata.get('general.architecture')}.attention.causal", "true") != "false"


def rank_frame(lib: Any, model: Any, vocabulary: Any) -> RankFrame:
    """What stands around query and document: by the file's own template, else as the vocabulary ends and parts texts."""
    template = lib.llama_model_chat_template(model, b"rerank")
    text = template.decode("utf-8", "replace") if template else ""
    if all(text.count(name) == 1 for name in _FIELDS) and text.index(_FIELDS[0]) < text.index(_FIELDS[1]):
        before, rest = text.split(_FIELDS[0])
        between, after = rest.split(_FIELDS[1])
        return RankFrame(*(vocabulary.tokenize(part, False, True) for part in (before, between, after)))
    handle = vocabulary.handle
    bos, eos, sep = (int(get(handle)) for get in (lib.llama_vocab_bos, lib.llama_vocab_eos, lib.llama_vocab_sep))
    ends = (eos if eos >= 0 else sep,) if lib.llama_vocab_get_add_eos(handle) else ()
    parts = (sep,) if lib.llama_vocab_get_add_sep(handle) else ()
    frame = ((bos,) if lib.llama_vocab_get_add_bos(handle) else (), ends + parts, ends or parts)
    return RankFrame(*(tuple(token for token in tokens if token >= 0) for tokens in frame))
