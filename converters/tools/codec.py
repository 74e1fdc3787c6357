"""What a tool-call format is: one object that writes its grammar, reads it back, and shows it to a model.

Each format is one file with a class that fits `Codec`; `codecs` lists them. Grammars are made of expressions that are handed
in (`ToolGrammar`), so no format knows JSON Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from converters.constraint import JsonValue
from converters.grammar.expr import Expr
from converters.tools.reader import Reader, Reading
from converters.tools.writer import CallWriter

ArgumentStyle = Literal["json", "xml"]
"""How a format spells arguments: one JSON object, or `<parameter=key>` elements."""

Marker: TypeAlias = Callable[[str], Expr]
"""A marker's expression: the token where the vocabulary has it as a control token, else its text."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A text with which calls begin. `triggers` are the texts after which an engine switches a grammar in
    (`ToolCalls.opening`); `is_at_start`: only as the first text of an answer, after whitespace and reasoning."""

    text: str
    triggers: tuple[str, ...]
    is_at_start: bool = False

    @staticmethod
    def anywhere(text: str) -> Opening:
        """An opening that is its own trigger."""
        return Opening(text, (text,))


@dataclass(frozen=True, slots=True)
class ToolGrammar:
    """A tool's name and its arguments' grammar, in the codec's style. `hint` is a rule name for its call."""

    name: str
    arguments: Expr
    hint: str


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """What a format's grammar is made of. `is_parallel`: there may be several calls."""

    tools: Sequence[ToolGrammar]
    marker: Marker
    is_parallel: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A finished call. `arguments` is a JSON text, also of a custom tool (`arguments_of_input`)."""

    name: str
    arguments: str


class Codec(Protocol):
    """One tool-call format.

    name: its key in CODECS. style: how it spells arguments. markers: texts that a vocabulary may have as control tokens.
    result_role: the role of the message that shows a tool's result where the template knows no tools.
    """

    @property
    def name(self) -> str: ...

    @property
    def style(self) -> ArgumentStyle: ...

    @property
    def openings(self) -> tuple[Opening, ...]: ...

    @property
    def markers(self) -> tuple[str, ...]: ...

    @property
    def result_role(self) -> Literal["user", "tool"]: ...

    def refuses(self, name: str) -> str | None:  # noqa: ARG002
        """Why `name` can't be a tool's name in this format; None if it can."""
        return None

    def calls(self, given: CallGrammar) -> Expr:
        """One call, or several."""

    def opened(self, trigger: str, given: CallGrammar) -> Expr:
        """What follows `trigger`, to the end of that call; where the format has a list of calls, of that list."""

    def read(self, opening: str, reader: Reader, writer: CallWriter) -> Reading[None]:
        """Read what follows an opening. Raises Mismatch and TextEnded."""

    def write_calls(self, calls: Sequence[Call]) -> str:
        """The calls as the model would write them: a sentence of `calls`, and the history's text."""

    def write_result(self, name: str, result: str) -> str:
        """A tool's result as a message for a template that knows no tools."""

    def describe_tools(self, tools: Sequence[Mapping[str, JsonValue]]) -> str:
        """Text for the system message: the tools (in OpenAI's chat form) and how to call them."""
