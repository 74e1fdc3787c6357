"""The GBNF parser: what it reads, and where it says what is wrong."""

from __future__ import annotations

import pytest

from converters.errors import ConversionError, InvalidSource, LimitExceeded
from converters.grammar.charset import ANY, CharSet
from converters.grammar.expr import Chars, Ref, Rep, Token, alt, lit, seq
from converters.grammar.gbnf import print_grammar
from converters.grammar.gbnf_parser import parse_gbnf, read_gbnf
from converters.grammar.match import Matcher, build_tables
from converters.grammar.passes import prepare
from converters.limits import Budget
from tests.oracle import Oracle

# text, sentences, others
READ = [
    ('root ::= "a"', ["a"], ["", "aa"]),
    ('root::="a"|"b"', ["a", "b"], ["ab"]),
    ('  \n# a comment\nroot ::= "a" # another\n\n', ["a"], ["#"]),
    ('root ::= "a" b # tail\r\nb ::= [0-9]\r\n', ["a1"], ["a", "b1"]),
    ('root ::= "a"\n  | "b"\n\n  | "c"', ["a", "b", "c"], ["d"]),
    ('root ::=\n  "a"\n  "b"\nx ::= "c"', ["ab"], ["a", "abc"]),
    ('root ::= (\n "a" # in a group\n |\n "b" )+', ["a", "ba"], [""]),
    ('root ::= line_char+\nline_char ::= [a-z]\nline-char ::= "!"', ["abc"], ["A", "", "!"]),
    ('0-9 ::= "q"\nroot ::= 0-9 -\n- ::= "-"', ["q-"], ["q"]),
    ('root ::= x\nx ::= "a"\nx ::= "b"', ["b"], ["a"]),
    ('root ::= "" | () | "a"', ["", "a"], ["b"]),
    ("root ::=", [""], ["a"]),
    ('root ::= | "a"', ["", "a"], ["b"]),
    (r'root ::= "\x41\u00e9\U0001F600\t\r\n\\\"\[\]\-"', ['Aé😀\t\r\n\\"[]-'], [""]),
    ('root ::= "é😀\n"', ["é😀\n"], ["é"]),
    ("root ::= [a-c-9]", ["a", "b", "c", "-", "9"], ["5", "d"]),
    ("root ::= [-a]", ["-", "a"], ["b"]),
    ("root ::= [a-]", ["-", "a"], ["b"]),
    ("root ::= [--9]", ["-", ".", "5", "9"], [",", "a"]),
    (r"root ::= [\]\-\[\\^\n]", ["]", "-", "[", "\\", "^", "\n"], ["a"]),
    ("root ::= [^a-z]", ["A", "\n", "é", "😀"], ["b", ""]),
    ('root ::= ["[^"]', ['"', "[", "^"], ["a"]),
    ("root ::= [^\\x00]", ["a", "\x01"], ["\x00", ""]),
    ("root ::= .", ["a", "\n", "😀"], ["", "aa"]),
    ('root ::= "a" | [z-a]', ["a"], ["z", "", "b"]),
    ("root ::= [^z-a]", ["a", "z"], [""]),
    ('root ::= "ab"*', ["", "abab"], ["aba", "abb"]),
    ('root ::= "a"{2} "b"{1,} "c"{ 0 , 2 }', ["aab", "aabbcc"], ["ab", "aa", "aabccc"]),
    ('root ::= "a"{0} "b"{0,0} "c"', ["c"], ["ac", "bc"]),
    ('root ::= "a"{2}{3}', ["aaaaaa"], ["aaaaa", "aa"]),
    ('root ::= "a"** "b"?? "c"', ["c", "aabc"], ["abbc"]),
    ('root ::= ("" | "a")* "b"', ["b", "aab"], ["a"]),
    ('root ::= ("a"*)* "b"', ["b", "aab"], ["a"]),
    ('root ::= x* "b"\nx ::= "" | "a"', ["b", "aab"], ["a"]),
    ('root ::= root "a" | "b"', ["b", "baa"], ["a", ""]),
    ('root ::= [^"The answer is:"]+ "!"', ["zoo!"], ["hat!", "z"]),
    ('root ::= "a" | "b" dead\ndead ::= "c" dead', ["a"], ["b", "bc"]),
    ('root ::= "\\UFFFFFFFF" | "\\ud800" | "a"', ["a"], ["\ufffd"]),
    ("root ::= [\\U00110000-\\UFFFFFFFFa]", ["a"], ["b"]),
    ("root ::= [\\ud000-\\ue000]", ["\ud000", "\ue000", "\ud7ff"], ["\ue001"]),
]


@pytest.mark.parametrize(("text", "sentences", "others"), READ, ids=range(len(READ)))
def test_reads(oracle: Oracle, text: str, sentences: list[str], others: list[str]) -> None:
    ready = prepare(parse_gbnf(text), Budget())
    matcher = Matcher.from_tables(build_tables(ready))
    meant = [True] * len(sentences) + [False] * len(others)
    assert [matcher.accepts(text) for text in sentences + others] == meant
    gbnf = print_grammar(ready)
    askable = [text for text in sentences + others if "\0" not in text]
    assert oracle.accepts(gbnf, askable) == [matcher.accepts(text) for text in askable]


