"""GenerateRequest -> prompts -> constraint -> engine requests -> events. Knows no dialect and no HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from typing_extensions import assert_never

from server.chat import types
from server.chat.constraint import CompileOutcome, ConstraintCompiler, compile_requested, constraint_notices
from server.chat.description import with_description
from server.chat.embedding import Embeddings, EmbedRequest, embed
from server.chat.infill import with_suffix
from server.chat.merge import merge
from server.chat.model import LoadedModel, ModelManager
from server.chat.profile import Reasoner, find_reasoner
from server.chat.prompt import builtin_template, can_think, render_prompt
from server.chat.reasoning import Effort, ThinkingWish, compile_inside, effort_of, switch_of
from server.chat.templates import CHATML
from server.chat.tools import OpenedCalls, codec_of, opened_calls, tool_constraint, with_tools_described
from server.chat.turn import Turn, TurnFormat
from server.chat.types import ChatPrompt, Event, GenerateRequest, Prompt, TextPrompt, TokenPrompt
from server.chat.vocabulary import check_tokens
from server.constraints import check_size
from server.engine.client import EngineClient
from server.engine.messages import (
    EngineEvent,
    EngineRequest,
    Failed,
    Finished,
    ModelInfo,
    PromptScored,
    Started,
    TextChunk,
    Thinking,
)
from server.errors import BadRequest, ConstraintRejected, ContextOverflow, GenerationFailed, UnsupportedParameter
from server.settings import Settings

logger = logging.getLogger("gramserve.reasoning")

NO_MARKERS = "the wish how much to think has no effect: the model's vocabulary has no markers of thinking"


_LONG_CHARS = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Job:
    """One engine request: `first_index` is its first choice's number in the whole answer, `echo` the prompt's text."""

    request: EngineRequest
    first_index: int
    echo: str | None
    format: TurnFormat = field(default_factory=TurnFormat)
    turns: dict[int, Turn] = field(default_factory=dict)

    def turn(self, index: int) -> Turn:
        """The reading of choice `index` of this request."""
        if index not in self.turns:
            self.turns[index] = Turn(self.first_index + index, self.format)
        return self.turns[index]


@dataclass(frozen=True, slots=True)
class _Rules:
    """What an answer is held to, compiled: all of it, calls that the model opens, its thinking."""

    outcome: CompileOutcome | None = None
    calls: OpenedCalls = field(default_factory=OpenedCalls)
    wish: ThinkingWish = field(default_factory=ThinkingWish)

    def block(self, prompt: ChatPrompt, text: str, max_tokens: int | None) -> Thinking | None:
        """The block of thinking that the answer to `prompt`, rendered as `text`, may begin with: none where it goes on."""
        if prompt.continue_final_message:
            return None
        return self.wish.block(text, max_tokens, is_constrained=self.outcome is not None)

    @property
    def outcomes(self) -> tuple[CompileOutcome, ...]:
        """Everything that the engine has to know."""
        return tuple(entry for entry in (self.outcome, self.wish.inside, *self.calls.outcomes) if entry is not None)

    def notices(self, stop: Sequence[str]) -> tuple[types.Notice, ...]:
        """What the caller should know."""
        notices = self.calls.notices if self.outcome is None else constraint_notices(self.outcome.compiled, stop)
        wish = self.wish
        is_unheard = wish.effort is not None and not wish.is_off and not (wish.reasoner and wish.reasoner.is_in_vocabulary)
        return (*notices, types.Notice(NO_MARKERS)) if is_unheard else notices


@dataclass(frozen=True, slots=True)
class Service:
    """Generations for every dialect. `template` replaces the templates of all models (a setting of the server)."""

    manager: ModelManager
    compiler: ConstraintCompiler
    settings: Settings
    template: str | None = None
    _reasoners: dict[tuple[str, str], Reasoner | None] = field(init=False, default_factory=dict)  # by model and template

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """The events that answer a request, Started first, Completed last. Closing the generator cancels the request.

        Whatever is wrong with the request is raised before Started. A choice that fails later lets the others end first.
        """
        model = await self.manager.engine(request.model)
        with model.in_use():
            async with aclosing(self.generate_with(model, request)) as events:
                async for event in events:
                    yield event

    async def generate_with(self, model: LoadedModel, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """The same with a model that is in use already."""
        request = await with_suffix(request, model)
        _check_tokens(request, model.engine.info)
        effort = effort_of(request)
        request, calls = await self._with_tools(request, model)
        outcome = None
        if request.constraint is not None:
            outcome = await compile_requested(self.compiler, request.constraint)
        wish = await self._wish(request, model, effort)
        rules = _Rules(outcome, calls, wish)
        jobs = await self._plan(request, model, rules)
        async with aclosing(_run(model, request, jobs, rules)) as events:
            async for event in events:
                yield event

    async def embed(self, request: EmbedRequest) -> Embeddings:
        """Vectors of texts. Raises what `embedding.embed` does."""
        return await embed(self.manager, request)

    async def whole_constraint(self, request: GenerateRequest) -> types.RequestedConstraint | None:
        """What holds the answer from its first token: the request's constraint with what its tools make of it."""
        if request.tools is None:
            return request.constraint
        model = await self.manager.engine(request.model)
        with model.in_use():
            return (await self._with_constraint(request, model)).constraint

    async def _with_constraint(self, request: GenerateRequest, model: LoadedModel) -> GenerateRequest:
        """The request with what its tools hold the whole answer to."""
        prompt = request.prompts[0]
        if request.tools is None or not isinstance(prompt, ChatPrompt):
            return request
        codec = codec_of(model.codec, self._template(prompt, model))
        return replace(request, constraint=await tool_constraint(request.tools, codec, model.engine, request.constraint))

    async def _with_tools(self, request: GenerateRequest, model: LoadedModel) -> tuple[GenerateRequest, OpenedCalls]:
        """The request with what its tools hold the whole answer to, and what holds calls that the model opens by itself."""
        request = await self._with_constraint(request, model)
        prompt = request.prompts[0]
        if request.tools is None or request.constraint is not None or not isinstance(prompt, ChatPrompt):
            return request, OpenedCalls()
        codec = codec_of(model.codec, self._template(prompt, model))
        if codec is None:
            return request, OpenedCalls()
        return request, await opened_calls(self.compiler, request.tools, codec, model.engine)

    async def _wish(self, request: GenerateRequest, model: LoadedModel, effort: Effort | None) -> ThinkingWish:
        """What the answer's thinking is to be like, its grammar compiled."""
        prompt = request.prompts[0]
        if not isinstance(prompt, ChatPrompt):
            return ThinkingWish()
        source = self._template(prompt, model)
        reasoner = await self._reasoner(source, model)
        can_block = reasoner is not None and reasoner.is_in_vocabulary
        is_bare = request.constraint is not None and not can_block  # the answer is held from its first token
        default = False if self.settings.disable_reasoning or is_bare else None
        switch = switch_of(prompt, effort, has_switch=can_think(source), default=default)
        wish = ThinkingWish(reasoner, effort, switch)
        if effort is None or wish.is_off:
            return wish
        if reasoner is None or not can_block:
            logger.warning("%s: %s", model.name, NO_MARKERS)
            return wish
        return replace(wish, inside=await compile_inside(effort, reasoner.profile, model.engine, self.compiler))

    async def _reasoner(self, source: str, model: LoadedModel) -> Reasoner | None:
        key = (model.name, source)
        if key not in self._reasoners:
            self._reasoners[key] = await find_reasoner(source, model.engine)
        return self._reasoners[key]

    async def prompt_text(self, request: GenerateRequest) -> str:
        """The text of the first prompt, a chat, as `generate` has it."""
        model = await self.manager.engine(request.model)
        with model.in_use():
            return await self.prompt_text_with(model, request)

    async def prompt_text_with(self, model: LoadedModel, request: GenerateRequest) -> str:
        """The same with a model that is in use already."""
        request = await self._with_constraint(request, model)
        prompt = _described(request.prompts[0], request)
        assert isinstance(prompt, ChatPrompt)
        wish = await self._wish(request, model, effort_of(request))
        rendering = partial(self.render, prompt, model, wish.switch)
        return await asyncio.to_thread(rendering) if _is_long(prompt) else rendering()

    async def count_prompt_tokens(self, request: GenerateRequest, most: int | None = None) -> int:
        """Tokens of the first prompt, a chat, as `generate` counts them.

        Where there are more than `most` for sure, this may be the least number there can be, which costs nothing to find.
        Without `most` the text is bounded as that of /tokenize is. Raises BadRequest.
        """
        model = await self.manager.engine(request.model)
        with model.in_use():
            text = await self.prompt_text_with(model, request)
            if most is None:
                check_size(text, request.param, self.settings.request_limits.tokenize_bytes, "tokenize_bytes")
            has_start = _has_bos(text, model.engine.info)
            if most is None:
                return len(await model.engine.tokenize(text, add_special=not has_start))
            (found,) = await model.engine.tokenize_all((text,), add_special=not has_start, most=most)
            return found if isinstance(found, int) else len(found)

    def _format(self, request: GenerateRequest, prompt: Prompt, text: object, model: LoadedModel, rules: _Rules) -> TurnFormat:
        """What the answer to a rendered prompt may hold: no thinking where a constraint rules from the first token."""
        if not isinstance(prompt, ChatPrompt) or not isinstance(text, str):
            return TurnFormat()
        may_think = request.constraint is None or rules.block(prompt, text, request.max_tokens) is not None
        reasoning = rules.wish.markers(text, is_constrained=rules.outcome is not None) if may_think else None
        if request.tools is None:
            return TurnFormat(reasoning=reasoning)
        return TurnFormat(codec_of(model.codec, self._template(prompt, model)), request.tools.tools, reasoning)

    def render(self, prompt: ChatPrompt, model: LoadedModel, switch: bool | None = None) -> str:
        """The text of a chat prompt by the template that counts for it; `switch`: of its thinking, None: as it is."""
        source = self._template(prompt, model)
        prompt = with_tools_described(prompt, codec_of(model.codec, source), source)
        if switch is None and prompt.thinking is None and can_think(source) and self.settings.disable_reasoning:
            switch = False
        if prompt.thinking is None and switch is not None:
            prompt = replace(prompt, thinking=switch)
        text = render_prompt(prompt, source, model.engine.info)
        return prompt.before + text.removeprefix(model.engine.info.bos_token) if prompt.before else text

    def _template(self, prompt: ChatPrompt, model: LoadedModel) -> str:
        if prompt.template is not None:
            return builtin_template(prompt.template)
        if self.template is not None:
            return self.template
        if model.template is not None:
            return builtin_template(model.template)
        return model.engine.info.chat_template or CHATML

    async def _plan(self, request: GenerateRequest, model: LoadedModel, rules: _Rules) -> list[_Job]:
        """One engine request per prompt."""
        base = EngineRequest(
            id=0,
            prompt="",
            n=request.n,
            sampling=request.sampling,
            grammar_key=rules.outcome.key if rules.outcome is not None else None,
            stop=request.stop,
            max_tokens=request.max_tokens,
            clips_to_context=request.clips_to_context,
            logprobs=request.logprobs,
            prompt_logprobs=request.logprobs if request.echo else None,
            unconstrained_on_failure=self.settings.constraint_failure == "unconstrained",
            on_length=request.on_length,
            prediction=request.prediction,
            triggers=rules.calls.triggers,
            ends_after_call=request.tools is not None and not request.tools.is_parallel,
            visible=self._call_markers(request, model),
        )
        jobs: list[_Job] = []
        for i, prompt in enumerate(request.prompts):
            prompt = _described(prompt, request)
            rendering = partial(self._with_prompt, base, prompt, model, rules)
            ready = await asyncio.to_thread(rendering) if _is_long(prompt) else rendering()
            turn_format = self._format(request, prompt, ready.prompt, model, rules)
            echo = await _prompt_text(ready, model.engine) if request.echo else None
            jobs.append(_Job(ready, i * request.n, echo, turn_format))
        return await _tokenized(jobs, model.engine, request.param) if len(jobs) > 1 else jobs

    def _call_markers(self, request: GenerateRequest, model: LoadedModel) -> tuple[str, ...]:
        """What the splitter must see, control tokens or not."""
        prompt = request.prompts[0]
        if request.tools is None or not isinstance(prompt, ChatPrompt):
            return ()
        codec = codec_of(model.codec, self._template(prompt, model))
        return () if codec is None else codec.markers

    def _with_prompt(self, base: EngineRequest, prompt: Prompt, model: LoadedModel, rules: _Rules) -> EngineRequest:
        info = model.engine.info
        match prompt:
            case ChatPrompt():
                text = self.render(prompt, model, rules.wish.switch)
                block = rules.block(prompt, text, base.max_tokens)
                return replace(base, prompt=text, add_special=not _has_bos(text, info), thinking=block)
            case TextPrompt(text=text):
                return replace(base, prompt=text or info.bos_token or info.eos_token, add_special=bool(text))
            case TokenPrompt(tokens=tokens):
                return replace(base, prompt=tokens)
            case _:
                assert_never(prompt)


