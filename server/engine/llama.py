"""llama.cpp through its C API: the only module that imports `llama_cpp`. Model, KV cache, batches, native samplers.

No policy lives here: what to decode and how to draw is decided in `core`, `scheduler` and `sampling`. Not the high-level
`Llama` class, which holds one sequence at a time.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from server.engine.backend import BackendError, Batch, EmbeddingContext, Grammar, GrammarRejected, Logits, SavedSequence
from server.engine.bias import LogitBias
from server.engine.governor import ThreadGovernor
from server.engine.grammar_tokens import find_tokens
from server.engine.llama_batch import NativeBatch
from server.engine.llama_draft import NativeDraft, vocabulary_difference
from server.engine.llama_embedding import NativeEmbeddings, is_causal, pooling_of, rank_frame
from server.engine.llama_vocabulary import LlamaVocabulary
from server.engine.logprobs import score_row
from server.engine.mask import GrammarMask, Ids, Mask
from server.engine.messages import ModelInfo, ModelSpec, Sampling, TokenLogprobs
from server.engine.mirostat import Mirostat
from server.engine.prototypes import Prototypes
from server.engine.sampling import Candidates, SequenceSampler, Stage, rules_of
from server.engine.threads import default_threads

_RANDOM_SEED = 0xFFFFFFFF  # llama.cpp's word for "any seed"
_PIECE_BYTES = 256
_WARNING, _ERROR = 3, 4  # ggml's log levels
_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_MIN_KEEP = 1
_MAX_SEQUENCES = 256
_LEAST_OUTPUTS = 32
_CPU_DECODE_COST = 1.2  # two cores with a small model: 6.5 ms, and 5.4 ms a token
_GPU_DECODE_COST = 20.0  # reading the weights takes nearly all of the time that a few tokens take
_CTX_STEP = 256  # llama.cpp rounds a slot's context up to a multiple of this


class LoadError(Exception):
    """The model can't be loaded. One line, for the user."""


class NativeLog:
    """llama.cpp's log: warnings and errors go on to stderr, where the parent keeps them.

    The first error is kept: it has the reason, those after it only say who else failed by it.
    """

    def __init__(self) -> None:
        self.clear()
        self._callback = lib.llama_log_callback(self._write)
        lib.llama_log_set(self._callback, None)

    def clear(self) -> None:
        """Something new begins."""
        self.first_error = "no reason given"
        self._has_error = False

    def _write(self, level: int, text: bytes, _data: object) -> None:
        if level not in (_WARNING, _ERROR):
            return
        line = text.decode("utf-8", "replace")
        sys.stderr.write(line)
        if level == _ERROR and line.strip() and not self._has_error:
            self._has_error = True
            self.first_error = " ".join(line.split())


@cache
def native_log() -> NativeLog:
    """The one log: llama.cpp has one callback for the whole process."""
    return NativeLog()


# ---- candidates and samplers


class NativeCandidates:
    """The candidate array of `sampling.Candidates`: one buffer for the whole vocabulary, shared by numpy and llama.cpp."""

    def __init__(self, n_vocab: int) -> None:
        self._buffer = np.zeros(n_vocab, dtype=_TOKEN_DATA)
        self._whole = np.zeros(n_vocab, dtype=_TOKEN_DATA)  # copied at once, which is quicker than id by id
        self._whole["id"] = np.arange(n_vocab, dtype=np.int32)
        self._ids = self._buffer["id"]
        self._logits = self._buffer["logit"]
        self._data: Any = ctypes.cast(self._buffer.ctypes.data, lib.llama_token_data_p)
        self.array = lib.llama_token_data_array(self._data, 0, -1, False)
        self.pointer = ctypes.byref(self.array)

    @property
    def ids(self) -> Ids:
        return self._ids[: self.array.size]

    @property
    def logits(self) -> NDArray[np.float32]:
        return self._logits[: self.array.size]

    def fill(self, ids: Ids, logits: NDArray[np.float32]) -> None:
        n_ids = len(ids)
        if n_ids == len(logits):
            self._buffer[:] = self._whole
            self._logits[:] = logits
        else:
            self._ids[:n_ids] = ids
            self._logits[:n_ids] = logits[ids]
        self._set(n_ids, is_sorted=False)

    def keep(self, which: Mask | NDArray[np.intp]) -> None:
        kept = self._buffer[: self.array.size][which]
        self._buffer[: len(kept)] = kept
        self._set(len(kept), self.array.sorted and which.dtype == np.bool_)

    def drop(self, position: int) -> None:
        size = self.array.size
        self._buffer[position : size - 1] = self._buffer[position + 1 : size].copy()
        self._set(size - 1, self.array.sorted)

    def _set(self, size: int, is_sorted: bool) -> None:
        self.array.data = self._data
        self.array.size = size
        self.array.selected = -1
        self.array.sorted = is_sorted


