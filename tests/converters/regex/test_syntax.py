"""Every element of the dialect, with texts that match and texts that don't (whole, unless said otherwise)."""

from __future__ import annotations

import contextlib

import pytest

from converters.errors import ConversionError, InvalidSource, LimitExceeded, Unsatisfiable, UnsupportedFeature
from converters.grammar.expr import RuleBook
from converters.limits import Budget
from converters.regex import lower_regex, regex_dfa
from converters.regex.edges import Mode

MATCH: list[tuple[str, list[str], list[str]]] = [
    # literals and escapes
    ("abc", ["abc"], ["", "ab", "abcd", "ABC"]),
    ("", [""], ["a", " "]),
    (r"\.\*\+\?\(\)\[\]\{\}\|\^\$\\\/\-", [".*+?()[]{}|^$\\/-"], ["a"]),
    (r"\@\_\ \<\>\#\~\é", ["@_ <>#~é"], ["@"]),
    (r"\t\n\r\f\v\a", ["\t\n\r\f\v\a"], ["t"]),
    (r"[\0\01]", ["\x01"], ["0", "1"]),
    (r"\x41\u0042\U00000043\u{44}\x{1F600}", ["ABCD😀"], ["abcd😀"]),
    (r"\uD83D\uDE00+", ["😀", "😀😀"], [""]),
    (r"\cA\cj", ["\x01\n"], ["cA"]),
    (r"\101\012", ["A\n"], ["101"]),
    (r"\N{GREEK SMALL LETTER ALPHA}", ["α"], ["a"]),
    ("日本", ["日本"], ["日"]),
    # the dot and flags
    (".", ["a", " ", "\t", "😀", "\x85"], ["", "\n", "\r", "\u2028", "\u2029", "ab"]),
    ("(?s).", ["\n", "\u2028", "a"], [""]),
    ("(?s:.).", ["\na"], ["\n\n", "a\n"]),
    ("(?i)aZ[b-d]é", ["aZbé", "AzDé"], ["aZbÉ"]),
    ("(?i:a)b", ["ab", "Ab"], ["aB"]),
    ("(?i)[^a]", ["b", "é"], ["a", "A"]),
    ("(?i)k", ["k", "K"], ["\u212a"]),  # folding is ASCII: no Kelvin sign
    ("a(?i)b|c", ["ab", "aB", "c", "C"], ["Ab"]),
    ("(?i:a(?-i:b))", ["ab", "Ab"], ["aB"]),
    ("(?x) a b # comment\n c [ ] ", ["abc "], ["a b c"]),
    ("a(?#any) b", ["a b"], ["ab"]),
    ("(?a)\\w", ["a"], ["é"]),
    # classes
    ("[abc]", ["a", "c"], ["d", "ab", ""]),
    ("[a-cx-z0]", ["b", "y", "0"], ["d", "-"]),
    ("[^a-c]", ["d", "\n", "😀"], ["a", ""]),
    ("[-a]", ["-", "a"], ["b"]),
    ("[a-]", ["-", "a"], ["b"]),
    ("[a^]", ["^", "a"], ["b"]),
    (r"[\w-.]", ["a", "-", "."], ["/", ","]),
    (r"[\]\\\-[]", ["]", "\\", "-", "["], ["a"]),
    (r"[\b\t]", ["\b", "\t"], ["b"]),
    (r"[\d\s]", ["5", " "], ["a"]),
    (r"[^\W_]", ["a", "5"], ["_", "-", "é"]),
    (r"[\s\S]", ["\n", "a"], [""]),
    ("[^]", ["\n", "a"], [""]),
    ("a[^]*", ["a", "a\n\n"], [""]),
    (r"[\x20-\u2e7f]+", ["abcé", "~ ~"], ["日本", ""]),
    ("[😀-🙏]", ["😁"], ["a"]),
    (r"[\uD83D\uDE00-\uD83D\uDE4F]", ["😁"], ["a"]),
    (r"[\1]", ["\x01"], ["1"]),
    (r"[$.|(){}*+?]", ["$", ".", "|", "(", "{", "*"], ["a"]),
    # shorthand
    (r"\d", ["0", "9"], ["a", "٣"]),
    (r"\w", ["a", "Z", "0", "_"], ["é", "-"]),
    (r"\s", [" ", "\t", "\n", "\u00a0", "\ufeff", "\u3000", "\u2028"], ["a", "\x1c", "\x85", "\u200b"]),
    (r"\D\W\S", ["a-a", "é é"], ["0-a", "aaa", "a- "]),
    # Unicode
    (r"\p{Lu}\p{Ll}*", ["Éa", "Жзд"], ["a", "1"]),
    (r"\p{Letter}\p{Nd}", ["é٣"], ["11"]),
    (r"\pL\PL", ["a1", "é!"], ["aa"]),
    (r"[^\p{L}\p{N}]", ["-"], ["a", "½"]),
    (r"\p{^L}", ["1"], ["a"]),
    (r"\P{Uppercase_Letter}", ["a"], ["A"]),
    (r"\p{gc=Sc}\p{General_Category=Sm}", ["€+"], ["+€"]),
    (r"\p{Any}", ["\n", "😀"], [""]),
    (r"\p{ASCII}", ["a", "\x7f"], ["é"]),
    (r"\p{LC}", ["a", "A", "ǅ"], ["ª"]),
    # groups and alternation
    ("(a)(?:b)(?<x>c)(?P<y>d)(?'z'e)", ["abcde"], ["abcd"]),
    ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
    ("(|x|yz)+;", [";", "x;", "xyzx;"], ["y;", "x"]),
    ("a()b", ["ab"], ["a()b"]),
    ("(C|C\\+\\+|C#)", ["C", "C++", "C#"], ["C+"]),
    # quantifiers
    ("ab*c+d?", ["ac", "abbccd"], ["abd", "acdd"]),
    ("a*?b+?c??", ["aabb", "bc"], ["", "a"]),
    ("a{3}", ["aaa"], ["aa", "aaaa"]),
    ("a{2,}", ["aa", "aaaaa"], ["a"]),
    ("a{1,3}?", ["a", "aaa"], ["", "aaaa"]),
    ("a{,2}", ["", "aa"], ["aaa", "a{,2}"]),
    ("a{0}b", ["b"], ["ab"]),
    ("a{0,0}", [""], ["a"]),
    ("{}a{b}{1", ["{}a{b}{1"], ["a"]),
    ("a{1,b}", ["a{1,b}"], ["a"]),
    ("x{ 1}", ["x{ 1}"], ["x"]),
    ("(a*)*b", ["b", "aaab"], ["a"]),
    ("(?:a?){3}", ["", "aaa"], ["aaaa"]),
    ("((a{2}){2}){2}", ["a" * 8], ["a" * 7, "a" * 9]),
    ("(?:ab|c){500}", ["ab" * 500, "c" * 500, "abc" * 250], ["c" * 499, "c" * 501]),
    # anchors
    ("^abc$", ["abc"], ["abc\n", "xabc"]),
    (r"\Aabc\z", ["abc"], ["abc\n"]),
    (r"abc\Z", ["abc"], ["abc\n"]),
    ("(^a|b)(c$|d)", ["ac", "ad", "bc", "bd"], ["a"]),
    ("^^a$$", ["a"], [""]),
    ("(?:^)*a", ["a"], [""]),
    ("a(?:^b)?", ["a"], ["ab"]),
    ("(?:^|,)a", ["a", ",a"], [",,a"]),
    ("a$|b", ["a", "b"], ["ab"]),
    ("(?m)a$\n^b", ["a\nb"], ["ab"]),
    ("(?m)(?:^a.*$\\s?)+", ["ab", "ab\nac", "a\u2028a"], ["ab\nb"]),
    ("a\n(?m:^)b", ["a\nb"], ["ab"]),
    # word boundaries
    (r"\bab\b", ["ab"], [" ab"]),
    (r"a\b.b", ["a-b", "a b"], ["aab", "a_b"]),
    (r"a\B.b", ["aab", "a_b"], ["a-b"]),
    (r"(?:\b\w+\b ?)+", ["one two", "a"], [" a", ""]),
    (r".*\bcat\b.*", ["cat", "a cat.", "cat, dog"], ["concat", "cats"]),
    # look-around
    (r"(?=.*\d)[a-z\d]{3}", ["ab1", "123"], ["abc", "ab12"]),
    (r"(?!.*--)[a-z-]+", ["a-b", "-"], ["a--b", "--"]),
    (r"[a-z]+(?<!x)", ["ab", "xa"], ["abx", "x"]),
    (r"[a-z]+(?<=xy)", ["xy", "axy"], ["x", "xya"]),
    (r"a(?=b).", ["ab"], ["ac"]),
    (r"a(?!b).", ["ac"], ["ab"]),
    (r".(?<=a)b", ["ab"], ["bb"]),
    (r".(?<!a)b", ["bb"], ["ab"]),
    (r"(?:(?!ab).)*", ["", "ba", "aab"[:1]], ["ab", "xabx"]),
    (r"(?=(?!a).)(?:a|b)", ["b"], ["a"]),
    (r".*(?<=a(?=b)).*", ["ab", "xaby"], ["a", "ba"]),
    (r".*(?<!a(?!b)).", ["ab", "xb"], ["ac"]),
    (r"(?=a|b$)..?", ["ab", "a", "b"], ["bc", "c"]),
    (r"(?=^a)a(?<=a$)", ["a"], ["b"]),
    (r"(?:(?=a)a|(?<=a)b)+", ["aab", "a", "ab"], ["b", "abb"]),
    (r"x(?<=\bx).*", ["x", "x!"], ["ax"]),
    (r"(?:(?=(?:..)*$)a)+|b", ["b"], ["a", "aa"]),
    (r"^(?!tag|category)$", [""], ["tag"]),
]

