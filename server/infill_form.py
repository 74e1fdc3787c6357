"""The forms in which models are asked to fill a middle, by the texts of their tokens. Data only: shared by what asks
(`chat.infill`) and by what tells from a model's file whether it can (`models.metadata`)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InfillForm:
    """The tokens around the two texts, by name. `is_suffix_first`: the text after comes before the other one."""

    prefix: str
    suffix: str
    middle: str | None
    is_suffix_first: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(marker for marker in (self.prefix, self.suffix, self.middle) if marker is not None)


FORMS: tuple[InfillForm, ...] = (
    InfillForm("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen Coder, CodeGemma
    InfillForm("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    InfillForm("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    InfillForm("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek Coder
    InfillForm("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM
    InfillForm("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    InfillForm("[PREFIX]", "[SUFFIX]", None, is_suffix_first=True),  # Codestral
)
"""The first whose markers are all tokens of the vocabulary counts."""

MARKERS: frozenset[str] = frozenset(marker for form in FORMS for marker in form.markers)
"""All of all forms."""


def form_of(tokens: Collection[str]) -> InfillForm | None:
    """The form for a vocabulary in which these of the markers are tokens; None where it has none."""
    return next((form for form in FORMS if all(marker in tokens for marker in form.markers)), None)