# ---- planning


def _described(prompt: Prompt, request: GenerateRequest) -> Prompt:
    """The prompt, with words about the constraint where the request wants them. Raises UnsupportedParameter without a chat."""
    constraint = request.constraint
    if constraint is None or not constraint.is_described:
        return prompt
    if not isinstance(prompt, ChatPrompt):
        raise UnsupportedParameter("inject_schema needs a chat's messages", param="inject_schema")
    return with_description(prompt, constraint.constraint)


def _has_bos(text: str, info: ModelInfo) -> bool:
    """Whether a template has written the token that begins a text."""
    return bool(info.bos_token) and text.startswith(info.bos_token)


def _is_long(prompt: Prompt) -> bool:
    """Whether a template may take so long over it that the event loop should not wait."""
    return isinstance(prompt, ChatPrompt) and sum(len(message.content) + 64 for message in prompt.messages) > _LONG_CHARS


def _check_tokens(request: GenerateRequest, info: ModelInfo) -> None:
    check_tokens((token for token, _ in request.sampling.logit_bias), info, "logit_bias")
    for prompt in request.prompts:
        if not isinstance(prompt, TokenPrompt):
            continue
        if len(prompt.tokens) > info.n_ctx_slot:
            message = f"{request.param} has {len(prompt.tokens)} tokens, but the context has room for {info.n_ctx_slot}"
            raise ContextOverflow(message, param=request.param)
        check_tokens(prompt.tokens, info, request.param)