SEARCH: list[tuple[str, list[str], list[str]]] = [
    ("b", ["b", "abc", "\nb\n"], ["", "a"]),
    ("^b", ["b", "bc"], ["ab", "\nb"]),
    ("b$", ["b", "ab"], ["bc", "b\n"]),
    ("^$", [""], ["\n", "a"]),
    ("^a|b$", ["ac", "cb", "a"], ["ca", "bc"]),
    ("", ["", "x"], []),
    ("a*", ["", "b"], []),
    ("[a-z]{2,5}", ["ab", "1abcdefg1"], ["a1b", ""]),
    ("(?:^|,)x(?:,|$)", ["x", "a,x,b", "x,"], ["ax", "xa"]),
    (r"(?m)^b$", ["a\nb", "b\nc"], ["ab", "bc"]),
    (r"\bcat\b", ["a cat", "cat"], ["concat"]),
    (r"\B", ["", "ab", "-"], ["a"]),
    ("^(?!.*foo)", ["", "fo"], ["afoo"]),
    ("(?<!a)b", ["b", "ab b"], ["ab", "a"]),
    ("b(?!c)", ["b", "bcb"], ["bc"]),
    ("(?<=a).{3}$", ["axyz"], ["bxyz", "axy"]),
    (r"\Aab|cd\z", ["abx", "xcd"], ["xab"]),
    ("(^a)?b", ["b", "ab", "cb"], ["a"]),
    ("a^b", [], ["ab", "a\nb"]),
    ("$^", [""], ["a"]),
]

