"""What a model can be asked for, told from its files and its line of models.txt, loaded or not."""

from __future__ import annotations

from server.chat.profile import tells_of_thinking
from server.chat.prompt import can_think
from server.chat.templates import CHATML, TEMPLATES
from server.chat.tools import codec_of
from server.infill_form import form_of
from server.model_status import ModelStatus


def capabilities(status: ModelStatus) -> tuple[str, ...]:
    """Of "completion", "tools", "thinking", "insert", "embedding", "rerank" those that hold; none of a model not fetched.

    Every model that writes text makes embeddings too; "embedding" is said of those that were made for it.
    """
    details = status.details
    if details is None:
        return ()
    if not details.is_generative or details.is_ranker or status.is_for_embeddings:
        return ("rerank",) if details.is_ranker else ("embedding",)
    template = details.chat_template or CHATML
    if status.template is not None:
        template = TEMPLATES.get(status.template, template)
    holds = {
        "completion": True,
        "tools": codec_of(status.codec, template) is not None,
        "thinking": can_think(template) or tells_of_thinking(template),
        "insert": form_of(details.infill_markers) is not None,
        "embedding": details.is_embedder,
    }
    return tuple(name for name, does_hold in holds.items() if does_hold)