async def _prompt_text(request: EngineRequest, engine: EngineClient) -> str:
    if isinstance(request.prompt, str):
        return request.prompt
    return (await engine.detokenize(request.prompt)).decode("utf-8", "replace")


async def _tokenized(jobs: list[_Job], engine: EngineClient, param: str) -> list[_Job]:
    """A batch: the lengths are checked now, since the stream's headers go out when the first prompt starts."""
    first = jobs[0].request
    most = engine.info.n_ctx_slot - (1 if first.clips_to_context else first.max_tokens or 0)
    tokens = {i: job.request.prompt for i, job in enumerate(jobs) if not isinstance(job.request.prompt, str)}
    found: dict[int, tuple[int, ...] | int] = {}
    for add_special in (True, False):
        chosen = [i for i, job in enumerate(jobs) if i not in tokens and job.request.add_special is add_special]
        texts = tuple(str(jobs[i].request.prompt) for i in chosen)
        if texts:
            entries = await engine.tokenize_all(texts, add_special=add_special, most=most)
            found |= dict(zip(chosen, entries))  # noqa: B905 - shorter where one is too long
    for i, entry in sorted({**tokens, **found}.items()):
        if isinstance(entry, int) or len(entry) > most:
            raise _too_long(f"{param}[{i}]", entry, first, engine.info)
        tokens[i] = entry
    return [replace(job, request=replace(job.request, prompt=tokens[i])) for i, job in enumerate(jobs)]