INVALID: list[tuple[str, int]] = [
    ("(abc", 0), ("abc)", 3), ("[a-", 0), ("[a", 0), ("a{3,1}", 1), ("ab\\", 2), ("*a", 0), ("a|*", 2), ("(?", 0),
    ("(?<>a)", 0), ("a**", 2), ("a{1,2}{1,2}", 6), ("a???", 3), ("^*", 1), (r"\b+", 2), ("[z-a]", 1), (r"\x4", 0),
    (r"\u12", 0), (r"\u{110000}", 0), (r"\q", 0), ("(?y)", 0), ("(?<a>x)(?<a>y)", 7), ("(?#a", 0), (r"\c1", 0),
    ("(?P<1a>x)", 0), (r"\N{NO SUCH NAME}", 0), ("{1}", 0), (r"[\q]", 1), ("a\n(b", 2),
]  # fmt: skip

UNSUPPORTED: list[tuple[str, int, str]] = [
    (r"(a|b)\1", 5, "back-reference"),
    (r"(?P<x>a)(?P=x)", 8, "back-reference"),
    (r"(?<x>a)\k<x>", 7, "back-reference"),
    ("a(?R)?", 1, "recursion"),
    ("(a)(?1)", 3, "recursion"),
    ("(?P<x>a)(?P>x)", 8, "recursion"),
    ("(a)?(?(1)b|c)", 4, "conditional"),
    ("(?>a)", 0, "atomic"),
    ("a++", 1, "possessive"),
    ("a{2}+", 1, "possessive"),
    (r"\p{Greek}", 0, "Greek"),
    (r"\p{Script=Latin}", 0, "Script=Latin"),
    (r"\p{Alphabetic}", 0, "Alphabetic"),
    ("[[:alpha:]]", 1, "POSIX"),
    ("[]a]", 0, "]"),
    ("[^]a]", 0, "]"),
    (r"\uD83D", 0, "surrogate"),
    (r"[\uD800-\uDBFF]", 0, "surrogate"),
    (r"a\Xb", 1, "\\X"),
    ("(?u)a", 0, "flag"),
    ("(?|a|b)", 0, "branch reset"),
    ("(*FAIL)", 0, "verbs"),
]

