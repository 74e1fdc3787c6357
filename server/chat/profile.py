"""How model families mark their thinking, and which family a model is of: told by its chat template and its vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from server.engine.client import EngineClient


@dataclass(frozen=True, slots=True)
class ReasoningProfile:
    """The markers around thinking. `gap` is what the family writes between the end and the answer."""

    start: str
    end: str
    gap: str = ""


PROFILES: tuple[ReasoningProfile, ...] = (
    ReasoningProfile("<think>", "</think>", "\n\n"),
    ReasoningProfile("<|channel>thought\n", "<channel|>"),
    ReasoningProfile("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ReasoningProfile("[THINK]", "[/THINK]"),
    ReasoningProfile("<reasoning>", "</reasoning>", "\n\n"),
    ReasoningProfile("<thinking>", "</thinking>", "\n\n"),
    ReasoningProfile("<thought>", "</thought>", "\n\n"),
    ReasoningProfile("<|begin_of_thought|>", "<|end_of_thought|>", "\n\n"),
    ReasoningProfile("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningProfile("<seed:think>", "</seed:think>"),
    ReasoningProfile("◁think▷", "◁/think▷"),
)
"""First match first. A template speaks a family's form when the first marker of its end, or of its start, stands in it."""


@dataclass(frozen=True, slots=True)
class Reasoner:
    """A model's profile. `is_told`: its template has it, else only its vocabulary. `is_in_vocabulary`: markers are tokens."""

    profile: ReasoningProfile
    is_told: bool
    is_in_vocabulary: bool


async def find_reasoner(template: str, engine: EngineClient) -> Reasoner | None:
    """How the model thinks; None for one that shows no sign of it."""
    for profile in PROFILES:
        if _is_told(profile, template):
            return Reasoner(profile, is_told=True, is_in_vocabulary=await _has_markers(profile, engine))
    for profile in PROFILES:
        if await _has_markers(profile, engine):
            return Reasoner(profile, is_told=False, is_in_vocabulary=True)
    return None


def tells_of_thinking(template: str) -> bool:
    """Whether a template has the markers of some family, with a switch or without."""
    return any(_is_told(profile, template) for profile in PROFILES)


def _is_told(profile: ReasoningProfile, template: str) -> bool:
    """Markup of several tokens is put together in templates, so its first words are enough."""
    return profile.end in template or ("|" in profile.start and profile.start.strip() in template)


async def _has_markers(profile: ReasoningProfile, engine: EngineClient) -> bool:
    return await _is_marked(profile.start, engine) and await _is_marked(profile.end, engine)


async def _is_marked(marker: str, engine: EngineClient) -> bool:
    """Whether the vocabulary has the marker: it is one token, or begins with a control token."""
    special = await engine.tokenize(marker, add_special=False, parse_special=True)
    return len(special) == 1 or special != await engine.tokenize(marker, add_special=False, parse_special=False)
