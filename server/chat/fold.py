"""A whole answer as a fold over the events of a stream, so that the two can't differ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from typing_extensions import assert_never

from server.chat.types import (
    Answer,
    ArgumentsDelta,
    CallStarted,
    ChoiceCompleted,
    Completed,
    Completion,
    Event,
    PromptEcho,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCall,
    Usage,
)
from server.engine.messages import FinishReason, TokenLogprobs


@dataclass(slots=True)
class _Draft:
    text: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, tuple[CallStarted, list[str]]] = field(default_factory=dict)
    echo: PromptEcho | None = None
    end: ChoiceCompleted | None = None

    def finish(self, index: int) -> Answer:
        end = self.end or ChoiceCompleted(index, FinishReason.LENGTH, 0)
        return Answer(
            index,
            "".join(self.text),
            end.reason,
            end.n_tokens,
            end.stop_string,
            self.echo,
            tuple(self.logprobs),
            "".join(self.reasoning),
            tuple(ToolCall(call.id, call.name, "".join(arguments), call.is_custom) for call, arguments in self.calls.values()),
        )


@dataclass(slots=True)
class Fold:
    """Takes events one by one; `completion` is the answer once `Completed` has come."""

    started: Started | None = None
    usage: Usage = field(default_factory=Usage)
    _drafts: dict[int, _Draft] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case Started():
                self.started = event
            case PromptEcho(index=index):
                self._draft(index).echo = event
            case TextDelta(index=index, text=text, logprobs=logprobs):
                self._draft(index).text.append(text)
                self._draft(index).logprobs.extend(logprobs)
            case ReasoningDelta(index=index, text=text):
                self._draft(index).reasoning.append(text)
            case CallStarted(index=index, call=call):
                self._draft(index).calls[call] = (event, [])
            case ArgumentsDelta(index=index, call=call, text=text):
                self._draft(index).calls[call][1].append(text)
            case ChoiceCompleted(index=index):
                self._draft(index).end = event
            case Completed(usage=usage):
                self.usage = usage
            case _:
                assert_never(event)

    def _draft(self, index: int) -> _Draft:
        return self._drafts.setdefault(index, _Draft())

    @property
    def completion(self) -> Completion:
        """The whole answer, choices by index."""
        assert self.started is not None
        choices = [self._drafts[index].finish(index) for index in sorted(self._drafts)]
        return Completion(self.started.model, choices, self.usage, self.started.warnings, self.started.is_clipped)


async def fold(events: AsyncIterator[Event]) -> Completion:
    """The whole answer of a stream of events. An error in the stream is the error of the answer."""
    result = Fold()
    async for event in events:
        result.add(event)
    return result.completion


def keep_best(completion: Completion, n_prompts: int, n: int) -> Completion:
    """The `n` choices of each prompt with the highest mean log-probability, renumbered, best first (OpenAI's `best_of`)."""
    per_prompt = len(completion.choices) // n_prompts
    kept: list[Answer] = []
    for i in range(n_prompts):
        group = completion.choices[i * per_prompt : (i + 1) * per_prompt]
        kept += sorted(group, key=_mean_logprob, reverse=True)[:n]
    return replace(completion, choices=[replace(choice, index=i) for i, choice in enumerate(kept)])


def _mean_logprob(choice: Answer) -> float:
    values = [entry.chosen.logprob for entry in choice.logprobs]
    return sum(values) / len(values) if values else float("-inf")