def _too_long(param: str, tokens: tuple[int, ...] | int, request: EngineRequest, info: ModelInfo) -> ContextOverflow:
    n_tokens = f"{tokens} tokens or more" if isinstance(tokens, int) else f"{len(tokens)} tokens"
    message = f"{param} has {n_tokens}; with max_tokens {request.max_tokens or 0} that is over {info.n_ctx_slot}"
    return ContextOverflow(message, param=param)


def _field_at_fault(error: BadRequest, request: GenerateRequest, info: ModelInfo) -> str | None:
    """The request's field behind an error that the engine found, which knows no fields."""
    match error:
        case ConstraintRejected():
            return request.constraint.param if request.constraint is not None else None
        case ContextOverflow():
            return "max_tokens" if (request.max_tokens or 0) >= info.n_ctx_slot else request.param
        case _:
            return None


def _rename_max_tokens(error: BadRequest, name: str) -> None:
    """The engine, and what it says, calls the bound `max_tokens`."""
    if error.param == "max_tokens":
        error.param = name
    error.message = error.message.replace("max_tokens", name)


# ---- running


@dataclass(slots=True)
class _Tally:
    """What a running request has come to. Failures of single choices wait here until the others have ended."""

    usage: types.Usage = field(default_factory=types.Usage)
    failures: list[tuple[range, str]] = field(default_factory=list)  # of which choices
    is_started: bool = False

    def failure(self, n_choices: int) -> str:
        """What went wrong in which choices, each thing once."""
        failed: dict[str, set[int]] = {}
        for choices, message in self.failures:
            failed.setdefault(message, set()).update(choices)
        return "; ".join(f"{_choices(numbers, n_choices)}{message}" for message, numbers in failed.items())

    def add_started(self, event: Started) -> None:
        self.usage = replace(
            self.usage,
            n_prompt_tokens=self.usage.n_prompt_tokens + event.n_prompt_tokens,
            n_cached_tokens=self.usage.n_cached_tokens + event.n_cached_tokens,
        )

    def add_finished(self, event: Finished, *, is_predicted: bool) -> None:
        n_accepted, n_refused = event.n_fulfilled_tokens, event.n_predicted_tokens - event.n_fulfilled_tokens
        self.usage = replace(
            self.usage,
            n_completion_tokens=self.usage.n_completion_tokens + event.n_completion_tokens,
            n_reasoning_tokens=self.usage.n_reasoning_tokens + event.n_reasoning_tokens,
            n_forced_tokens=self.usage.n_forced_tokens + event.n_forced_tokens,
            n_accepted_tokens=self.usage.n_accepted_tokens + n_accepted,
            n_refused_tokens=self.usage.n_refused_tokens + n_refused,
            is_predicted=is_predicted,
            prompt_s=max(self.usage.prompt_s, event.prompt_s),
            decode_s=max(self.usage.decode_s, event.decode_s),
        )


