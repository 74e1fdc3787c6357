"""What a request wants of a model's thinking -> the block that its answer begins with, and the grammar inside it.

Spec section 7. Knows no dialect; markers are `profile`'s.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from converters.compile import CompileOptions
from converters.constraint import Lark
from converters.errors import ConversionError
from converters.tools.splitter import ReasoningMarkers
from server.chat.constraint import CompileOutcome, ConstraintCompiler, reject
from server.chat.profile import Reasoner, ReasoningProfile
from server.chat.types import ChatPrompt, GenerateRequest
from server.engine.client import EngineClient
from server.engine.messages import Thinking
from server.errors import BadRequest

logger = logging.getLogger("gramserve.reasoning")

MEDIUM = 1024
BUDGETS: Mapping[str, int | None] = {
    "none": 0,
    "minimal": 256,
    "low": 256,
    "medium": MEDIUM,
    "normal": MEDIUM,
    "high": 4096,
    "xhigh": None,
    "max": None,
    "chain_of_thought": MEDIUM,
    "cot": MEDIUM,
    "cove": MEDIUM,
}
"""Tokens of thinking by effort; None: as many as the answer leaves."""
_FORMS = ("chain_of_thought", "cot", "cove")

CUSTOM = "custom:"
_HOLE = "{text}"
_MAX_TEMPLATE_BYTES = 4096
_N_LINES = 20  # of a chain of thought
_SPECIAL = frozenset(r"\.^$*+?()[]{}|/")


@dataclass(frozen=True, slots=True)
class Effort:
    """A `reasoning_effort`. `template`: of `custom:`, what stands between its holes is forced.

    `is_shared`: the effort says a form, not an amount, so at most half of max_tokens goes into it as well.
    """

    name: str
    max_tokens: int | None
    template: str | None = None
    is_shared: bool = False

    def bound(self, max_tokens: int | None) -> int | None:
        """Tokens of the block in an answer of `max_tokens`; None: as many as the answer leaves."""
        return _shared(self.max_tokens, max_tokens) if self.is_shared else self.max_tokens


def _shared(bound: int | None, max_tokens: int | None) -> int | None:
    half = None if max_tokens is None else max_tokens // 2
    return half if bound is None else bound if half is None else min(bound, half)


def effort_of(request: GenerateRequest) -> Effort | None:
    """What the request says of its thinking; None: nothing. Raises BadRequest."""
    effort = None if request.effort is None else parse_effort(request.effort)
    if request.budget_tokens is None:
        return effort
    if effort is None:
        return Effort("budget", request.budget_tokens)
    return replace(effort, max_tokens=request.budget_tokens, is_shared=False)


def parse_effort(text: str, param: str = "reasoning_effort") -> Effort:
    """Raises BadRequest that lists what there is."""
    if text.startswith(CUSTOM):
        template = text.removeprefix(CUSTOM)
        if not template.strip():
            raise BadRequest(f"{param}: custom: needs a template after it", param=param)
        if len(template.encode("utf-8", "replace")) > _MAX_TEMPLATE_BYTES:
            raise BadRequest(f"{param}: a template may have at most {_MAX_TEMPLATE_BYTES} bytes", param=param)
        return Effort("custom", MEDIUM, template, is_shared=True)
    if text not in BUDGETS:
        raise BadRequest(f"{param} must be one of {', '.join(BUDGETS)} or custom:TEMPLATE, not {text!r}", param=param)
    return Effort(text, BUDGETS[text], is_shared=text in _FORMS)


@dataclass(frozen=True, slots=True)
class ThinkingWish:
    """What is known of a reply's thinking before its prompt is rendered.

    switch: how the template's switch is set (None: as it is). inside: the compiled grammar of the block, if one rules it.
    """

    reasoner: Reasoner | None = None
    effort: Effort | None = None
    switch: bool | None = None
    inside: CompileOutcome | None = None

    @property
    def is_off(self) -> bool:
        """Whether there is to be no thinking."""
        return self.switch is False or (self.switch is None and self.effort is not None and self.effort.max_tokens == 0)

    def markers(self, prompt: str, *, is_constrained: bool) -> ReasoningMarkers | None:
        """What the splitter looks for after the rendered `prompt`."""
        if self.reasoner is None or not (self.reasoner.is_told or self.effort is not None):
            return None
        profile = self.reasoner.profile
        gap = profile.gap if is_constrained else None
        return ReasoningMarkers(profile.start.strip(), profile.end, is_inside=_is_open(prompt, profile), gap=gap)

    def block(self, prompt: str, max_tokens: int | None, *, is_constrained: bool) -> Thinking | None:
        """The block that the answer to the rendered `prompt` begins with, may begin with, or None."""
        if self.reasoner is None or not self.reasoner.is_in_vocabulary:
            return None
        if not self.reasoner.is_told and self.effort is None:
            return None
        profile = self.reasoner.profile
        is_open = _is_open(prompt, profile)
        block = Thinking(profile.start, profile.end, profile.gap, is_open)
        if self.is_off:
            return None if is_constrained and not is_open else replace(block, max_tokens=0)
        if self.effort is not None:
            key = None if self.inside is None else self.inside.key
            is_forced = (is_constrained or key is not None) and not is_open
            return replace(block, is_forced=is_forced, max_tokens=self.effort.bound(max_tokens), grammar_key=key)
        if not is_constrained:
            return block
        return replace(block, max_tokens=_shared(MEDIUM, max_tokens))


def _is_open(prompt: str, profile: ReasoningProfile) -> bool:
    return prompt.rstrip().endswith(profile.start.rstrip())


def switch_of(prompt: ChatPrompt, effort: Effort | None, *, has_switch: bool, default: bool | None) -> bool | None:
    """How a template's switch is to be set: explicitly, by the effort, else by the server's `default`; None: not at all."""
    if prompt.thinking is not None:
        return prompt.thinking
    for name in ("thinking", "enable_thinking"):
        if isinstance(prompt.kwargs.get(name), bool):
            return bool(prompt.kwargs[name])
    if not has_switch:
        return None
    return default if effort is None else effort.max_tokens != 0


# ---- the grammar inside a block


async def compile_inside(
    effort: Effort, profile: ReasoningProfile, engine: EngineClient, compiler: ConstraintCompiler
) -> CompileOutcome | None:
    """The grammar of what this effort wants in the block, its end marker included; None: the thinking is free.

    Raises ConstraintRejected.
    """
    body = _body(effort, profile.end)
    if body is None:
        return None
    tokens = await engine.tokenize(profile.end, add_special=False, parse_special=True)
    plain = await engine.tokenize(profile.end, add_special=False, parse_special=False)
    end = json.dumps(profile.end) if tokens == plain else " ".join(f"<[{token}]>" for token in tokens)
    try:
        return await compiler.compile(Lark(f"start: BODY {end}\nBODY: /{body}/\n"), CompileOptions())
    except ConversionError as error:
        raise reject(error, "reasoning_effort") from None


def _body(effort: Effort, end: str) -> str | None:
    """The thinking as a regex; it never has the end marker in it."""
    line = f"(?:(?!{_escaped(end)})[^\\n])+"
    match effort.name:
        case "chain_of_thought" | "cot":
            lines = ""
            for number in range(_N_LINES, 0, -1):
                lines = f"{number}\\. {line}\\n" + (f"(?:{lines})?" if lines else "")
            return lines
        case "cove":
            draft, revision = _hole("\nChecks:\n", end), _hole("\n", end)
            return f"Draft: {draft}\\nChecks:\\n(?:- {line}\\n)+Revision: {revision}\\n"
        case "custom":
            return _filled(effort.template or "", end)
        case _:
            return None


def _filled(template: str, end: str) -> str:
    """A template's regex: its text as it is, any text in its holes."""
    first, *rest = template.split(_HOLE)
    return _escaped(first) + "".join(_hole(text, end) + _escaped(text) for text in rest)


def _hole(after: str, end: str) -> str:
    """Any text up to `after`, at least a character."""
    stops = [_escaped(text) for text in (after, end) if text]
    return f"(?:(?!{'|'.join(stops)})[\\s\\S])+"


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in _SPECIAL else "\\n" if char == "\n" else char for char in text)