REFUSED = [
    ("", "no rule 'root'", 1, 1),
    ("# only a comment", "no rule 'root'", 1, 1),
    ('x ::= "a"', "no rule 'root'", 1, 1),
    ('a ::= "x" root{0,0}', "undefined rule 'root'", 1, 11),
    ('root ::= "a"\n  foo', "undefined rule 'foo'", 2, 3),
    ('root :== "x"', "expected ::=", 1, 6),
    ('root := "x"', "expected ::=", 1, 6),
    ('root : "x"', "expected ::=", 1, 6),
    ('{"type":"object"}', "expected the name of a rule, not '{'", 1, 1),
    ('root ::= "a" ;', "unexpected ';'", 1, 14),
    ("root ::= 'a'", 'unexpected "\'"', 1, 10),
    ('root ::= "a', "literal that is never closed", 1, 10),
    ("root ::= [a", "class that is never closed", 1, 10),
    ("root ::= [a-", "class that is never closed", 1, 10),
    ("root ::= []", r"\[\] is empty", 1, 10),
    ("root ::= [^]", r"\[\^\] is empty", 1, 10),
    ('root ::= "a" (("b")', "never closed", 1, 14),
    ('root ::= "a")', "without its", 1, 13),
    (r'root ::= "\q"', r"unknown escape \\q", 1, 11),
    (r'root ::= "\/"', "unknown escape", 1, 11),
    (r"root ::= [\d]", "unknown escape", 1, 11),
    ('root ::= "\\', r"unknown escape", 1, 11),
    (r'root ::= "\x4"', "2 hexadecimal digits", 1, 11),
    (r'root ::= "\u12G4"', "4 hexadecimal digits", 1, 11),
    (r'root ::= "\U0001"', "8 hexadecimal digits", 1, 11),
    ('root ::= "a" \0| "b"', "NUL", 1, 14),
    ('\ufeffroot ::= "a"', "byte order mark", 1, 1),
    ('root ::= "\ud800"', "lone surrogate", 1, 11),
    ('root ::= "a"{3,2}', "maximum below its minimum", 1, 13),
    ('root ::= "a"{,2}', "expected a count", 1, 13),
    ('root ::= "a"{x}', "expected a count", 1, 13),
    ('root ::= "a"{1', "expected a count", 1, 13),
    ("root ::= *", "nothing stands before", 1, 10),
    ('root ::= "a" | +', "nothing stands before", 1, 16),
    ("root ::= <[99999999999999999999]>", "token id 99999999999999999999 is larger than", 1, 10),
    ("root ::= <[4294967296]>", "larger than", 1, 10),
    ("root ::= <[x]>", "expected a token", 1, 10),
    ("root ::= <think", "expected a token", 1, 10),
    ("root ::= <>", "expected a token", 1, 10),
    ("root ::= !a", "expected a token", 1, 10),
    ('root ::= "a"\nx_y ::= z ::= "b"', "undefined rule|unexpected", 2, 11),
]


@pytest.mark.parametrize(("text", "reason", "line", "column"), REFUSED, ids=range(len(REFUSED)))
def test_says_where(text: str, reason: str, line: int, column: int) -> None:
    with pytest.raises(InvalidSource, match=reason) as caught:
        parse_gbnf(text)
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("root ::= " + "(" * 201 + '"a"' + ")" * 201, "grammar_nesting"),
        ("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000, "grammar_nesting"),
        ('root ::= "a"{2000000000,2147483647}', "repetition_count"),
        ('root ::= "a"{99999999999999999999999}', "repetition_count"),
        ('root ::= "a"{1000001}', "repetition_count"),
    ],
    ids=range(5),
)
def test_limits_are_named(text: str, limit: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        parse_gbnf(text)
    assert caught.value.limit == limit
    assert caught.value.position is not None
    assert str(caught.value.value) in str(caught.value)


def test_two_hundred_groups_are_read(oracle: Oracle) -> None:
    grammar = parse_gbnf("root ::= " + '("x" | "q" ' * 200 + '"a"' + ")*" * 200)
    gbnf = print_grammar(prepare(grammar, Budget()))
    assert oracle.accepts(gbnf, ["", "x", "xqx", "aqx", "qq"]) == [True, True, True, False, True]


def test_the_tree_is_what_was_written() -> None:
    rules = parse_gbnf('root ::= "a" x? ("b" | .){2,3} !<think> <[7]>\nx ::= [^b]').rules
    assert rules["root"] == seq(
        lit("a"), Rep(Ref("x"), 0, 1), Rep(alt(lit("b"), Chars(ANY)), 2, 3), Token("<think>", True), Token(7)
    )
    assert rules["x"] == Chars(~CharSet.of("b"))


def test_a_rule_defined_twice_is_noted() -> None:
    _, notes = read_gbnf('root ::= x\nx ::= "a"\nx ::= "b"')
    assert notes == ("rule 'x' is defined again in line 3; the last one counts",)


def test_what_is_accepted_llama_cpp_takes(oracle: Oracle) -> None:
    for text, _, _ in READ:
        try:
            gbnf = print_grammar(prepare(parse_gbnf(text), Budget()))
        except ConversionError:
            continue
        assert oracle.parse(gbnf).ok, text