def _choices(numbers: set[int], n_choices: int) -> str:
    """Before what is told of some choices: which; "" where it is all of them."""
    if len(numbers) == n_choices:
        return ""
    return f"choice{'s' if len(numbers) > 1 else ''} {', '.join(map(str, sorted(numbers)))}: "


async def _run(model: LoadedModel, request: GenerateRequest, jobs: list[_Job], rules: _Rules) -> AsyncGenerator[Event, None]:
    tally = _Tally()
    notices = rules.notices(request.stop)
    sources = [_EngineSource(model.engine, job.request, rules.outcomes) for job in jobs]
    width = max(1, model.engine.info.n_slots // jobs[0].request.n)
    try:
        async with aclosing(merge(sources, width)) as merged:
            async for number, event in merged:
                if isinstance(event, Started) and not tally.is_started:
                    tally.is_started = True
                    yield _started(event, model, request, notices)
                for translated in _translate(event, jobs[number], tally):
                    yield translated
    except BadRequest as error:
        error.param = error.param or _field_at_fault(error, request, model.engine.info)
        if request.max_tokens_param != "max_tokens":
            _rename_max_tokens(error, request.max_tokens_param)
        raise
    if tally.failures:
        raise GenerationFailed(tally.failure(request.n_choices))
    yield types.Completed(tally.usage)


def _started(event: Started, model: LoadedModel, request: GenerateRequest, notices: tuple[types.Notice, ...]) -> types.Started:
    is_clipped = event.n_prompt_tokens + (request.max_tokens or 0) > model.engine.info.n_ctx_slot
    n_prompt, n_cached = event.n_prompt_tokens, event.n_cached_tokens
    return types.Started(model.name, request.n_choices, notices, n_prompt, n_cached, is_clipped)


@dataclass(frozen=True, slots=True)
class _EngineSource:
    """An engine request that hasn't begun: calling it adds it to the engine's queue."""

    engine: EngineClient
    request: EngineRequest
    outcomes: tuple[CompileOutcome, ...]

    async def __call__(self) -> AsyncGenerator[EngineEvent, None]:
        for outcome in self.outcomes:
            await self.engine.put_grammar(outcome.key, outcome.compiled.gbnf, outcome.compiled.tables)
        events: AsyncIterator[EngineEvent] = self.engine.generate(self.request)
        try:
            async for event in events:
                yield event
        finally:
            if isinstance(events, AsyncGenerator):
                await asyncio.shield(events.aclose())


def _translate(event: EngineEvent, job: _Job, tally: _Tally) -> list[Event]:
    first = job.first_index
    match event:
        case Started():
            tally.add_started(event)
            return _echo(job) if job.request.prompt_logprobs is None else []
        case PromptScored():
            return _echo(job, event)
        case TextChunk():
            if job.format.is_plain:
                return [types.TextDelta(first + event.index, event.text, event.logprobs)]
            return job.turn(event.index).feed(event.text, event.logprobs)
        case Finished():
            tally.add_finished(event, is_predicted=bool(job.request.prediction))
            rest = [] if job.format.is_plain else job.turn(event.index).finish()
            index = first + event.index
            return [*rest, types.ChoiceCompleted(index, event.reason, event.n_completion_tokens, event.stop_string)]
        case Failed():
            of_request = range(first, first + job.request.n)
            choices = of_request if event.index is None else of_request[event.index : event.index + 1]
            tally.failures.append((choices, event.message))
            return []
        case _:
            assert_never(event)


def _echo(job: _Job, scored: PromptScored | None = None) -> list[Event]:
    if job.echo is None:
        return []
    first_token = scored.first_token[1] if scored is not None else None
    logprobs = tuple(entry for entry in scored.tokens if entry is not None) if scored is not None else ()
    return [types.PromptEcho(job.first_index + k, job.echo, first_token, logprobs) for k in range(job.request.n)]