class NativeStage:
    """One or more of llama.cpp's samplers in a chain, as a `sampling.Stage`. Owns them."""

    def __init__(self, samplers: Iterable[Any]) -> None:
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        for sampler in samplers:
            lib.llama_sampler_chain_add(self._chain, sampler)

    def apply(self, candidates: Candidates) -> None:
        assert isinstance(candidates, NativeCandidates)
        lib.llama_sampler_apply(self._chain, candidates.pointer)

    def accept(self, token: int) -> None:
        lib.llama_sampler_accept(self._chain, token)

    def free(self) -> None:
        lib.llama_sampler_free(self._chain)


class DropImpossible:
    """A `Stage` that drops candidates with a logit of -inf: top-n-sigma leaves them in, and typical-p makes NaN of them."""

    def apply(self, candidates: Candidates) -> None:
        possible = candidates.logits > -np.inf
        if not possible.all():
            candidates.keep(possible)

    def accept(self, token: int) -> None:
        """Nothing to note."""

    def free(self) -> None:
        """Nothing native here."""


class NativeDist:
    """llama.cpp's seeded draw: the softmax of what is left, with a Mersenne Twister of its own."""

    def __init__(self, seed: int) -> None:
        self._sampler = lib.llama_sampler_init_dist(seed)

    def pick(self, candidates: Candidates) -> int:
        assert isinstance(candidates, NativeCandidates)
        lib.llama_sampler_apply(self._sampler, candidates.pointer)
        return int(candidates.array.selected)

    def free(self) -> None:
        lib.llama_sampler_free(self._sampler)


class NativeGrammar:
    """llama.cpp's grammar sampler as `mask.NativeGrammar`. `scratch` is shared by all grammars of one thread."""

    def __init__(self, sampler: Any, scratch: NativeCandidates) -> None:
        self._sampler = sampler
        self._scratch = scratch

    def filter(self, ids: Ids) -> Mask:
        scratch = self._scratch
        scratch._ids[: len(ids)] = ids
        scratch._logits[: len(ids)] = 0.0
        scratch._set(len(ids), is_sorted=False)
        lib.llama_sampler_apply(self._sampler, scratch.pointer)
        return np.asarray(scratch.logits == 0.0)

    def permits(self, token: int) -> bool:
        scratch = self._scratch
        scratch._ids[0] = token
        scratch._logits[0] = 0.0
        scratch._set(1, is_sorted=False)
        lib.llama_sampler_apply(self._sampler, scratch.pointer)
        return bool(scratch._logits[0] == 0.0)

    def accept(self, token: int) -> None:
        lib.llama_sampler_accept(self._sampler, token)

    def free(self) -> None:
        lib.llama_sampler_free(self._sampler)


class PristineGrammar:
    """A grammar in its first state (`backend.Grammar`), with the tokens that its text names."""

    def __init__(self, sampler: Any, named_tokens: frozenset[int], negates: bool) -> None:
        self._sampler = sampler
        self.named_tokens = named_tokens
        self.negates = negates

    def instance(self, scratch: NativeCandidates) -> NativeGrammar:
        """A copy for one sequence."""
        return NativeGrammar(lib.llama_sampler_clone(self._sampler), scratch)

    def __del__(self) -> None:
        lib.llama_sampler_free(self._sampler)


# ---- the model


