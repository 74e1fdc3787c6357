"""The dialect-free middle: what a request asks, and the events that answer it.

Every dialect decodes into `GenerateRequest` and encodes from `Event`. No dialect's field names, no pydantic, no fastapi here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from converters.compile import CompileOptions
from converters.constraint import Constraint, JsonValue, Tool
from server.engine.messages import FinishReason as FinishReason  # exported again: dialects see only this module
from server.engine.messages import OnLength as OnLength
from server.engine.messages import Sampling as Sampling
from server.engine.messages import TokenLogprob as TokenLogprob
from server.engine.messages import TokenLogprobs as TokenLogprobs

JsonObject: TypeAlias = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ToolPlace:
    """Where a tool stands in the request, and what its schema and a custom tool's grammar are called there."""

    path: str
    schema_name: str = "parameters"
    input_name: str = "format.grammar.definition"

    def inside(self, pointer: str) -> tuple[str, str]:
        """A place in the tool as the compiler has it (`/parameters/type`): a path in the request, and the pointer behind it."""
        first, slash, rest = pointer.removeprefix("/").partition("/")
        name = {"parameters": self.schema_name, "input": self.input_name}.get(first, first)
        return f"{self.path}.{name}" if name else self.path, f"{slash}{rest}"


@dataclass(frozen=True, slots=True)
class RequestedConstraint:
    """The one constraint of a request, not yet compiled.

    `source` is the field that set it and `kind` its type, as the log names them; `param` is the path of the value inside the
    request, for errors; where there are `places`, a first step inside the source that is a number is one of those tools.
    `is_described`: the prompt tells the model of it. `whitespace_param`: the path of the field that sets the whitespace.
    """

    constraint: Constraint
    options: CompileOptions
    source: str
    kind: str
    param: str
    is_described: bool = False
    places: tuple[ToolPlace, ...] = ()
    whitespace_param: str = "whitespace_pattern"


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A call in the history. `arguments` is a JSON value where the text was JSON, else the text."""

    id: str | None
    name: str
    arguments: JsonValue


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `content` is plain text (parts joined); `extra` holds what only some templates read."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    name: str | None = None
    tool_calls: tuple[ToolCallPart, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages for the model's chat template.

    `template` names a built-in one instead. `tools` are shown to the template as they are. `thinking` switches a template that
    can think (None: the server's default). `kwargs` are handed to the template by name. `before` is the text of an earlier
    conversation that this one goes on from, special tokens in it read as such. `param` is the request's field with the
    messages, for errors.
    """

    messages: tuple[Message, ...]
    template: str | None = None
    tools: tuple[JsonObject, ...] = ()
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    thinking: bool | None = None
    kwargs: JsonObject = field(default_factory=dict)
    param: str = "messages"
    before: str = ""


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text that the model continues, special tokens in it read as such."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids that the model continues."""

    tokens: tuple[int, ...]


Prompt: TypeAlias = ChatPrompt | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools that a model may call. `choice` is the field that says how to use them.

    is_forced: the answer is a call. is_parallel: there may be several. shown: all tools in OpenAI's form, for the template.
    options: how the request wants its constraints compiled; whitespace_param: the path of the field that sets the whitespace.
    """

    tools: tuple[Tool, ...]
    places: tuple[ToolPlace, ...]
    shown: tuple[JsonObject, ...]
    is_forced: bool = False
    is_parallel: bool = True
    choice: str = "tool_choice"
    options: CompileOptions = field(default_factory=CompileOptions)
    whitespace_param: str = "whitespace_pattern"


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Everything a dialect can ask of a generation.

    Choice k of prompt i has index `i * n + k`. `max_tokens` None: to the end of the slot's context. `logprobs`: None for none,
    else how many alternatives to list. `echo` puts the prompt before the text (with its logprobs, if asked).
    `clips_to_context`: max_tokens past the end of the slot's context is that end, else an error. `max_tokens_param`: what the
    request calls max_tokens, for errors.
    `on_length`: what a constrained reply does at its last tokens. `effort`: how much to think (see `reasoning`), and
    `budget_tokens` the tokens for it, which win over those of the effort. `suffix`: the text after the answer, of which the
    prompts are the text before. `prediction`: what the answer is thought to be.
    """

    prompts: tuple[Prompt, ...]
    model: str | None = None
    n: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    max_tokens_param: str = "max_tokens"
    clips_to_context: bool = False
    constraint: RequestedConstraint | None = None
    tools: ToolUse | None = None
    logprobs: int | None = None
    echo: bool = False
    on_length: OnLength = "complete"
    effort: str | None = None
    budget_tokens: int | None = None
    suffix: str | None = None
    prediction: str = ""
    param: str = "prompt"

    @property
    def n_choices(self) -> int:
        """Choices in the whole answer."""
        return len(self.prompts) * self.n


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the caller should know about how the constraint is held. `path` is a JSON pointer, or ""."""

    message: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and times of a whole answer. Prompt tokens count once per prompt, not per choice. Times are in seconds.

    Reasoning and forced tokens are among those of the completion: written while thinking; written without a choice. Accepted
    and refused ones are tokens of the client's prediction that were put to the test, if `is_predicted`.
    """

    n_prompt_tokens: int = 0
    n_cached_tokens: int = 0
    n_completion_tokens: int = 0
    n_reasoning_tokens: int = 0
    n_forced_tokens: int = 0
    n_accepted_tokens: int = 0
    n_refused_tokens: int = 0
    is_predicted: bool = False
    prompt_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Started:
    """The first event: the request holds its slot; a dialect may send its headers now.

    Tokens are those of the first prompt. `is_clipped`: the context ends before max_tokens do.
    """

    model: str
    n_choices: int
    warnings: tuple[Notice, ...] = ()
    n_prompt_tokens: int = 0
    n_cached_tokens: int = 0
    is_clipped: bool = False


@dataclass(frozen=True, slots=True)
class PromptEcho:
    """The prompt of choice `index` (only with `echo`), before any of its text.

    With logprobs asked for, `first_token` are the bytes of the first one, which has none, and `logprobs` those of the others.
    """

    index: int
    text: str
    first_token: bytes | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of choice `index`; may be "" when it only carries logprobs."""

    index: int
    text: str
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what choice `index` thinks before it answers."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """Call number `call` (from 0) of choice `index` begins. `is_custom`: its arguments are one text, not JSON."""

    index: int
    call: int
    id: str
    name: str
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of the arguments' JSON text (of a custom tool's input) of a call that has started."""

    index: int
    call: int
    text: str


@dataclass(frozen=True, slots=True)
class ChoiceCompleted:
    """Choice `index` has ended. `stop_string` is the one that ended it, if one did."""

    index: int
    reason: FinishReason
    n_tokens: int
    stop_string: str | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """The last event: every choice has ended."""

    usage: Usage


Event: TypeAlias = (
    Started | PromptEcho | TextDelta | ReasoningDelta | CallStarted | ArgumentsDelta | ChoiceCompleted | Completed
)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call, whole. `arguments` is JSON text, or a custom tool's input."""

    id: str
    name: str
    arguments: str
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, whole."""

    index: int
    text: str
    reason: FinishReason
    n_tokens: int
    stop_string: str | None = None
    echo: PromptEcho | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer: the fold of the same events that a stream sends."""

    model: str
    choices: Sequence[Answer]
    usage: Usage
    warnings: tuple[Notice, ...] = ()
    is_clipped: bool = False
