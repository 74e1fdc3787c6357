"""What happens to a message before the step loop sees it: questions are answered at once, requests are made ready.

Runs beside the step loop, so that tokenizing a prompt, reading a grammar (a native parse of 377 KB takes 15 ms) and making
samplers never hold up a decode. Requests with a grammar have a lane of their own, so a slow grammar delays no others.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from typing_extensions import assert_never

from converters.grammar.match.memory import Memory
from server.engine.backend import Backend, GrammarRejected
from server.engine.core import Inbox
from server.engine.embedding import EmbedJob
from server.engine.messages import (
    Add,
    Cancel,
    CheckGrammar,
    Detokenize,
    DropGrammar,
    Embed,
    EngineRequest,
    Failed,
    FailureKind,
    InspectSlots,
    Load,
    Pieces,
    PutGrammar,
    Question,
    Reply,
    SetBusy,
    Shutdown,
    StepOutput,
    ToChild,
    Tokenize,
    TokenizeAll,
    ToParent,
)
from server.engine.route import Route, Ruling, make_route, make_ruling
from server.engine.sequence import Job
from server.engine.slots import Inspection
from server.engine.spelling import Speller
from server.engine.watchdog import Watchdog, no_watchdog

logger = logging.getLogger(__name__)

_ENTRIES = 500_000  # what the matchers of all grammars remember together: about 100 MB

_SEED_BITS = 32
_PREDICTED_CHARACTERS = 8  # of a prediction for each token that a reply may have; more of it is no use


class Refusal(Exception):
    """A request that can't be started, and why."""

    def __init__(self, kind: FailureKind, message: str, detail: dict[str, int] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail or {}


class Intake:
    """Takes all messages but Load, from one thread. What the step loop should see goes to `inbox`, answers to `emit`."""

    def __init__(
        self,
        backend: Backend,
        inbox: Inbox,
        emit: Callable[[ToParent], None],
        fast_forward: bool = True,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._backend = backend
        self._inbox = inbox
        self._emit = emit
        self._plain = ThreadPoolExecutor(1, "intake")
        self._constrained = ThreadPoolExecutor(1, "intake-grammar")
        self._questions = ThreadPoolExecutor(1, "intake-questions")
        self._speller = Speller(backend.vocabulary)
        self._fast_forward = fast_forward
        self._watchdog = watchdog or no_watchdog()
        self._rulings: dict[str, Ruling | Refusal] = {}
        self._memory = Memory(_ENTRIES)
        self._lock = threading.Lock()
        self._preparing: set[int] = set()
        self._cancelled: set[int] = set()

    def handle(self, message: ToChild) -> None:
        """Take one message; never waits for a decode or a grammar."""
        match message:
            case Tokenize() | TokenizeAll() | Detokenize() | Pieces():
                self._questions.submit(self._answer, message)
            case CheckGrammar():
                self._constrained.submit(self._answer, message)
            case Embed():
                self._embed(message)
            case InspectSlots():
                self._inbox.put(Inspection(message.question, self._emit))
            case PutGrammar():
                self._constrained.submit(self._put_grammar, message)
            case DropGrammar():
                self._constrained.submit(self._rulings.pop, message.key, None)
            case Add():
                self._add(message.request)
            case Cancel():
                self._cancel(message)
            case SetBusy() | Shutdown():
                self._inbox.put(message)
            case Load():
                raise AssertionError("a model is loaded once, before anything else")
            case _:
                assert_never(message)

    def close(self) -> None:
        """Prepare nothing more."""
        for lane in (self._plain, self._constrained, self._questions):
            lane.shutdown(wait=True, cancel_futures=True)

    # -- questions

    def _answer(self, question: Tokenize | TokenizeAll | Detokenize | Pieces | CheckGrammar) -> None:
        try:
            reply = Reply(question.question, self._value(question))
        except Refusal as refusal:
            reply = _refused(question, refusal)
        except Exception as error:
            reply = _refused(question, _bug(error, f"question {question.question} can't be answered"))
        self._emit(reply)

    def _value(self, question: Tokenize | TokenizeAll | Detokenize | Pieces | CheckGrammar) -> object:
        vocabulary = self._backend.vocabulary
        match question:
            case Tokenize(text=text):
                return vocabulary.tokenize(text, question.add_special, question.parse_special)
            case TokenizeAll():
                return self._tokenized(question)
            case Detokenize(tokens=tokens):
                return b"".join(vocabulary.piece(token) for token in self._known(tokens))
            case Pieces(tokens=tokens):
                return tuple(vocabulary.piece(token) for token in self._known(tokens))
            case CheckGrammar(key=key):
                self._ruling(key)
                return None
            case _:
                assert_never(question)

    def _tokenized(self, question: TokenizeAll) -> tuple[tuple[int, ...] | int, ...]:
        found: list[tuple[int, ...] | int] = []
        for text in question.texts:
            least = self._least_tokens(text)
            if least > question.most:
                return (*found, least)
            found.append(self._backend.vocabulary.tokenize(text, question.add_special, question.parse_special))
        return tuple(found)

    def _least_tokens(self, text: str) -> int:
        """Tokens that `text` has at least, however long each is."""
        return -(-len(text.encode()) // self._backend.vocabulary.longest_piece)

    def _known(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens, checked against the vocabulary."""
        n_tokens = self._backend.vocabulary.n_tokens
        for token in tokens:
            if not 0 <= token < n_tokens:
                raise Refusal(FailureKind.BAD_REQUEST, f"{token} is not a token of the model: ids go from 0 to {n_tokens - 1}")
        return tokens

    def _embed(self, question: Embed) -> None:
        try:
            inputs = tuple(self._embeddable(tokens) for tokens in question.inputs)
        except Refusal as refusal:
            self._emit(_refused(question, refusal))
        else:
            self._inbox.put(EmbedJob(question.question, inputs, question.is_ranking, self._emit))

    def _embeddable(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        n_most = self._backend.info.n_ctx_embed
        if not 0 < len(tokens) <= n_most:
            raise Refusal(FailureKind.CONTEXT_OVERFLOW, f"an input has {len(tokens)} tokens, not 1 to {n_most}")
        return self._known(tokens)

    # -- grammars

    def _put_grammar(self, message: PutGrammar) -> None:
        if message.key in self._rulings:
            return
        try:
            with self._watchdog.watch("reading a grammar"):
                self._rulings[message.key] = self._read_grammar(message)
        except GrammarRejected as error:
            self._rulings[message.key] = Refusal(FailureKind.CONSTRAINT_REJECTED, str(error))
        except Exception as error:
            self._rulings[message.key] = _bug(error, f"the grammar {message.key} can't be read")

    def _read_grammar(self, message: PutGrammar) -> Ruling:
        grammar = self._backend.compile_grammar(message.gbnf)
        n_ctx = self._backend.info.n_ctx_slot
        return make_ruling(grammar, message.tables, self._speller, n_ctx, fast_forward=self._fast_forward, memory=self._memory)

    def _ruling(self, key: str) -> Ruling:
        match self._rulings.get(key):
            case None:
                raise Refusal(FailureKind.GENERATION_FAILED, f"no grammar is known under the key {key}")
            case Refusal() as refusal:
                raise refusal.with_traceback(None)  # else it grows each time
            case ruling:
                return ruling

    # -- requests

    def _add(self, request: EngineRequest) -> None:
        with self._lock:
            self._preparing.add(request.id)
        lane = self._constrained if request.grammar_keys else self._plain
        lane.submit(self._make_ready, request)

    def _cancel(self, message: Cancel) -> None:
        with self._lock:
            if message.id in self._preparing:
                self._cancelled.add(message.id)
            else:
                self._inbox.put(message)

    def _make_ready(self, request: EngineRequest) -> None:
        try:
            with self._watchdog.watch(f"preparing request {request.id}"):
                job = self.prepare(request)
        except Refusal as refusal:
            self._refuse(request, refusal)
        except Exception as error:
            self._refuse(request, _bug(error, f"request {request.id} can't be prepared"))
        else:
            self._hand_over(job)

    def _refuse(self, request: EngineRequest, refusal: Refusal) -> None:
        self._is_cancelled(request.id)
        self._emit(StepOutput((Failed(request.id, refusal.kind, refusal.message, detail=refusal.detail),)))

    def _is_cancelled(self, request_id: int) -> bool:
        with self._lock:
            self._preparing.discard(request_id)
            if request_id in self._cancelled:
                self._cancelled.remove(request_id)
                return True
            return False

    def _hand_over(self, job: Job) -> None:
        """To the step loop, unless a Cancel has come meanwhile; one that comes later finds the job there."""
        with self._lock:
            self._preparing.discard(job.id)
            if job.id not in self._cancelled:
                self._inbox.put(job)
                return
            self._cancelled.remove(job.id)
        job.free_samplers()

    def prepare(self, request: EngineRequest) -> Job:
        """The request as the step loop takes it. Raises Refusal."""
        if not self._backend.info.can_generate:
            raise Refusal(FailureKind.BAD_REQUEST, "this model makes embeddings and writes no text")
        prompt = self._prompt(request)
        max_new = self._max_new(request, len(prompt))
        self._known(tuple(token for token, _ in request.sampling.logit_bias))
        route = self._route(request, max_new)
        seed = request.sampling.seed if request.sampling.seed is not None else secrets.randbits(_SEED_BITS)
        job = Job(request, prompt, max_new, samplers=[], route=route, visible=self._visible(request))
        job.prediction = self._prediction(request)
        first = None if route is None else route.first_grammar  # copied here, not in the step loop
        for index in range(request.n):
            sampler = self._backend.new_sampler(request.sampling, (seed + index) % (1 << _SEED_BITS), first)
            sampler.accept_prompt(prompt)
            job.samplers.append(sampler)
        return job

    def _prediction(self, request: EngineRequest) -> tuple[int, ...]:
        """As far as a reply may be long."""
        n_ctx = self._backend.info.n_ctx_slot
        text = request.prediction[: n_ctx * _PREDICTED_CHARACTERS]
        return self._backend.vocabulary.tokenize(text, False, False)[:n_ctx] if text else ()

    def _route(self, request: EngineRequest, max_new: int) -> Route | None:
        """What rules the replies. Raises Refusal where no reply could be completed."""
        try:
            route = make_route(request, self._ruling, self._speller)
        except GrammarRejected as error:
            raise Refusal(FailureKind.CONSTRAINT_REJECTED, str(error)) from None
        needed = None if route is None or request.max_tokens == 0 else route.needed
        if needed is None or needed <= max_new:
            return route
        room = "the context leaves room for" if request.max_tokens is None else "max_tokens is"
        raise Refusal(
            FailureKind.TOO_FEW_TOKENS,
            f"the shortest reply that fits the constraint needs {needed} tokens, but {room} {max_new}",
            {"n_needed": needed, "max_tokens": max_new},
        )

    def _visible(self, request: EngineRequest) -> frozenset[int]:
        """Control tokens that count as text: those that grammars name, and markers."""
        ids: set[int] = set()
        for key in request.grammar_keys:
            ids |= self._ruling(key).grammar.named_tokens
        markers = (request.thinking.start, request.thinking.end) if request.thinking is not None else ()
        for text in (*markers, *request.visible):
            ids.update(self._backend.vocabulary.tokenize(text, False, True))
        return frozenset(ids)

    def _prompt(self, request: EngineRequest) -> tuple[int, ...]:
        vocabulary = self._backend.vocabulary
        if isinstance(request.prompt, str):
            self._check_length(request.prompt)
            prompt = vocabulary.tokenize(request.prompt, request.add_special, request.parse_special)
        else:
            prompt = self._known(request.prompt)
        if not prompt and (start := vocabulary.fallback_start) is not None:
            prompt = (start,)
        if not prompt:
            raise Refusal(FailureKind.BAD_REQUEST, "the prompt is empty, and the model has no token that begins a text")
        return prompt

    def _check_length(self, prompt: str) -> None:
        """Refuse what can't fit, however long its tokens are: finding them in megabytes takes seconds that others wait."""
        n_ctx = self._backend.info.n_ctx_slot
        least = self._least_tokens(prompt)
        if least > n_ctx:
            raise Refusal(
                FailureKind.CONTEXT_OVERFLOW,
                f"the prompt has {least} tokens or more, but the context has room for {n_ctx} tokens",
                {"n_prompt_tokens": least, "n_ctx": n_ctx},
            )

    def _max_new(self, request: EngineRequest, n_prompt: int) -> int:
        """Tokens that each choice may have. Raises Refusal where they don't fit beside the prompt."""
        n_ctx = self._backend.info.n_ctx_slot
        n_asked = request.max_tokens
        if request.clips_to_context and n_asked is not None and n_prompt + n_asked > n_ctx:
            n_asked = None
        if n_prompt + (1 if n_asked is None else n_asked) > n_ctx:
            wanted = f"{n_prompt} tokens of prompt" + ("" if n_asked is None else f" and max_tokens {n_asked}")
            raise Refusal(
                FailureKind.CONTEXT_OVERFLOW,
                f"the request needs {wanted}, but the context has room for {n_ctx} tokens",
                {"n_prompt_tokens": n_prompt, "n_ctx": n_ctx} | ({} if n_asked is None else {"max_tokens": n_asked}),
            )
        return n_ctx - n_prompt if n_asked is None else n_asked


def _bug(error: Exception, what: str) -> Refusal:
    """What to tell where our own code fails, which the log hears too: nobody must be left waiting, or told something else."""
    logger.error(what, exc_info=error)
    return Refusal(FailureKind.GENERATION_FAILED, f"{type(error).__name__}: {error}")


def _refused(question: Question, refusal: Refusal) -> Reply:
    return Reply(question.question, error=refusal.message, kind=refusal.kind)