class LlamaBackend:
    """`backend.Backend` over one llama.cpp model and context. Raises LoadError.

    On the CPU a sequence's logits are the same bits alone and beside others, with one thread and with several, however its
    prompt is cut into chunks of two or more tokens: each slot has its own KV cache, and flash attention is off, unless the
    spec asks for it. Its sums there are others for prompts in chunks of 64 tokens and more, and from 257 tokens of context on
    for a token that is decoded alone (which the threads share among themselves by position): up to a tenth quicker in short
    contexts, slower in long ones. Not promised: the same bits on a GPU, on another machine, or from another build.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._log = native_log()
        self._log.clear()
        lib.llama_backend_init()
        self._repacks = not _has_amx() if spec.repack is None else spec.repack
        self._model = self._load(spec.path, spec.n_gpu_layers)
        self.vocabulary = LlamaVocabulary(lib, lib.llama_model_get_vocab(self._model))
        n_train = int(lib.llama_model_n_ctx_train(self._model))
        self._n_ctx_slot = spec.n_ctx_of(n_train)
        self.n_batch = max(spec.n_batch, spec.n_slots)
        self.n_outputs = max(_LEAST_OUTPUTS, spec.n_slots)
        is_on_gpu = spec.n_gpu_layers != 0 and lib.llama_supports_gpu_offload()
        self.decode_cost = _GPU_DECODE_COST if is_on_gpu else _CPU_DECODE_COST
        self._flash_attention = _flash_attention(spec.flash_attention, is_on_gpu)
        self._embeddings_flash_attention = self._flash_attention if is_on_gpu else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._governor = ThreadGovernor(spec.n_threads or default_threads())
        self._n_threads = self._governor.n_threads
        self._generates = not spec.embedding and is_causal(self._metadata())
        self._context = self._open(spec) if self._generates else None
        self._memory = lib.llama_get_memory(self._context) if self._generates else None
        self.can_rewind = _can_rewind(self._model)
        drafts = self._generates and self.can_rewind and spec.draft_path is not None
        self.draft = self._open_draft(spec, spec.draft_path) if drafts and spec.draft_path else None
        self._batch = NativeBatch(lib, self.n_batch)
        self._rows: dict[int, NDArray[np.float32]] = {}  # views of llama.cpp's output rows by address
        self._candidates = NativeCandidates(self.vocabulary.n_tokens)
        self._scratch = NativeCandidates(self.vocabulary.n_tokens)
        self._prototypes: Prototypes[Any] = Prototypes(lib.llama_sampler_clone, lib.llama_sampler_free)
        self.info = self._describe(spec, n_train)

    def _load(self, path: str, n_gpu_layers: int) -> Any:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.use_extra_bufts = self._repacks
        model = lib.llama_model_load_from_file(path.encode(), params)
        if not model:
            raise LoadError(f"llama.cpp can't load {path}: {self._log.first_error}")
        if lib.llama_model_has_encoder(model) or not lib.llama_model_has_decoder(model):
            raise LoadError(f"{path} is not a decoder-only language model")
        return model

    def _open_draft(self, spec: ModelSpec, path: str) -> NativeDraft:
        model = self._load(path, spec.n_gpu_layers)
        vocabulary = LlamaVocabulary(lib, lib.llama_model_get_vocab(model))
        difference = vocabulary_difference(lib, self.vocabulary, vocabulary)
        if difference is not None:
            raise LoadError(f"{path} can't draft for {spec.path}: {difference}")
        if not _can_rewind(model):
            raise LoadError(f"{path} can't draft: its state can't be taken back by a token")
        share = lib.llama_model_size(model) / lib.llama_model_size(self._model)
        params = self._context_params(spec)
        try:
            return NativeDraft(lib, model, params, vocabulary, self.vocabulary.n_tokens, share, self._governor)
        except BackendError as error:
            raise LoadError(f"{error}: {self._log.first_error}") from None

    def _context_params(self, spec: ModelSpec) -> Any:
        if not 0 < spec.n_slots <= _MAX_SEQUENCES:
            raise LoadError(f"from 1 to {_MAX_SEQUENCES} slots are possible, not {spec.n_slots}")
        params = lib.llama_context_default_params()
        params.n_ctx = -(-self._n_ctx_slot // _CTX_STEP) * _CTX_STEP * spec.n_slots
        params.n_batch = params.n_ubatch = self.n_batch
        params.n_seq_max = spec.n_slots
        params.n_outputs_max = self.n_outputs
        params.n_threads = params.n_threads_batch = self._n_threads
        params.kv_unified = False
        params.flash_attn_type = self._flash_attention
        return params

    def _open(self, spec: ModelSpec) -> Any:
        params = self._context_params(spec)
        context = lib.llama_init_from_model(self._model, params)
        if not context:
            wanted = f"{params.n_ctx} tokens ({spec.n_slots} slots of {self._n_ctx_slot})"
            raise LoadError(f"llama.cpp can't make a context of {wanted}: {self._log.first_error}")
        return context

    def _describe(self, spec: ModelSpec, n_train: int) -> ModelInfo:
        vocabulary, handle, model = self.vocabulary, self.vocabulary.handle, self._model
        metadata = self._metadata()
        template = lib.llama_model_chat_template(model, None)
        description = ctypes.create_string_buffer(_PIECE_BYTES)
        lib.llama_model_desc(model, description, _PIECE_BYTES)
        return ModelInfo(
            name=metadata.get("general.name", ""),
            n_vocab=vocabulary.n_tokens,
            n_ctx_slot=self._n_ctx_slot,
            n_ctx_train=n_train,
            n_slots=spec.n_slots,
            n_params=int(lib.llama_model_n_params(model)),
            size_bytes=int(lib.llama_model_size(model)),
            description=description.value.decode("utf-8", "replace"),
            chat_template=template.decode("utf-8", "replace") if template else None,
            bos_token=self._token_text(lib.llama_vocab_bos(handle)),
            eos_token=self._token_text(lib.llama_vocab_eos(handle)),
            add_bos=bool(lib.llama_vocab_get_add_bos(handle)),
            add_space_prefix=vocabulary.is_sentencepiece and metadata.get("tokenizer.ggml.add_space_prefix", "true") != "false",
            metadata=metadata,
            can_generate=self._generates,
            is_causal=is_causal(metadata),
            n_embd=int(lib.llama_model_n_embd_out(model)),
            n_ctx_embed=self._n_ctx_slot if is_causal(metadata) else min(self._n_ctx_slot, n_train),
            pooling=pooling_of(metadata),
            rank_frame=rank_frame(lib, model, vocabulary) if pooling_of(metadata) == "rank" else None,
        )

    def _token_text(self, token: int) -> str:
        return self.vocabulary.piece(token).decode("utf-8", "replace") if token >= 0 else ""

    def _metadata(self) -> dict[str, str]:
        """The model file's scalar metadata; llama.cpp cuts long values."""
        pairs = {}
        for i in range(lib.llama_model_meta_count(self._model)):
            key = self._meta_text(lib.llama_model_meta_key_by_index, i)
            if not key.startswith("tokenizer.chat_template"):
                pairs[key] = self._meta_text(lib.llama_model_meta_val_str_by_index, i)
        return pairs

    def _meta_text(self, read: Any, position: int) -> str:
        buffer = ctypes.create_string_buffer(4096)
        read(self._model, position, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    # -- decoding

    def decode(self, batch: Batch) -> None:
        native = self._batch.filled(batch)
        n_threads = self._use_threads(len(batch))
        begun, cpu_begun = time.monotonic(), time.process_time()
        code = lib.llama_decode(self._context, native)
        self._governor.learn(len(batch), n_threads, time.monotonic() - begun, time.process_time() - cpu_begun)
        if code != 0:
            raise BackendError(f"llama_decode failed with code {code}")

    def _use_threads(self, n_tokens: int) -> int:
        n_threads = self._governor.choose(n_tokens)
        if n_threads != self._n_threads:
            self._n_threads = n_threads
            lib.llama_set_n_threads(self._context, n_threads, n_threads)
        return n_threads

    def logits(self, index: int) -> Logits:
        address = ctypes.cast(lib.llama_get_logits_ith(self._context, index), ctypes.c_void_p).value
        if not address:
            raise BackendError(f"no logits for token {index} of the batch")
        if (row := self._rows.get(address)) is None:
            memory: Any = (ctypes.c_float * self.vocabulary.n_tokens).from_address(address)
            row = self._rows[address] = np.frombuffer(memory, dtype=np.float32)
        return row

    def keep(self, logits: Logits) -> Logits:
        assert isinstance(logits, np.ndarray)
        return logits.copy()

    def score(self, logits: Logits, token: int, n_top: int) -> TokenLogprobs:
        assert isinstance(logits, np.ndarray)
        return score_row(logits, token, n_top, self.vocabulary.piece)

    def save_sequence(self, seq_id: int) -> SavedSequence:
        size = lib.llama_state_seq_get_size(self._context, seq_id)
        saved = (ctypes.c_uint8 * size)()
        if lib.llama_state_seq_get_data(self._context, saved, size, seq_id) != size:
            raise BackendError("a sequence can't be copied out of the KV cache")
        return saved, None if self.draft is None else self.draft.save(seq_id)

    def load_sequence(self, seq_id: int, saved: SavedSequence) -> None:
        assert isinstance(saved, tuple)
        cells, drafts_cells = saved
        if lib.llama_state_seq_set_data(self._context, cells, len(cells), seq_id) != len(cells):
            raise BackendError("a sequence can't be copied into the KV cache")
        if self.draft is not None:
            self.draft.load(seq_id, drafts_cells)

    def truncate_sequence(self, seq_id: int, n_tokens: int) -> bool:
        if self.draft is not None:
            self.draft.truncate(seq_id, n_tokens)
        if lib.llama_memory_seq_pos_min(self._memory, seq_id) != 0:  # a sliding window has lost the beginning
            return False
        return bool(lib.llama_memory_seq_rm(self._memory, seq_id, n_tokens, -1))

    def remove_sequence(self, seq_id: int) -> None:
        if self.draft is not None:
            self.draft.clear(seq_id)
        lib.llama_memory_seq_rm(self._memory, seq_id, -1, -1)

    def rewind_sequence(self, seq_id: int, n_tokens: int) -> None:
        if not lib.llama_memory_seq_rm(self._memory, seq_id, n_tokens, -1):
            raise BackendError("tokens can't be taken back out of the KV cache")

    def open_embeddings(self, n_ctx: int, n_batch: int, n_sequences: int, *, is_pooled: bool) -> EmbeddingContext:
        return NativeEmbeddings(
            lib,
            self._model,
            n_ctx,
            n_batch,
            n_sequences,
            is_pooled=is_pooled,
            pooling=self.info.pooling,
            n_threads=self._n_threads,
            flash_attention=self._embeddings_flash_attention,
        )

    def set_busy(self, busy: bool) -> None:
        self._governor.is_busy = busy

    # -- sampling

    def compile_grammar(self, gbnf: str) -> Grammar:
        names = find_tokens(gbnf, self.vocabulary.n_tokens, lambda name: self.vocabulary.tokenize(name, False, True))
        for token in sorted(names.asked):
            if self.vocabulary.is_eog(token):
                piece = self.vocabulary.piece(token).decode("utf-8", "replace")
                raise GrammarRejected(f"the grammar names the token {piece}, which ends the reply: that can't stand in a text")
        if not gbnf.strip() or "\0" in gbnf:
            raise GrammarRejected("the grammar is empty or holds a NUL")
        sampler = lib.llama_sampler_init_grammar(self.vocabulary.handle, gbnf.encode(), b"root")
        if not sampler:
            raise GrammarRejected("llama.cpp can't read the grammar")
        grammar = PristineGrammar(sampler, names.ids, names.negates)
        mask = self._mask(grammar, NativeCandidates(self.vocabulary.n_tokens))
        try:
            if not mask.can_end and not mask.can_continue():
                raise GrammarRejected("the model's vocabulary can't spell any sentence of the grammar")
        finally:
            mask.free()
        return grammar

    def _mask(self, grammar: Grammar, scratch: NativeCandidates) -> GrammarMask:
        assert isinstance(grammar, PristineGrammar)
        named = np.array(sorted(grammar.named_tokens), dtype=np.int32)
        return GrammarMask(grammar.instance(scratch), self.vocabulary.index, named, grammar.negates)

    def new_sampler(self, sampling: Sampling, seed: int, grammar: Grammar | None) -> SequenceSampler:
        seed = seed if seed != _RANDOM_SEED else seed - 1
        return SequenceSampler(
            rules=rules_of(sampling),
            index=self.vocabulary.index,
            candidates=self._candidates,
            weigh=self._weigh(sampling),
            shape=_shape(sampling, seed),
            dist=NativeDist(seed),
            mask_of=lambda grammar: self._mask(grammar, self._scratch),
            grammar=grammar,
        )

    def _weigh(self, sampling: Sampling) -> list[Stage]:
        """Bias, penalties and DRY: what changes logits token by token."""
        samplers = []
        biases = tuple((token, bias) for token, bias in sampling.logit_bias if bias > -np.inf)
        first: list[Stage] = [LogitBias(biases, self.vocabulary.n_tokens)] if biases else []
        penalties = (sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty)
        if penalties != (1.0, 0.0, 0.0) and (last_n := self._last_n(sampling.repeat_last_n)):
            samplers.append(lib.llama_sampler_init_penalties(self.vocabulary.n_tokens, last_n, *penalties))
        if sampling.dry_multiplier > 0:
            samplers.append(self._prototypes.take(sampling, lambda: self._dry(sampling)))
        return [*first, NativeStage(samplers)] if samplers else first

    def _last_n(self, last_n: int) -> int:
        """-1 is the whole context; llama.cpp would take memory for more."""
        return self._n_ctx_slot if last_n < 0 else min(last_n, self._n_ctx_slot)

    def _dry(self, sampling: Sampling) -> Any:
        breakers = [breaker.encode() for breaker in sampling.dry_sequence_breakers]
        array = (ctypes.c_char_p * len(breakers))(*breakers)
        return lib.llama_sampler_init_dry(
            self.vocabulary.handle,
            sampling.dry_multiplier,
            sampling.dry_base,
            sampling.dry_allowed_length,
            self._last_n(sampling.dry_penalty_last_n),
            array,
            len(breakers),
        )


def _has_amx() -> bool:
    """Whether llama.cpp would use the AMX unit of Intel's servers.

    Its code for that unit dies at the first decode (SIGSEGV at `ldtilecfg`) as GCC 12.2 builds it, which drops the stores of
    the unit's configuration. It also takes one token through other code than several, where a sequence's numbers must not
    depend on who shares its decode.
    """
    return b"AMX_INT8 = 1" in lib.llama_print_system_info()


def _flash_attention(wanted: bool | None, is_on_gpu: bool) -> int:
    """llama.cpp's number for it: on a GPU its own choice, elsewhere off, where nothing else is wanted."""
    if wanted is None:
        return int(lib.LLAMA_FLASH_ATTN_TYPE_AUTO if is_on_gpu else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED)
    return int(lib.LLAMA_FLASH_ATTN_TYPE_ENABLED if wanted else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED)


def _can_rewind(model: Any) -> bool:
    """Whether the newest tokens can be taken back: the state of a recurrent model is of its whole text."""
    return not (lib.llama_model_is_recurrent(model) or lib.llama_model_is_hybrid(model))


def _shape(sampling: Sampling, seed: int) -> list[Stage]:
    """Truncation and temperature in llama.cpp's default order, or temperature and Mirostat."""
    if sampling.temperature <= 0:
        return []
    if sampling.mirostat:
        mirostat = Mirostat(sampling.mirostat, sampling.mirostat_tau, sampling.mirostat_eta)
        return [NativeStage([_temperature(sampling)]), mirostat]
    sigma: list[Stage] = []
    if sampling.top_n_sigma > 0:
        sigma = [NativeStage([lib.llama_sampler_init_top_n_sigma(sampling.top_n_sigma)]), DropImpossible()]
    return [*sigma, NativeStage([*_truncation(sampling, seed), _temperature(sampling)])]


def _truncation(sampling: Sampling, seed: int) -> Sequence[Any]:
    samplers = []
    if sampling.top_k > 0:
        samplers.append(lib.llama_sampler_init_top_k(sampling.top_k))
    if sampling.typical_p < 1:
        samplers.append(lib.llama_sampler_init_typical(sampling.typical_p, _MIN_KEEP))
    if sampling.top_p < 1:
        samplers.append(lib.llama_sampler_init_top_p(sampling.top_p, _MIN_KEEP))
    if sampling.min_p > 0:
        samplers.append(lib.llama_sampler_init_min_p(sampling.min_p, _MIN_KEEP))
    if sampling.xtc_probability > 0:
        samplers.append(lib.llama_sampler_init_xtc(sampling.xtc_probability, sampling.xtc_threshold, _MIN_KEEP, seed))
    return samplers


def _temperature(sampling: Sampling) -> Any:
    if sampling.dynatemp_range > 0:
        return lib.llama_sampler_init_temp_ext(sampling.temperature, sampling.dynatemp_range, sampling.dynatemp_exponent)
    return lib.llama_sampler_init_temp(sampling.temperature)
