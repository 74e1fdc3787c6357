"""What rules a reply, over the real llama.cpp with tiny models: complete outputs, thinking before answers, opened calls."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import jsonschema
import pytest

from converters.constraint import Choice, Constraint, Gbnf, JsonSchema, Regex
from converters.grammar.gbnf_parser import parse_gbnf
from converters.grammar.match import build_tables
from converters.grammar.passes import prepare
from converters.limits import Budget, Limits
from server.engine.core import Core
from server.engine.intake import Intake, Refusal
from server.engine.llama import LlamaBackend
from server.engine.messages import (
    EngineEvent,
    EngineRequest,
    Failed,
    FailureKind,
    Finished,
    FinishReason,
    ModelSpec,
    PutGrammar,
    Sampling,
    TextChunk,
    Thinking,
    Trigger,
)
from tests.draws import draws
from tests.server.engine.compiled import compiled

SCHEMAS: dict[str, Any] = {
    "object": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]},
    "array": {"type": "array", "items": {"enum": ["red", "blue", "日本", "Zürich"]}, "minItems": 2},
    "long": {"type": "object", "properties": {"s": {"type": "string", "minLength": 40}}, "required": ["s"]},
    "number": {"type": "number"},
    "any": {},
    "nested": {
        "$defs": {"t": {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}},
        "$ref": "#/$defs/t",
    },
}


@dataclass
class Reply:
    text: str = ""
    end: Finished | None = None
    failures: list[Failed] = field(default_factory=list)


class Bench:
    """Requests one after the other over a real backend, without threads."""

    def __init__(self, path: Path) -> None:
        self.backend = LlamaBackend(ModelSpec(str(path), n_ctx=512, n_threads=1))
        self.core = Core(self.backend)
        self.intake = Intake(self.backend, SimpleQueue(), lambda message: None)
        self.n = 0
        self.known: set[str] = set()

    def key(self, constraint: Constraint) -> str:
        key = repr(constraint)
        if key not in self.known:
            made = compiled(constraint)
            self.intake._put_grammar(PutGrammar(key, made.gbnf, made.tables))
            self.known.add(key)
        return key

    def ask(self, constraint: Constraint | None = None, *, seed: int = 0, temperature: float = 1.5, **fields: Any) -> Reply:
        return self.ask_all(constraint, seed=seed, temperature=temperature, **fields)[0]

    def ask_all(self, constraint: Constraint | None, *, seed: int, temperature: float = 1.5, **fields: Any) -> list[Reply]:
        self.n += 1
        key = fields.pop("grammar_key", None) if constraint is None else self.key(constraint)
        sampling = Sampling(seed=seed, temperature=temperature, top_k=0, top_p=1.0, min_p=0.0)
        request = EngineRequest(self.n, "the cat", sampling=sampling, grammar_key=key, **fields)
        self.core.add(self.intake.prepare(request))
        replies = [Reply() for _ in range(request.n)]
        for _ in range(5000):
            for event in self.core.step():
                self.note(event, replies)
            if not self.core.has_work:
                return replies
        raise AssertionError("the reply doesn't end")

    def note(self, event: EngineEvent, replies: list[Reply]) -> None:
        match event:
            case TextChunk(index=index, text=text):
                replies[index].text += text
            case Finished(index=index):
                replies[index].end = event
            case Failed(index=index):
                replies[index or 0].failures.append(event)

    def needed(self, constraint: Constraint | None, **fields: Any) -> int:
        """What the refusal of one token says."""
        with pytest.raises(Refusal) as refusal:
            self.ask(constraint, max_tokens=1, **fields)
        assert refusal.value.kind is FailureKind.TOO_FEW_TOKENS
        needed = refusal.value.detail["n_needed"]
        assert str(needed) in refusal.value.message
        return needed


@pytest.fixture(scope="module")
def bpe(tiny_bpe: Path) -> Bench:
    return Bench(tiny_bpe)


@pytest.fixture(scope="module")
def sentencepiece(tiny_sentencepiece: Path) -> Bench:
    return Bench(tiny_sentencepiece)


@pytest.fixture(params=["bpe", "sentencepiece"])
def bench(request: pytest.FixtureRequest) -> Bench:
    bench = request.getfixturevalue(request.param)
    assert isinstance(bench, Bench)
    return bench


# ---- complete outputs


@draws(1, 3)
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_reply_is_complete_with_any_number_of_tokens(bench: Bench, name: str, n_draws: int) -> None:
    schema = SCHEMAS[name]
    least = bench.intake._ruling(bench.key(JsonSchema(schema))).cost or 0
    assert least > 0
    if least > 1:
        with pytest.raises(Refusal):
            bench.ask(JsonSchema(schema), max_tokens=least - 1)
    for extra in (0, 1, 3, 8, 64):
        for seed in range(n_draws):
            reply = bench.ask(JsonSchema(schema), seed=seed, max_tokens=least + extra)
            assert not reply.failures
            assert reply.end is not None
            assert reply.end.n_completion_tokens <= least + extra
            jsonschema.validate(json.loads(reply.text), schema)


def test_an_endless_way_is_not_written_out_to_be_counted(bpe: Bench) -> None:
    """What could begin here would need more characters than there is memory."""
    begun = time.monotonic()
    reply = bpe.ask(Gbnf('root ::= "a" [b-z]* ("!" x{2000})?\nx ::= y{2000}\ny ::= [0-9]{2000}'), max_tokens=30)
    assert re.fullmatch("a[b-z]*", reply.text)
    assert time.monotonic() - begun < 3


@draws(1, 3)
def test_half_characters_are_ended(bench: Bench, n_draws: int) -> None:
    constraint = Regex("[日本é😀ü]{3,200}")
    least = bench.needed(constraint)
    for n_tokens in range(least, least + 12):
        for seed in range(n_draws):
            reply = bench.ask(constraint, seed=seed, max_tokens=n_tokens)
            assert re.fullmatch("[日本é😀ü]{3,200}", reply.text), (n_tokens, seed)


@draws(3, 20)
@pytest.mark.parametrize("words", [("日本", ""), ("語語語語", "a"), ("語éé", "語", "ab", "ü語語語語語")])
def test_half_a_character_counts_for_what_it_may_become(bench: Bench, words: tuple[str, ...], n_draws: int) -> None:
    """The shortest of all words may not be one that its first byte leads to."""
    for n_tokens in range(bench.intake._ruling(bench.key(Choice(words))).cost or 1, 18):
        for seed in range(n_draws):
            reply = bench.ask(Choice(words), seed=seed, temperature=5, max_tokens=n_tokens)
            assert reply.text in words, (n_tokens, seed)


def test_what_the_end_of_the_tokens_is_called(bpe: Bench) -> None:
    endless = Gbnf('root ::= "a" [b]* "c"')
    reasons = {}
    for on_length in ("complete", "stop", "cut"):
        reply = bpe.ask(endless, max_tokens=8, on_length=on_length, seed=3)
        assert reply.end is not None
        reasons[on_length] = reply.end.reason
        assert reply.text.endswith("c") == (on_length != "cut") or reply.end.n_completion_tokens < 8
    assert reasons["stop"] is FinishReason.STOP
    assert reasons["cut"] in (FinishReason.LENGTH, FinishReason.STOP)
    wide = JsonSchema({"type": "string", "minLength": 60})
    full = bpe.ask(wide, max_tokens=bpe.needed(wide) + 2)
    assert full.end is not None
    assert full.end.reason is FinishReason.LENGTH
    assert full.end.n_forced_tokens
    cut = bpe.ask(wide, max_tokens=5, on_length="cut")
    assert cut.end is not None
    assert cut.end.reason is FinishReason.LENGTH
    assert not cut.text.endswith('"')


@pytest.mark.parametrize(
    ("on_length", "reason"),
    [("complete", FinishReason.LENGTH), ("stop", FinishReason.STOP), ("cut", FinishReason.LENGTH)],
)
def test_a_text_that_is_whole_by_itself_at_the_limit_is_called_the_same(
    bpe: Bench, on_length: str, reason: FinishReason
) -> None:
    replies = [bpe.ask(Gbnf("root ::= [a-z0-9]+"), max_tokens=6, on_length=on_length, seed=seed) for seed in range(12)]
    ends = [reply.end for reply in replies if reply.end is not None and reply.end.n_completion_tokens == 6]
    assert len(ends) > 3
    assert {end.reason for end in ends} == {reason}


def test_a_natural_end_is_a_stop(bpe: Bench) -> None:
    reply = bpe.ask(Choice(("yes", "no")), max_tokens=20)
    assert reply.text in ("yes", "no")
    assert reply.end is not None
    assert reply.end.reason is FinishReason.STOP


# ---- tokens by name


def test_tokens_that_the_native_sampler_permits_wrongly_are_not_taken(bpe: Bench) -> None:
    """`{` and a quote are one token; after the brace the grammar wants a whole token that isn't the digit's."""
    digit = bpe.backend.vocabulary.tokenize("3", False, False)[0]
    grammar = Gbnf(f'root ::= "{{" !<[{digit}]> "}}"')
    for seed in range(40):
        reply = bpe.ask(grammar, seed=seed, max_tokens=10, temperature=3.0)
        assert not reply.failures
        assert re.fullmatch(r"\{.*\}", reply.text, re.DOTALL)


def test_a_named_end_of_generation_token_is_refused(bpe: Bench) -> None:
    with pytest.raises(Refusal, match="ends the reply"):
        bpe.ask(Gbnf('root ::= "a" <|im_end|>'), max_tokens=5)
    assert bpe.ask(Gbnf('root ::= "a" !<|im_end|>'), max_tokens=5).text.startswith("a")


def test_a_text_with_too_many_readings_ends_with_an_error(bpe: Bench) -> None:
    """Each character may end an item or go on in it, and items are counted: one stack more for each way to have counted."""
    text = "root ::= x{2,9000}\nx ::= y{1,90}\ny ::= [^q] | [^q] [^q] | [^q] [^q] [^q]"
    grammar = prepare(parse_gbnf(text), Budget(Limits()))
    gbnf = "root ::= [^q]*"  # the native sampler is spared
    bpe.intake._put_grammar(PutGrammar("ambiguous", gbnf, build_tables(grammar)))
    reply = bpe.ask(grammar_key="ambiguous", max_tokens=400)
    (failure,) = reply.failures
    assert "too many readings" in failure.message


# ---- thinking


THINK = Thinking("<think>", "</think>", gap="\n\n", is_forced=True, max_tokens=12)
ANSWER = JsonSchema(SCHEMAS["object"])


def check_thought(reply: Reply, least_in_block: int = 0) -> None:
    assert not reply.failures
    assert reply.end is not None
    found = re.fullmatch(r"<think>(.*?)</think>\n\n(\{.*\})", reply.text, re.DOTALL)
    assert found, reply.text
    jsonschema.validate(json.loads(found[2]), SCHEMAS["object"])
    assert reply.end.n_reasoning_tokens >= least_in_block


@pytest.mark.parametrize("max_tokens", [0, 1, 12, None])
def test_a_forced_block_then_the_answer(bench: Bench, max_tokens: int | None) -> None:
    thinking = Thinking("<think>", "</think>", gap="\n\n", is_forced=True, max_tokens=max_tokens)
    for seed in range(4):
        reply = bench.ask(ANSWER, thinking=thinking, seed=seed, max_tokens=80)
        check_thought(reply)
        assert reply.end is not None
        if max_tokens is not None:
            assert reply.end.n_reasoning_tokens <= max_tokens + 2 + 2  # markers and gap


def test_the_answer_fits_even_where_the_tokens_would_end_in_the_thinking(bench: Bench) -> None:
    thinking = Thinking("<think>", "</think>", gap="\n\n", is_forced=True)
    least = bench.needed(ANSWER, thinking=thinking)
    with pytest.raises(Refusal):
        bench.ask(ANSWER, thinking=thinking, max_tokens=least - 1)
    for extra in (0, 1, 2, 3, 5, 8, 20):
        for seed in range(2):
            reply = bench.ask(ANSWER, thinking=thinking, seed=seed, max_tokens=least + extra)
            check_thought(reply)
            assert reply.end is not None
            assert reply.end.n_completion_tokens <= least + extra


def test_an_open_block_has_no_start(bench: Bench) -> None:
    thinking = Thinking("<think>", "</think>", is_open=True, max_tokens=6)
    reply = bench.ask(ANSWER, thinking=thinking, max_tokens=60)
    assert reply.text.count("</think>") == 1
    assert "<think>" not in reply.text.split("</think>")[0][-1:]
    jsonschema.validate(json.loads(reply.text.split("</think>")[1]), SCHEMAS["object"])


@draws(25, 60)
def test_a_block_that_the_model_may_have(bench: Bench, n_draws: int) -> None:
    """Where the model begins with the marker it thinks, else the answer begins at once; both happen, both conform."""
    token = bench.backend.vocabulary.tokenize("<think>", False, True)[0]
    thinking = Thinking("<think>", "</think>", gap="\n\n", max_tokens=5)
    replies = [bench.ask(ANSWER, thinking=thinking, seed=seed, max_tokens=40, temperature=4.0) for seed in range(n_draws)]
    thought = [reply for reply in replies if reply.text.startswith("<think>")]
    assert 0 < len(thought) < len(replies), token
    for reply in replies:
        if reply in thought:
            check_thought(reply, 2)
        else:
            assert reply.end is not None
            assert reply.end.n_reasoning_tokens == 0
            jsonschema.validate(json.loads(reply.text), SCHEMAS["object"])


def test_a_grammar_inside_the_block(bench: Bench) -> None:
    inside = bench.key(Regex(r"1\. [a-z ]+\n(?:2\. [a-z ]+\n)?</think>") if bench_is_text(bench) else token_end(bench))
    for max_tokens, budget in ((200, 30), (60, 200)):
        thinking = Thinking("<think>", "</think>", "\n\n", is_forced=True, max_tokens=budget, grammar_key=inside)
        for seed in range(3):
            reply = bench.ask(ANSWER, thinking=thinking, seed=seed, max_tokens=max_tokens)
            check_thought(reply)
            assert re.match(r"<think>1\. [a-z ]+\n(2\. [a-z ]+\n)?</think>", reply.text)


def bench_is_text(bench: Bench) -> bool:
    token = bench.backend.vocabulary.tokenize("</think>", False, True)[0]
    return not bench.backend.vocabulary.is_control(token)


def token_end(bench: Bench) -> Gbnf:
    token = bench.backend.vocabulary.tokenize("</think>", False, True)[0]
    return Gbnf(f'root ::= "1. " [a-z ]+ "\\n" ("2. " [a-z ]+ "\\n")? <[{token}]>')


def test_no_stop_string_in_the_block(bpe: Bench) -> None:
    letters = tuple("abcdefghijklmnopqrstuvwxyz0123456789")
    reply = bpe.ask(Regex("[.,;:]{3}"), thinking=THINK, stop=letters, max_tokens=60)
    assert re.fullmatch(r"<think>.*</think>\n\n[.,;:]{3}", reply.text, re.DOTALL), reply.text


def test_choices_have_their_own_course(bpe: Bench) -> None:
    replies = bpe.ask_all(ANSWER, seed=5, n=6, thinking=THINK, max_tokens=60)
    for reply in replies:
        check_thought(reply)
    alone = bpe.ask(ANSWER, seed=7, thinking=THINK, max_tokens=60)
    assert alone.text == replies[2].text


# ---- calls in free text


def test_what_opens_a_call_is_held_from_there(bpe: Bench) -> None:
    """The model writes an `e` soon; what follows is the grammar's, and then the text is free again."""
    key = bpe.key(Gbnf('root ::= "<" [0-9] [0-9] ">"'))
    for seed in range(5):
        reply = bpe.ask(seed=seed, triggers=(Trigger("e", key),), max_tokens=60, temperature=1.0)
        opened = re.findall(r"e(.{0,4})", reply.text, re.DOTALL)
        assert opened
        assert all(re.fullmatch(r"<[0-9][0-9]>", text) for text in opened if len(text) == 4), reply.text


