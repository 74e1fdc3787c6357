"""Patterns made to explode: each is refused by name or compiled, quickly and in little memory."""

from __future__ import annotations

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from converters.errors import ConversionError, LimitExceeded
from converters.grammar.expr import RuleBook
from converters.limits import Budget
from converters.regex import lower_regex, regex_dfa

HOSTILE = [
    "(a|b)*a(a|b){17}", "(.*a){30}", "(a?){4000}", "((a{0,100}){0,100}){0,100}", "(a*)*" * 200,
    "(((a{1000}){1000}){1000}){1000}", "(" * 2000 + ")" * 2000, "(.*,){50}P", "([a-z]+)+$", "(a|aa)+" * 100,
    r"\p{L}" * 600, r"[^\p{L}]" * 500, "(?=.*a)" * 500 + ".*",
    "(?!.*a.*b.*c)" * 200 + ".*", "(?=.*" + "a" * 500 + ")(?=.*b{200}).*", "(?:a?){1000}a{1000}", ".{0,65536}x.{0,65536}",
    "(.{1,100}){1,100}", "|".join("a" * n + "b" for n in range(80)), "(?<=a.{20})b.*", "(?<!a.{20})[ab]*",
    "(?:(?=a)|(?!b)){100}", r"\b" * 2000, r"(\b\w+\b\s*){500}", "^" * 4000, "a|" * 2000, "(a|" * 90 + "b" + ")*" * 90,
    "[a-z]{1,65536}[a-z0-9]{1,65536}", "(x+x+)+y", "(.|\n)*" * 500, "(?i)" + "[a-z]" * 700, "a{1000000}", "a{0,9999999}",
    "(?=(?!(?=(?!a.*b).*c).*d).*e)" * 50, "(?<=(?=.*a)b)" * 60 + ".*", "(.*)(.*)(.*)" * 300 + "x",
    "(" + "|".join(chr(97 + n % 26) + ".*" + chr(97 + n * 7 % 26) for n in range(300)) + ")", "(a?a?a?a?)*" * 300,
    "(?!(a|b)*a(a|b){12}$)(a|b)*", "(?:[ab]*a[ab]{9}){3}", ".*".join("abcdefghijklmnopqrstuvwxyz" * 20),
    "(?=[ab]*a[ab]{8}c)" * 3 + ".*", "(" + "a?" * 1300 + ")*", "((a*b*)*c*)*" * 300, "(a{0,60}b{0,60}){0,60}",
    "[^a]{0,3000}a[^b]{0,3000}b", r"(?:\d{1,3}[,.]?){1,900}", "[" + "a-z" * 1300 + "]", "(?x)" + " " * 4000 + "a",
]  # fmt: skip
MAX_S = 2.0
MAX_BYTES = 200 * 1024 * 1024


def peak_bytes() -> int:
    """The most memory that this process has held; 0 where the system doesn't tell it."""
    peak = 0
    if sys.platform == "linux":  # ru_maxrss would count the parent, whose memory a new process begins with
        status = Path("/proc/self/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    elif sys.platform == "darwin":
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak


def compile_hostile(pattern: str) -> list[tuple[str, float, float]]:
    """For both modes: what came of it, processor seconds, peak bytes of this process."""
    results: list[tuple[str, float, float]] = []
    for mode in ("match", "search"):
        begun = time.process_time()
        outcome = _outcome(pattern, mode)
        results.append((outcome, time.process_time() - begun, peak_bytes()))
    return results


def _outcome(pattern: str, mode: str) -> str:
    try:
        lower_regex(pattern, "match" if mode == "match" else "search", RuleBook(), Budget())
    except ConversionError as error:
        return type(error).__name__
    return "compiled"


@pytest.mark.conformance
def test_hostile_patterns_are_compiled_or_refused_in_time_and_memory() -> None:
    assert len(HOSTILE) >= 30
    assert all(len(pattern.encode()) <= 4096 for pattern in HOSTILE)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        for pattern, results in zip(HOSTILE, pool.map(compile_hostile, HOSTILE), strict=True):
            for outcome, seconds, peak in results:
                assert outcome in ("compiled", "LimitExceeded", "Unsatisfiable"), pattern[:60]
                assert seconds < MAX_S, f"{pattern[:60]} took {seconds:.2f} s"
                assert peak < MAX_BYTES, f"{pattern[:60]} took {peak / 1e6:.0f} MB"


def test_the_error_names_the_pattern_and_the_limit() -> None:
    begun = time.process_time()
    with pytest.raises(LimitExceeded, match=r"\(a\|b\)\*a\(a\|b\)\{17\}.*256 KiB") as caught:
        regex_dfa("(a|b)*a(a|b){17}", "match", Budget())
    assert caught.value.limit == "automaton_bytes"
    assert caught.value.value == 256 * 1024
    assert time.process_time() - begun < 0.5


@pytest.mark.parametrize(
    "pattern", ["((a{0,100}){0,100}){0,100}", "(((a{1000}){1000}){1000}){1000}", "(a?){4000}", "^" * 4000, r"\b" * 2000]
)
def test_some_of_them_in_this_process(pattern: str) -> None:
    begun = time.process_time()
    assert _outcome(pattern, "match") in ("compiled", "LimitExceeded", "Unsatisfiable")
    assert time.process_time() - begun < MAX_S
