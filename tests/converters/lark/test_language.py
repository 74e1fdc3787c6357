"""Every element of the syntax: (source, texts in the language, texts outside), judged by llama.cpp and the matcher alike."""

from __future__ import annotations

import pytest

from converters.grammar.match import Matcher
from tests.converters.lark.language import compile_lark, matcher_of
from tests.oracle import Oracle

IMPORTS = "\n%import common.{0}\n"

CASES: dict[str, tuple[str, list[str], list[str]]] = {
    # strings, ranges and regexes
    "string": ('start: "ab"', ["ab"], ["", "a", "abc", "AB"]),
    "string, folded": ('start: "aB-é"i', ["ab-é", "AB-É", "Ab-é"], ["ab_é", "ab-e"]),
    "string, folding stays in ASCII": ('start: "ks"i', ["ks", "KS"], ["\u212as", "k\u017f"]),
    "string, escapes": (
        r'start: "\n\t\"\\\x41\u00e9\U0001F600\ud83d\ude00"', ['\n\t"\\Aé\U0001f600\U0001f600'], ["n"],
    ),
    "string with signs of a regex": ('start: "a.*[b]{2}|(c)+?^$/"', ["a.*[b]{2}|(c)+?^$/"], ["aab"]),
    "terminal with signs of a regex": ('start: A\nA: "a.*[b]{2}|(c)+?^$/-" "x"', ["a.*[b]{2}|(c)+?^$/-x"], ["aabx"]),
    "empty string": ('start: "" "a" ""', ["a"], ["", "aa"]),
    "range": ('start: "b".."d"', ["b", "c", "d"], ["a", "e", "", "bb"]),
    "range of one": ('start: "b".."b"', ["b"], ["a"]),
    "range in a terminal": ('start: A\nA: "0".."9" "\u0430".."\u044f"', ["0\u0431"], ["\u04310", "0"]),
    "regex": ("start: /a[bc]+d?/", ["ab", "acbd"], ["a", "abdd"]),
    "regex, slash": (r"start: /a\/b/", ["a/b"], ["ab", r"a\/b"]),
    "regex, flag i": ("start: /a[b-d]/i", ["ab", "AC", "aD"], ["ae"]),
    "regex, dot ends at LF only": ("start: /a./", ["ab", "a\r", "a\u2028"], ["a\n", "a"]),
    "regex, flag s": ("start: /a./s", ["a\n", "ab"], ["a"]),
    "regex, flag s in a group": ("start: /(?s:.)./", ["\nb"], ["b\n"]),
    "regex, flag s to the end of the group": ("start: /(?:a(?s).)./", ["a\nb"], ["ab\n"]),
    "regex, flag m": ("start: /a$\\n^b/m", ["a\nb"], ["ab"]),
    "regex, flag x": ("start: /a  b # c*? d\n   | [ ]d/x", ["ab", " d"], ["a", "d", "a b"]),
    "regex, flag u": ("start: /a/u", ["a"], ["b"]),
    "regex, anchors": ("start: /^a$/", ["a"], ["", "aa"]),
    "regex, lookahead": ("start: /(?!ab)[a-c]+/", ["a", "ac", "ba"], ["ab", "abc"]),
    "regex, named group in a terminal used twice": ("start: A\nA: B B\nB: /(?P<x>a)(?<y>b)/", ["abab"], ["ab"]),
    "regex that is a choice, in a sequence": ("start: A\nA: /a|b/ /c|d/", ["ac", "bd"], ["a", "c", "ab"]),
    "regex, inline flag ends with the regex": ("start: A\nA: /(?i)a/ /b/", ["Ab", "ab"], ["aB"]),
    # operators
    "optional, star, plus": ('start: "a"? "b"* "c"+', ["c", "abbc", "acc"], ["", "ab", "aac"]),
    "brackets": ('start: ["a" "b"] "c"', ["c", "abc"], ["ac", "bc"]),
    "group": ('start: ("a" | "b" "c")+', ["a", "bca"], ["", "b", "ab"]),
    "count": ('start: "a"~3', ["aaa"], ["aa", "aaaa"]),
    "count, zero": ('start: "a"~0 "b"', ["b"], ["ab"]),
    "counts": ('start: "a"~2..3', ["aa", "aaa"], ["a", "aaaa"]),
    "counts with spaces": ('start: "a" ~ 2 .. 3', ["aa", "aaa"], ["a", "aaaa"]),
    "counts in braces": ('start: "a"{2} ("b"){1,2} A{2,} A{,1}\nA: "c"', ["aabcc", "aabbccc"], ["abcc", "aabc", "aabbbcc"]),
    "a high count": ('start: "a"~1..3000', ["a", "a" * 3000], ["", "a" * 3001]),
    "a high count in a terminal": ('start: A "b"\nA: "a"~1..3000', ["ab", "a" * 3000 + "b"], ["b", "a" * 3001 + "b"]),
    "alternatives on lines": ('start: "a"\n     | "b" "c"\n     | d\nd: "d"', ["a", "bc", "d"], ["b", ""]),
    "empty alternative": ('start: "a" (| "b") x\nx:\n', ["a", "ab"], ["b", "abb"]),
    "empty first line, as Lark reads it": ('start:\n  | "a"', ["", "a"], ["aa"]),
    "continued line": ('start: "a" \\\n  "b"', ["ab"], ["a"]),
    # rules and terminals
    "modifiers": ('?start: a | _b\n!a: "a"\n_b: c\n!?c: "c"\n', ["a", "c"], ["b"]),
    "aliases": ('start: "a" -> x\n  | "b" -> y', ["a", "b"], ["ab"]),
    "priorities": ('start.2: a A\na.-1: "a"\nA.10: "b"', ["ab"], ["a"]),
    "names with hyphens": ('start: my-rule MY-T\nmy-rule: "a"\nMY-T: "b"', ["ab"], ["a"]),
    "names that differ in case and underscore": ('start: a _a A _A\na: "1"\n_a: "2"\nA: "3"\n_A: "4"', ["1234"], ["1111"]),
    "a rule called root": ('start: root "b"\nroot: "a"', ["ab"], ["a"]),
    "recursion": ('start: "(" start ")" | "x"', ["x", "((x))"], ["", "(x", "x)"]),
    "left recursion": ('start: start "+" t | t\nt: t "*" "1" | "1"', ["1", "1+1*1"], ["+1", "1+", ""]),
    "hidden left recursion": ('start: a? start "b" | "c"\na: "a"', ["c", "cb", "acb", "aacbb"], ["", "b", "ac"]),
    "terminals in terminals": ('start: A\nA: B+ | C "x"\nB: C C\nC: "c"', ["cc", "cccc", "cx"], ["c", "ccc"]),
    "used before and after its definition": ('B: "b"\nstart: A B a\na: "a"\nA: "A"', ["Aba"], ["ab"]),
    "comments": ('// c "x\nstart: "a" // d\n# e\n  | "#b" # "x"\n', ["a", "#b"], ["x"]),
    "carriage returns": ('start: "a"\r\n  | b\r\nb: "b"\r\n', ["a", "b"], ["ab"]),
    "a terminal that matches nothing": ('start: A | "b"\nA: /a\\bc/', ["b"], ["ac", "a"]),
    "unused and empty": ('start: "a"\nUNUSED: /a\\bc/', ["a"], [""]),
    # templates
    "template": ('start: _sep{A, ","}\n_sep{x, y}: x (y x)*\nA: "a"', ["a", "a,a"], ["", "a,", ",a"]),
    "template in a template": (
        'start: list{pair{"a", /[0-9]/}}\nlist{x}: "[" x* "]"\npair{k, v}: k ":" v', ["[]", "[a:1a:2]"], ["[a]", "a:1"],
    ),
    "recursive template": ('start: nest{"a"}\nnest{x}: "(" nest{x} ")" | x', ["a", "((a))"], ["(a", ""]),
    "a parameter shadows nothing": ('start: t{b} b\nt{x}: x x\nb: "b"', ["bbb"], ["bb"]),
    # ignored terminals
    "ignore": ('start: "a" "b"\n%ignore " "', ["ab", " a  b ", "ab "], ["a\tb", "aab"]),
    "ignore, not inside terminals": ('start: A "bc"\nA: "a" "a"\n%ignore " "', ["aa bc", " aabc"], ["a abc", "aab c"]),
    "ignore, several": (
        'start: "a"+\n%ignore " "\n%ignore C\nC: /#[^\\n]*/\n%ignore /\\n/', ["a a#b\n a", "#x\na"], ["a#a\nb", ""],
    ),
    "ignore, inside repetitions of rules": ("start: d+\nd: /[0-9]/\n%ignore \" \"", ["1 2", "12", " 1 "], ["", " "]),
    "ignore beside a token that may be empty": (
        'start: "a" N "b" N\nN: /[0-9]*/\n%ignore " "', ["ab", "a 12 b ", "a  b", " a b 1 "], ["a 1 2 b", "a"],
    ),
    "ignore beside an empty start": ('start: A*\nA: "a"\n%ignore " "', ["", " ", " a", "a a "], ["b"]),
    "ignore with a lazy comment": (
        'start: "a" "b"\n%ignore C_COMMENT\n%import common.C_COMMENT', ["a/* b */b", "ab/**/"], ["a/* */b*/", "a/*b"],
    ),
    "ignore, as long as it goes": (
        'start: "(" "a"+ ")"\n%ignore /#[^\\n]*/\n%ignore /[ \\n]/', ["(a#)\n)", "(a)#", "#\n(#a\na)#"], ["(a#)", "#(a)"],
    ),
    "ignore, a token that begins where it ends": (
        'start: ("a" NL)+\nNL: /\\n+/\n%ignore /#[^\\n]*/\n%ignore " "', ["a\n", "a # a\na#\n\n", "a \n#x"], ["a#", "a #a"],
    ),
    "ignore, a token that may begin like it": (
        'start: "a" T "b"\nT: /[^b]+/\n%ignore " "', ["a b", "ax yb", "a  x  b "], ["ab", "a"],
    ),
    "ignore before json and at the end": (
        'start: %json {"const": 1} "x"\n%ignore /#[^\\n]*\\n?/', ["#a\n1#\nx#", "1x"], ["#a1x", "1#x"],
    ),
    "ignore once": (
        '%llguidance {"skip_repetition": "once"}\nstart: "a" "b"\n%ignore /[ \\t]{1,2}/', ["ab", "a b", "a  b "], ["a   b"],
    ),
    # imports
    "import": ("start: INT" + IMPORTS.format("INT"), ["0", "12"], ["", "-1"]),
    "import, renamed": ("start: N\n%import common.SIGNED_INT -> N\nINT: \"x\"", ["-1", "+2", "3"], ["x", "--1"]),
    "import of several": ("start: CNAME WS NUMBER\n%import common (CNAME, WS, NUMBER)", ["_a1 \n1.5e3"], ["1 1", "a1"]),
    "import twice": ("start: INT\n%import common.INT\n%import common (INT, WS)", ["1"], ["a"]),
    "import, escaped string": (
        "start: ESCAPED_STRING" + IMPORTS.format("ESCAPED_STRING"),
        ['""', '"a b"', r'"\""', r'"\\"', '"\t"'], ['"', '"a"b"', r'"\"', '"\n"', 'a"b"'],
    ),
    "import inside a terminal": (
        'start: L\nL: "[" S ("," S)* "]"\n%import common.ESCAPED_STRING -> S', ['["a"]', '["a","b"]'], ['["a" "b"]', '[]'],
    ),
    "import, line comments": (
        "start: A | B | C\n%import common (SH_COMMENT, CPP_COMMENT)\n%import common.SQL_COMMENT -> C\nA: SH_COMMENT\n"
        "B: CPP_COMMENT",
        ["#", "# a", "//b", "--c"], ["# a\n", "/b", ""],
    ),
    "import, newline": ("start: NEWLINE" + IMPORTS.format("NEWLINE"), ["\n", "\r\n\n"], ["\r", ""]),
    "extend a rule": ('start: a\na: "a"\n%extend a: "b" | "c"', ["a", "b", "c"], ["ab"]),
    "extend an import": ('start: DIGIT\n%import common.DIGIT\n%extend DIGIT: "a"', ["1", "a"], ["b"]),
    # lazy quantifiers
    "lazy": ('start: /".*?"/ "x"', ['"a"x', '""x'], ['"a"b"x']),
    "lazy over parts": ('start: A\nA: "<" B ">"\nB: /.*?/', ["<>", "<a>"], ["<a>>", "<"]),
    "lazy choice": ("start: A\nA: /'.*?'/ | /\".*?\"/ | /[a-z]+/", ["'a'", '"\'"', "abc"], ["'a'a'", "a'"]),
    "lazy in a repetition": ("start: A\nA: (B \",\")* B\nB: /<.*?>/", ["<a>", "<a>,<>"], ["<a><b>", "<a>,"]),
    # what llguidance adds
    "and, not": ('start: A\nA: /[a-z]+/ & ~("if" | "else") & ~/.*x/ | "0"', ["i", "iff", "0", "xy"], ["if", "else", "ax", "I"]),
    "not binds tightest": ('start: A\nA: ~"a"+ & /a{1,3}/', ["aa", "aaa"], ["a", "", "aaaa"]),
    "substring of chunks": (
        'start: A\nA: %regex {"substring_chunks": ["abc", "de", "fg"]}', ["", "abc", "de", "defg"], ["ab", "cde", "abcfg"],
    ),
    "substring of words": ('start: %regex {"substring_words": "foo bar. baz"}', ["", "foo bar", ". baz"], ["oo", "foobar"]),
    "substring of characters": ('start: "x" %regex {"substring_chars": "ab c"}', ["x", "xb c", "xab"], ["xac", "xabc"]),
    "json": (
        'start: "f" %json {"type": "object", "properties": {"a": {"enum": [1, "}"]}},\n  "required": ["a"],'
        ' "additionalProperties": false} "." \n%ignore " "',
        ['f{"a": 1}.', ' f {"a":"}"} .'], ["f{}.", 'f{"a":2}.', "f"],
    ),
    "json in a rule of its own": ('start: a a\na: %json {"const": 1}', ["11"], ["1", "12"]),
    "attributes without effect": ('start[capture]: a\na[capture="x", temperature=0.5]: "a"', ["a"], [""]),
    "no_forcing": ('%llguidance {"no_forcing": true, "allow_invalid_utf8": false}\nstart: "a"', ["a"], [""]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_element(name: str, oracle: Oracle) -> None:
    source, inside, outside = CASES[name]
    compiled = compile_lark(source)
    expected = [True] * len(inside) + [False] * len(outside)
    assert dict(zip([*inside, *outside], oracle.accepts(compiled.gbnf, [*inside, *outside]), strict=True)) == dict(
        zip([*inside, *outside], expected, strict=True)
    ), compiled.gbnf
    matcher = Matcher.from_tables(compiled.tables)
    assert [matcher.accepts(text) for text in [*inside, *outside]] == expected


def test_special_tokens() -> None:
    matcher = matcher_of('start: <think> "a" </think> <[5]> <[1-2,9]> <[^7]> <[*]>')
    state = matcher.advance_symbol(matcher.start, "<think>")
    assert matcher.advance_symbol(matcher.start, "</think>") is None
    state = matcher.advance(state, "a")
    assert state is not None
    for token, refused in (("</think>", 5), (5, 4), (9, 3), (8, 7), (7, None)):
        if refused is not None:
            assert matcher.advance_symbol(state, refused) is None
        state = matcher.advance_symbol(state, token)
        assert state is not None
    assert matcher.may_end(state)


def test_ignored_stands_around_special_tokens() -> None:
    matcher = matcher_of('start: <a> "b"\n%ignore " "')
    state = matcher.advance_symbol(matcher.advance(matcher.start, "  ") or matcher.start, "<a>")
    assert state is not None
    after = matcher.advance(state, " b ")
    assert after is not None
    assert matcher.may_end(after)


def test_notes() -> None:
    source = 'start[capture].1: A b\nA.2: "a" /(?=b)/\nb.3: "b"\nX: /x\\by/\n'
    source = source.replace("start[capture].1", "start.1[capture]").replace('"a" /(?=b)/', "/(?!b)a/")
    notes = compile_lark(source).notes
    assert any("priority of terminal A" in note for note in notes)
    assert any("priority of rule b" in note for note in notes)
    assert any("capture of rule start" in note for note in notes)
    assert any("look-around" in note for note in notes)
    assert not compile_lark('start: "a"').notes


@pytest.mark.parametrize("source", ['start: "a" N "b"\nN: /[0-9]*/\n%ignore / +/', 'start: ("a"? /b*/)* "c"\n%ignore /[ ]/'])
def test_ignored_is_told_in_one_way(source: str, oracle: Oracle) -> None:
    """Walking a long run of ignored text costs the same per character all along."""
    costs = oracle.check_costs(compile_lark(source).gbnf, "a" + " " * 400)
    assert max(costs[-50:]) < 20 * (sorted(costs)[len(costs) // 2] + 1)