def test_a_token_that_runs_past_the_opening_is_replaced(bpe: Bench) -> None:
    """`the` runs past the `t`: only the `t` of it is taken."""
    key = bpe.key(Gbnf('root ::= "[" [0-9] "]"'))
    for seed in range(5):
        reply = bpe.ask(seed=seed, triggers=(Trigger("t", key),), ends_after_call=True, max_tokens=200, temperature=1.0)
        assert re.fullmatch(r"[^t]*t\[[0-9]\]", reply.text, re.DOTALL), reply.text
        assert reply.end is not None
        assert reply.end.reason is FinishReason.STOP


def test_openings_at_the_start_only(bpe: Bench) -> None:
    key = bpe.key(Gbnf('root ::= "!!"'))
    triggers = tuple(Trigger(char, key, is_at_start=True) for char in "abcdefghi")
    replies = [bpe.ask(seed=seed, triggers=triggers, max_tokens=12) for seed in range(30)]
    for reply in replies:
        text = reply.text.lstrip(" \t\r\n\v\f")
        assert (text[1:3] == "!!") == (text[:1] in tuple("abcdefghi")), reply.text
    assert any("!!" in reply.text for reply in replies)


def test_a_call_without_room_is_not_opened(bpe: Bench) -> None:
    key = bpe.key(Gbnf('root ::= "<" [0-9]{6} ">"'))
    reasons = set()
    for max_tokens in range(1, 24):
        reply = bpe.ask(seed=2, triggers=(Trigger("e", key),), max_tokens=max_tokens, temperature=1.0)
        assert re.fullmatch(r"([^e]|e<[0-9]{6}>)*", reply.text, re.DOTALL), reply.text
        assert reply.end is not None
        reasons.add(reply.end.reason)
    assert reasons == {FinishReason.LENGTH}
    assert "<" in reply.text