EMPTY = ["[]", "a[]", "(?!)", r"a\bb", "a^b", "$a", "(?=b)a", "[^\\s\\S]"]


def check(pattern: str, mode: Mode, accepted: list[str], rejected: list[str]) -> None:
    dfa = regex_dfa(pattern, mode, Budget())
    assert [text for text in accepted if not dfa.accepts(text)] == []
    assert [text for text in rejected if dfa.accepts(text)] == []


@pytest.mark.parametrize(("pattern", "accepted", "rejected"), MATCH)
def test_full_match(pattern: str, accepted: list[str], rejected: list[str]) -> None:
    check(pattern, "match", accepted, rejected)


@pytest.mark.parametrize(("pattern", "accepted", "rejected"), SEARCH)
def test_search(pattern: str, accepted: list[str], rejected: list[str]) -> None:
    check(pattern, "search", accepted, rejected)


@pytest.mark.parametrize(("pattern", "offset"), INVALID)
def test_malformed_patterns_are_refused_with_the_place(pattern: str, offset: int) -> None:
    with pytest.raises(InvalidSource) as caught:
        regex_dfa(pattern, "match", Budget())
    assert caught.value.position is not None
    assert caught.value.position.offset == offset


@pytest.mark.parametrize(("pattern", "offset", "name"), UNSUPPORTED)
def test_what_is_not_regular_or_not_agreed_is_refused_by_name(pattern: str, offset: int, name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=name.replace("\\", "\\\\").replace("]", "\\]")) as caught:
        regex_dfa(pattern, "match", Budget())
    assert caught.value.position is not None
    assert caught.value.position.offset == offset


@pytest.mark.parametrize("pattern", EMPTY)
def test_a_pattern_that_nothing_matches(pattern: str) -> None:
    assert regex_dfa(pattern, "match", Budget()).is_empty()
    with pytest.raises(Unsatisfiable):
        lower_regex(pattern, "match", RuleBook(), Budget())


def test_nul_is_a_character_though_no_sampler_makes_it() -> None:
    dfa = regex_dfa(r"a\0+b?", "match", Budget())
    assert dfa.accepts("a\0b")
    assert not dfa.accepts("a0b")


def test_the_place_counts_lines() -> None:
    with pytest.raises(InvalidSource) as caught:
        regex_dfa("ab\ncd(", "match", Budget())
    assert (caught.value.position.line, caught.value.position.column) == (2, 3)  # type: ignore[union-attr]


def test_nesting_is_bounded_and_never_a_crash() -> None:
    assert regex_dfa("(" * 100 + "a" + ")" * 100, "match", Budget()).accepts("a")
    for pattern in ("(" * 2000 + ")" * 2000, "(?:a" * 1000 + ")" * 1000, "(?=" * 900 + ")" * 900):
        with pytest.raises(LimitExceeded) as caught:
            regex_dfa(pattern, "match", Budget())
        assert caught.value.limit == "regex_nesting"


@pytest.mark.parametrize(
    "text", ["(", "[", "\\", "(?", "(?<", "[^", "a{", "[\\", "(?P", "(?i", "(?#", "\\p", "\\p{", "\\x", "\\u{", "[a-\\"]
)
def test_half_patterns_raise_only_our_errors(text: str) -> None:
    for pattern in (text, text + "a", "a" + text, text * 3):
        with contextlib.suppress(ConversionError):
            regex_dfa(pattern, "search", Budget())
