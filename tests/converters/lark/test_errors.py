"""What is refused: which error, what it names, and where."""

from __future__ import annotations

import pytest

from converters.errors import ConversionError, InvalidSource, LimitExceeded, Unsatisfiable, UnsupportedFeature
from tests.converters.lark.language import compile_lark

# source, kind of error, words of its message, (line, column)
REFUSED: list[tuple[str, type[ConversionError], str, tuple[int, int] | None]] = [
    # not Lark
    ("", InvalidSource, "no rule 'start'", (1, 1)),
    ('a: "x"', InvalidSource, "no rule 'start'", (1, 1)),
    ('start{x}: x', InvalidSource, "no rule 'start'", (1, 1)),
    ('start: / "x"\n', InvalidSource, "unexpected '/'", (1, 8)),
    ('start: "a\n', InvalidSource, "unexpected '\"'", (1, 8)),
    ('start "a"', InvalidSource, "unexpected '\"'", (1, 7)),
    ('start: ("a"\nb: "x"', InvalidSource, "unexpected", (1, 12)),
    ('start: "a" ~ 2..', InvalidSource, "expected a number", (1, 17)),
    ('start: "a"??', InvalidSource, "unexpected '?'", (1, 12)),
    ('Start: "a"', InvalidSource, "unexpected 'tart'", (1, 2)),
    ('start: "a" -> B', InvalidSource, "expected a rule name", (1, 15)),
    ("start: 'a'", InvalidSource, "unexpected \"'\"", (1, 8)),
    ('start: "a" ;', InvalidSource, "unexpected ';'", (1, 12)),
    ('root ::= "a"', InvalidSource, "unexpected ':'", (1, 7)),
    ('start: "a"\n%foo x', InvalidSource, "unexpected '%'", (2, 1)),
    # names
    ('start: "a" b', InvalidSource, "rule 'b' is used but not defined (in rule 'start')", (1, 12)),
    ('start: A\nA: "x"\n  | B', InvalidSource, "terminal 'B' is used but not defined (in terminal 'A')", (3, 5)),
    ('start: "a"\nunused: b', InvalidSource, "rule 'b' is used but not defined", (2, 9)),
    ('start: "a"\n%ignore B', InvalidSource, "terminal 'B' is used but not defined (in %ignore)", (2, 9)),
    ('start: "a"\nstart: "b"', InvalidSource, "rule 'start' is defined more than once, first in line 1", (2, 1)),
    ('start: A\nA: "a"\nA: "b"', InvalidSource, "terminal 'A' is defined more than once", (3, 1)),
    ('start: INT\nINT: "a"\n%import common.INT', InvalidSource, "more than once", (2, 1)),
    ('start: A\nA: b\nb: "x"', InvalidSource, "rule 'b' is used inside terminal 'A'", (2, 4)),
    ('start: A\nA: "x" A', InvalidSource, "terminal 'A' contains itself", (2, 1)),
    ('start: A\nA: B\nB: "x" A?', InvalidSource, "contains itself", None),
    # templates
    ('start: t{"a"}', InvalidSource, "template 't' is used but not defined", (1, 8)),
    ('start: t\nt{x}: x', InvalidSource, "template 't' is used without arguments", (1, 8)),
    ('start: t{"a"}\nt{x, y}: x y', InvalidSource, "takes 2 arguments, not 1", (1, 8)),
    ('start: a{"a"}\na: "x"', InvalidSource, "template 'a' is used but not defined", (1, 8)),
    ('start: t{"a"}\nt{x}: x y', InvalidSource, "rule 'y' is used but not defined", (2, 9)),
    ('start: t{"a", "b"}\nt{x, x}: x', InvalidSource, "a parameter twice", (2, 1)),
    ('start: t{"a"}\nt{a}: a\na: "b"', InvalidSource, "parameter 'a' of template 't' is the name of a rule", (2, 1)),
    ('start: t{u}\nt{x}: x{"a"}\nu{x}: x', InvalidSource, "template 'u' is used without arguments", (1, 10)),
    ('start: t{"a"}\nt{x}: x{"a"}', UnsupportedFeature, "template parameter 'x' is used as a template", (2, 7)),
    ('start: A\nA{X}: X', UnsupportedFeature, "terminal 'A' has parameters", (2, 1)),
    ('start: t{"a"}\nt{x}: "(" t{t{x}} ")" | x', LimitExceeded, "templates need more than", (2, 11)),
    # literals
    (r'start: "\q"', UnsupportedFeature, r"escape \q", (1, 9)),
    (r'start: "a\/"', UnsupportedFeature, r"escape \/", (1, 10)),
    (r'start: "ab\x4"', InvalidSource, r"\x takes 2 hexadecimal digits", (1, 11)),
    (r'start: "\ud800"', InvalidSource, "is not a character", (1, 9)),
    (r'start: "\U00110000"', InvalidSource, "is not a character", (1, 9)),
    ('start: "a".."bc"', InvalidSource, "from one character to another", (1, 8)),
    ('start: "b".."a"', InvalidSource, "is empty", (1, 8)),
    ('start: "a"i.."b"', InvalidSource, "from one character to another", (1, 8)),
    ('start: "a"~3..2', InvalidSource, "3 to 2 is empty", (1, 12)),
    ('start: "a"~-1', InvalidSource, "is empty", (1, 12)),
    ('start: A\nA: "a"{3,2}', InvalidSource, "3 to 2 is empty", (2, 7)),
    # regexes
    ("start: /a(b/", InvalidSource, "not closed", (1, 10)),
    ("start: /a)(b/", InvalidSource, "unbalanced", (1, 10)),
    ("start: A\nA: \"x\"\n  | /[b/ \"y\"", InvalidSource, "not closed", (3, 6)),
    (r"start: /(a)\1/", UnsupportedFeature, "back-reference", (1, 12)),
    ("start: A\nA: \"x\" /(?P<n>a)(?P=n)/", UnsupportedFeature, "back-reference", (2, 17)),
    (r"start: /\p{Greek}/", UnsupportedFeature, "Greek", (1, 9)),
    ("start: /a/l", UnsupportedFeature, "flag l", (1, 11)),
    ("start: /a\nb/", InvalidSource, "several lines", (1, 10)),
    ("start: /(?x:a)b{3,2}/x", InvalidSource, "maximum below", (1, 16)),
    ("start: /<.*?>[a-z]+/", UnsupportedFeature, "greedy quantifier after a lazy one", (1, 19)),
    ("start: A\nA: (/<.*?/)+ \">\"", UnsupportedFeature, "greedy quantifier after a lazy one", None),
    ('start: A\nA: /<.*?/ %regex {"substring_chars": "ab"}', UnsupportedFeature, "beside &, ~ or %regex", (2, 11)),
    # statements
    ("%declare A\nstart: A", UnsupportedFeature, "%declare is not supported", (1, 1)),
    ('start: a\na: "x"\n%override a: "y"', UnsupportedFeature, "%override is not supported", (3, 1)),
    ('start: a\n%extend a: "y"', InvalidSource, "%extend of rule 'a', which is not defined", (2, 9)),
    ("start: A\n%import python.NAME -> A", UnsupportedFeature, "%import from 'python'", (2, 1)),
    ("start: A\n%import .common.INT -> A", UnsupportedFeature, "%import from '.common'", (2, 1)),
    ("start: A\n%import A", UnsupportedFeature, "without a grammar", (2, 1)),
    ("start: FOO\n%import common.FOO", InvalidSource, "common has no terminal 'FOO'", None),
    ("start: FOO\n%import common (INT, FOO)", InvalidSource, "common has no terminal 'FOO'", (2, 22)),
    ("start: x\n%import common.INT -> x", InvalidSource, "under the rule name 'x'", None),
    ("start: X\n%import common.INT -> X\n%import common.WS -> X", InvalidSource, "imported twice", None),
    ('%llguidance {"allow_invalid_utf8": true}\nstart: "a"', UnsupportedFeature, "allow_invalid_utf8", (1, 1)),
    ('%llguidance {"foo": 1}\nstart: "a"', UnsupportedFeature, "option foo", (1, 1)),
    ('%llguidance {"skip_repetition": "twice"}\nstart: "a"', UnsupportedFeature, "skip_repetition", (1, 1)),
    ('%llguidance []\nstart: "a"', InvalidSource, "takes a JSON object", (1, 13)),
    # attributes
    ('start[lazy]: /a+/', UnsupportedFeature, "attribute lazy", (1, 7)),
    ('start: a "b"\na[capture, max_tokens=5]: /a+/', UnsupportedFeature, "attribute max_tokens", (2, 12)),
    ('start[stop="x"]: /a+/', UnsupportedFeature, "attribute stop", (1, 7)),
    ('start[suffix="x"]: /a+/', UnsupportedFeature, "attribute suffix", (1, 7)),
    ('start[foo="x"]: /a+/', InvalidSource, "unknown attribute 'foo'", (1, 7)),
    # blocks
    ("start: %json [1]", InvalidSource, "takes a JSON object", (1, 14)),
    ('start: %json {"a": }', InvalidSource, "the JSON after %json is not valid", (1, 20)),
    ('start: %json {"a": NaN}', InvalidSource, "NaN is not JSON", (1, 14)),
    ("start: %json " + '{"a":' * 100_000, InvalidSource, "%json", None),
    ('start: "a"\n  | %json {"type": "strin"}', InvalidSource, "", (2, 5)),
    ('start: "a"\n  | %json {"$dynamicRef": "#a"}', ConversionError, "", (2, 5)),
    ('start: A\nA: %json {"type": "string"}', InvalidSource, "inside a terminal", (2, 4)),
    ('start: %regex {"foo": 1}', UnsupportedFeature, "'foo' of %regex", (1, 8)),
    ('start: %regex {}', InvalidSource, "exactly one of", (1, 8)),
    ('start: %regex {"substring_chars": "a", "substring_words": "b"}', InvalidSource, "exactly one of", (1, 8)),
    ('start: %regex {"substring_chunks": "ab"}', InvalidSource, "a list of strings", (1, 8)),
    ('start: %regex {"substring_chars": ["ab"]}', InvalidSource, "takes a string", (1, 8)),
    # tokens and operators of llguidance
    ('start: A\nA: <|x|>', InvalidSource, "can't stand inside a terminal", (2, 4)),
    ('start: "a"\n%ignore <|x|>', InvalidSource, "can't stand inside a terminal", (2, 9)),
    ('start: <[^1,2]>', UnsupportedFeature, "more than one token left out", (1, 8)),
    ('start: <[5-3]>', InvalidSource, "not a range of token ids", (1, 8)),
    ('start: <[x]>', InvalidSource, "not a token id", (1, 8)),
    ('start: <[]>', InvalidSource, "lists no token", (1, 8)),
    ('start: <[0-100000]>', LimitExceeded, "more than 4096 tokens", (1, 8)),
    ('start: @other', UnsupportedFeature, "another grammar (@other)", (1, 8)),
    ('start: "a" & "b"', InvalidSource, "for terminals only", (1, 1)),
    ('start: ~"a"', InvalidSource, "for terminals only", (1, 8)),
    # nothing left
    ("start: start", Unsatisfiable, "", None),
    ("start: A\nA: /a\\bc/", Unsatisfiable, "", None),
    ('start: A\nA: "a" & "b"', Unsatisfiable, "", None),
]  # fmt: skip


@pytest.mark.parametrize(("source", "kind", "words", "place"), REFUSED, ids=[source[:40] for source, *_ in REFUSED])
def test_refused(source: str, kind: type[ConversionError], words: str, place: tuple[int, int] | None) -> None:
    with pytest.raises(ConversionError) as caught:
        compile_lark(source)
    error = caught.value
    assert isinstance(error, kind), repr(error)
    assert words in error.reason
    if place is not None:
        assert error.position is not None, error
        assert (error.position.line, error.position.column) == place, error
