"""Tool calls to grammar: every tool's arguments by its schema, put into the codec's form.

Errors carry the place inside the list of tools: `/1/parameters/properties/a` is in the second tool's schema, `/1/input` in its
grammar, `/1/name` is its name, `/1` the tool; "" is the whole. The caller knows what its request calls these.
"""

from __future__ import annotations

from dataclasses import replace

from converters.constraint import FreeText, JsonSchema, Tool, ToolCalls, ToolInput
from converters.errors import InvalidSource, LimitExceeded, Unsatisfiable, UnsupportedFeature
from converters.grammar.expr import NEVER, Expr, Grammar, Ref, RuleBook, Token, alt, lit
from converters.grammar.graft import Embed
from converters.grammar.passes.fixpoint import ending_rules
from converters.jsonschema import lower_schema
from converters.limits import Budget, Relaxation
from converters.options import CompileOptions
from converters.tools.codec import CallGrammar, Codec, ToolGrammar
from converters.tools.codecs import CODECS
from converters.tools.custom_input import json_input, xml_input
from converters.tools.parameters import object_schema, text_keys
from converters.tools.xml_arguments import xml_arguments


def tool_calls_grammar(
    constraint: ToolCalls, options: CompileOptions, budget: Budget, embed: Embed
) -> tuple[Grammar, tuple[str, ...]]:
    """The grammar of the calls, and notes for the caller. Raises ConversionErrors."""
    codec = CODECS.get(constraint.codec)
    if codec is None:
        raise InvalidSource(f"tool-call format {constraint.codec!r} is unknown: {', '.join(CODECS)} are known")
    _check_tools(constraint.tools, codec)
    lowering = _Lowering(codec, options, budget, embed)
    return lowering.run(constraint)


def _check_tools(tools: tuple[Tool, ...], codec: Codec) -> None:
    if not tools:
        raise InvalidSource("there is no tool to call")
    first: dict[str, int] = {}
    for i, tool in enumerate(tools):
        path = f"/{i}/name"
        if not tool.name or any("\ud800" <= char <= "\udfff" for char in tool.name):
            raise InvalidSource("a tool needs a name, of whole characters", path=path)
        if first.setdefault(tool.name, i) != i:
            raise InvalidSource(f"two tools are called {tool.name!r}", path=path)
        reason = codec.refuses(tool.name)
        if reason is not None:
            raise UnsupportedFeature(f"the format {codec.name} can't write the tool name {tool.name!r}: {reason}", path=path)


class _Lowering:
    """One book for all tools; what their schemas share stays shared as far as the schema compiler does."""

    def __init__(self, codec: Codec, options: CompileOptions, budget: Budget, embed: Embed) -> None:
        self.codec = codec
        self.options = options
        self.budget = budget
        self.embed = embed
        self.book = RuleBook()
        self.notes: dict[str, None] = {}

    def run(self, constraint: ToolCalls) -> tuple[Grammar, tuple[str, ...]]:
        tools = [self.tool(i, tool) for i, tool in enumerate(constraint.tools)]
        ids = dict(constraint.tokens)

        def marker(text: str) -> Expr:
            return Token(ids[text]) if text in ids else lit(text)

        given = CallGrammar(tools, marker, constraint.parallel)
        if constraint.opening is None:
            calls = self.codec.calls(given)
        else:
            self.check_opening(constraint.opening)
            calls = self.codec.opened(constraint.opening, given)
        content: Expr = NEVER
        if constraint.content is not None:
            content, notes = self.embed(constraint.content, self.options, self.book, "content")
            self.notes |= dict.fromkeys(notes)
        grammar = self.book.build(alt(calls, content))
        self.check_callable(tools, grammar)
        return grammar, tuple(self.notes)

    def check_callable(self, tools: list[ToolGrammar], grammar: Grammar) -> None:
        """Every tool can be called: one without valid arguments must not vanish from the grammar in silence."""
        ending = ending_rules(grammar, self.budget)
        for i, tool in enumerate(tools):
            if isinstance(tool.arguments, Ref) and tool.arguments.name not in ending:
                raise Unsatisfiable(f"no arguments of the tool {tool.name!r} are valid", path=f"/{i}/parameters")

    def check_opening(self, opening: str) -> None:
        triggers = [trigger for known in self.codec.openings for trigger in known.triggers]
        if opening not in triggers:
            raise InvalidSource(f"the format {self.codec.name} has no opening {opening!r}: {', '.join(map(repr, triggers))}")

    def tool(self, index: int, tool: Tool) -> ToolGrammar:
        """The tool's arguments as one rule."""
        hint = f"tool-{tool.name[:24]}"
        if tool.input is not None:
            with self.budget.inside(f"/{index}/input"):
                arguments, notes = self.input(tool.input)
        else:
            with self.budget.inside(f"/{index}/parameters"):
                arguments, notes = self.arguments(tool, hint)
        self.notes |= {f"{tool.name}: {note}": None for note in notes}
        return ToolGrammar(tool.name, self.book.add(hint, arguments), hint)

    def input(self, given: ToolInput) -> tuple[Expr, tuple[str, ...]]:
        """The input of a custom tool; any text in a lenient compile where its grammar can't be expressed."""
        build = xml_input if self.codec.style == "xml" else json_input
        n_before = len(self.budget.relaxed)
        try:
            return build(given, self.book, self.options, self.budget, self.embed)
        except (UnsupportedFeature, LimitExceeded) as error:
            if not self.options.lenient:
                raise
            self.budget.relaxed[n_before:] = [Relaxation("", f"any text is an input: {error.reason}")]
        return build(FreeText(), self.book, self.options, self.budget, self.embed)

    def arguments(self, tool: Tool, hint: str) -> tuple[Expr, tuple[str, ...]]:
        schema = JsonSchema(object_schema(tool.parameters))
        options = replace(self.options, closed_objects=True, plain_integers=True)
        if self.codec.style == "xml":
            return xml_arguments(schema, text_keys(tool), self.book, options, self.budget)
        return lower_schema(schema, self.book, options, self.budget, hint)
