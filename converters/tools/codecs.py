"""Every tool-call format by name, and which one a model's chat template speaks."""

from __future__ import annotations

import re

from converters.tools.codec import Codec
from converters.tools.hermes import Hermes
from converters.tools.llama import Llama3
from converters.tools.mistral import Mistral, MistralArgs
from converters.tools.plain import Plain
from converters.tools.qwen import Qwen3Coder

CODECS: dict[str, Codec] = {
    codec.name: codec for codec in (Hermes(), Mistral(), MistralArgs(), Llama3(), Qwen3Coder(), Plain())
}

_TOOLS = re.compile(r"\btools\b")

_MARKS: tuple[tuple[tuple[str, ...], str | None], ...] = (
    # every text of the first entry that fits is in the template → the codec, or None for a format that isn't known here
    (("[TOOL_CALLS]", "[ARGS]"), "mistral_args"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<tool_call>", "<arg_key>"), None),
    (("<tool_call>", "<function="), "qwen3_coder"),
    (("<tool_call>",), "hermes"),
    (("<|python_tag|>",), "llama3"),
    (("<|start_header_id|>", '"parameters":'), "llama3"),
)


def knows_tools(template: str) -> bool:
    """Does the chat template show tools to the model by itself? If not, `Codec.describe_tools` has to."""
    return _TOOLS.search(template) is not None


def codec_for_template(template: str | None) -> Codec | None:
    """The format that a chat template speaks.

    A template that knows no tools gets one that can be described to its model: ChatML's, or plain JSON. None for no template,
    and for one that shows tools in a format that isn't known here.
    """
    if template is None:
        return None
    for texts, name in _MARKS:
        if all(text in template for text in texts):
            return CODECS[name] if name is not None else None
    if knows_tools(template):
        return None
    return CODECS["hermes" if "<|im_start|>" in template else "json"]
