"""From bytes to text: the same result for every way of cutting the bytes into pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.messages import TokenLogprob, TokenLogprobs
from server.engine.text import TextAssembler


def assemble(pieces: list[bytes], stops: tuple[str, ...] = (), drop_leading_space: bool = False) -> tuple[str, str | None]:
    """The whole text and the stop string that ended it."""
    assembler = TextAssembler(stops, drop_leading_space)
    text = ""
    for piece in pieces:
        text += assembler.push(piece).text
        if assembler.is_stopped:
            return text, assembler.stop_string
    return text + assembler.finish().text, None


def singly(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The definition: read character by character, the first complete stop string ends the text; of two the longer."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, None


@st.composite
def cut(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> tuple[str, list[bytes]]:
    """A text and its bytes in pieces, some of them empty."""
    text = draw(texts)
    data = text.encode()
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=len(data) + 2)))
    return text, [data[a:b] for a, b in pairwise([0, *cuts, len(data)])]


TEXTS = st.text(st.sampled_from("ab xé日😀\n"), max_size=20)
STOPS = st.lists(st.text(st.sampled_from("ab xé日"), min_size=1, max_size=4), max_size=3).map(tuple)


@settings(deadline=None)
@given(cut(TEXTS), STOPS)
def test_every_chunking_gives_the_same_text(piece_list: tuple[str, list[bytes]], stops: tuple[str, ...]) -> None:
    text, pieces = piece_list
    assert assemble(pieces, stops) == singly(text, stops)


@settings(deadline=None)
@given(cut(TEXTS))
def test_the_leading_space_is_dropped_once_in_every_chunking(piece_list: tuple[str, list[bytes]]) -> None:
    text, pieces = piece_list
    assert assemble(pieces, drop_leading_space=True)[0] == text.removeprefix(" ")


@settings(deadline=None)
@given(cut(TEXTS), STOPS)
def test_only_what_may_begin_a_stop_string_is_held_back(piece_list: tuple[str, list[bytes]], stops: tuple[str, ...]) -> None:
    _, pieces = piece_list
    assembler = TextAssembler(stops)
    given, released = b"", ""
    for piece in pieces:
        given += piece
        released += assembler.push(piece).text
        if assembler.is_stopped:
            return
        held = given.decode("utf-8", "ignore")[len(released) :]
        assert not held or any(stop.startswith(held) for stop in stops)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=5), max_size=12))
def test_any_bytes_come_out_as_characters(pieces: list[bytes]) -> None:
    """Half a character at the end is dropped; everything else is as Python's decoder has it, which may see it at the end."""
    text, _ = assemble(pieces)
    whole = b"".join(pieces).decode("utf-8", "replace")
    assert whole.startswith(text)
    assert set(whole[len(text) :]) <= {"\ufffd"}


def test_half_a_character_is_held_back_and_dropped_at_the_end() -> None:
    assembler = TextAssembler()
    assert assembler.push("é".encode()[:1]).text == ""
    assert assembler.push("é".encode()[1:] + b"\xf0\x9f").text == "é"
    assert assembler.finish().text == ""


@pytest.mark.parametrize(
    ("stops", "text", "expected"),
    [
        (("stop",), "nonstop", ("non", "stop")),
        (("ab", "xabc"), "xabc", ("x", "ab")),
        (("bc", "abc"), "xabc", ("x", "abc")),
        (("", "b"), "abc", ("a", "b")),
        (("aab",), "aaab", ("a", "aab")),
    ],
)
def test_which_stop_string_ends_a_text(stops: tuple[str, ...], text: str, expected: tuple[str, str]) -> None:
    assert assemble([text.encode()], stops) == expected


def scored(n: int) -> TokenLogprobs:
    return TokenLogprobs(TokenLogprob(n, b"", -1.0))


def test_tokens_and_their_logprobs_come_when_their_text_does() -> None:
    assembler = TextAssembler(("stop",))
    first = assembler.push(b"a s", scored(0))
    second = assembler.push(b"to", scored(1))
    third = assembler.push(b"re", scored(2))
    assert [(r.text, r.n_tokens, [t.chosen.token for t in r.logprobs]) for r in (first, second, third)] == [
        ("a ", 0, []),
        ("", 0, []),
        ("store", 3, [0, 1, 2]),
    ]


def test_tokens_behind_a_stop_string_are_not_told() -> None:
    assembler = TextAssembler(("stop",))
    released = [assembler.push(piece, scored(n)) for n, piece in enumerate((b"go", b" st", b"op"))]
    assert assembler.stop_string == "stop"
    assert "".join(r.text for r in released) == "go "
    assert [t.chosen.token for r in released for t in r.logprobs] == [0, 1]


def test_a_token_without_text_is_told_too() -> None:
    assembler = TextAssembler()
    assert assembler.push(b"", scored(4)).logprobs == (scored(4),)
