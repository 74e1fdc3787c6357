"""Request fields -> at most one constraint: names, precedence, conflicts and sizes (spec sections 2 and 9).

The only place that knows what fields of a request are called. Nothing is compiled here, and no dialect's shape of an error is
known here. Reading a field checks its type and its size, whether or not it wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from converters.compile import CompileOptions, Whitespace
from converters.constraint import AnyJson, Choice, Constraint, Draft, Gbnf, JsonSchema, JsonValue, Lark, Regex, StructuralTag
from server.chat.types import JsonObject, RequestedConstraint
from server.errors import BadRequest, UnsupportedParameter, wrong_type
from server.json_text import dump_json, has_more_values, parse_json_text
from server.settings import RequestLimits
from server.values import read_boolean, read_object, read_one_of, read_string

CONFLICT = "only one of structured_outputs, response_format, or constraint may be set"
NESTED = ("extra_body",)  # objects of a request whose fields count as the request's own
EMPTY_STRUCTURED_OUTPUTS = "one of choice, regex, json, grammar, or structural_tag must be set"


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one field says. `options` are the compile options that belong to this field alone."""

    constraint: Constraint
    kind: str
    param: str
    options: tuple[tuple[str, Any], ...] = ()
    whitespace_param: str | None = None

    @property
    def meaning(self) -> str:
        """Equal for two fields exactly if they mean the same constraint (equal JSON, key order kept)."""
        return f"{canonical_text(self.constraint)} {dict(self.options)}"


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    path: str
    value: JsonValue


_Reader: TypeAlias = Callable[["_Field", "_Request"], "_Reading | None"]


@dataclass(frozen=True, slots=True)
class _Request:
    """The fields of one request, those of `extra_body` among them; null ones are gone."""

    fields: Mapping[str, _Field]
    limits: RequestLimits

    def get(self, name: str) -> _Field | None:
        return self.fields.get(name)


def read_constraint(body: JsonObject, limits: RequestLimits, nested: Sequence[str] = NESTED) -> RequestedConstraint | None:
    """The constraint that a request's body asks for, or None. Raises BadRequest naming the field."""
    request = _Request(_gather_fields(body, nested), limits)
    _refuse_unknown(request)
    guided = _read_all(GUIDED_FIELDS, request)
    others = _read_all(EXCLUSIVE_FIELDS, request)
    _check_conflicts(guided, others)
    options = _read_options(request)
    is_described = _read_flag("inject_schema", request)
    for name, reading in (*guided.items(), *others.items()):
        merged = replace(options, **dict(reading.options))
        return RequestedConstraint(
            reading.constraint,
            merged,
            name,
            reading.kind,
            reading.param,
            is_described,
            whitespace_param=reading.whitespace_param or _whitespace_param(request),
        )
    return None


def read_options(body: JsonObject, limits: RequestLimits, nested: Sequence[str] = NESTED) -> CompileOptions:
    """How a request wants its constraints compiled: the options that belong to no field alone. Raises BadRequest."""
    return _read_options(_Request(_gather_fields(body, nested), limits))


def whitespace_param(body: JsonObject, limits: RequestLimits, nested: Sequence[str] = NESTED) -> str:
    """The path of the field that those options have their pattern of whitespace from."""
    return _whitespace_param(_Request(_gather_fields(body, nested), limits))


def merge_extra_body(body: JsonObject, nested: Sequence[str] = NESTED) -> dict[str, tuple[str, JsonValue]]:
    """Every non-null field by name, with its path: those of the body, and those of the objects that `nested` names in it.

    Raises BadRequest for a field that stands in two places with different values.
    """
    merged: dict[str, tuple[str, JsonValue]] = {k: (k, v) for k, v in body.items() if v is not None and k not in nested}
    for place in nested:
        inner = body.get(place)
        if inner is None:
            continue
        if not isinstance(inner, Mapping):
            raise wrong_type(place, "an object", inner)
        for name, value in inner.items():
            path = f"{place}.{name}"
            if value is None:
                continue
            if name in merged and dump_json(merged[name][1]) != dump_json(value):
                raise BadRequest(f"{name} is set twice, as {merged[name][0]} and as {path}, to different values", param=path)
            merged.setdefault(name, (path, value))
    return merged


def canonical_text(constraint: Constraint) -> str:
    """Equal for two constraints exactly if they are the same value, as JSON has it (1, 1.0 and true differ)."""
    values = {name: getattr(constraint, name) for name in constraint.__dataclass_fields__}
    return f"{type(constraint).__name__} {dump_json(cast(JsonValue, values))}"


# ---- which fields there are, and which may stand together


def _gather_fields(body: JsonObject, nested: Sequence[str]) -> dict[str, _Field]:
    fields = {name: _Field(name, path, value) for name, (path, value) in merge_extra_body(body, nested).items()}
    for name in _WRAPPED_FORMATS:
        outer = name.removesuffix(".format")
        wrapper = fields[outer].value if outer in fields else None
        if isinstance(wrapper, Mapping):  # else another dialect's field of that name; its own dialect has refused it
            inner = wrapper.get("format")
            if inner is not None:
                fields[name] = _Field(name, f"{fields[outer].path}.format", inner)
    return fields


def _read_all(readers: Mapping[str, _Reader], request: _Request) -> dict[str, _Reading]:
    readings = {}
    for name, read in readers.items():
        field = request.get(name)
        reading = read(field, request) if field is not None else None
        if reading is not None:
            readings[name] = reading
    return readings


def _check_conflicts(guided: Mapping[str, _Reading], others: Mapping[str, _Reading]) -> None:
    """Rule 3: one of the exclusive fields, and beside guided_* only response_format; equal constraints count as one.

    What the other dialects call their response format counts as that.
    """
    if guided:
        winner = next(iter(guided.values()))
        rivals = {name: r for name, r in others.items() if name not in _RESPONSE_FORMAT_FIELDS}
        clash = any(reading.meaning != winner.meaning for reading in rivals.values())
        names = [*guided, *rivals]
    else:
        clash = len({reading.meaning for reading in others.values()}) > 1
        names = list(others)
    if clash:
        last = others[names[-1]]
        raise BadRequest(f"{CONFLICT}; this request sets {_join(names)}", param=last.param, code="conflicting_constraints")


def _refuse_unknown(request: _Request) -> None:
    for name, field in request.fields.items():
        looks_like_one = name.startswith(("guided_", "structured_")) or "grammar" in name or "schema" in name
        if looks_like_one and name not in KNOWN_FIELDS:
            raise UnsupportedParameter(
                f"{field.path} is not a field that this server knows, and a constraint must not be lost; "
                f"the constraint fields are {_join([*GUIDED_FIELDS, *EXCLUSIVE_FIELDS])}",
                param=field.path,
                code="unknown_constraint_field",
            )


def _join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# ---- values: type and size


def check_size(text: str, path: str, limit: int, limit_name: str) -> None:
    """Raises BadRequest where `text` has more bytes than the limit of that name."""
    size = len(text.encode("utf-8"))
    if size > limit:
        shown = f"{limit} bytes" if limit % 1024 or limit < 8192 else f"{limit} bytes ({limit // 1024} KiB)"
        raise BadRequest(
            f"{path} is too long: {size} bytes, where {limit_name} allows {shown}", param=path, code="limit_exceeded"
        )


def _parse(text: str, path: str, request: _Request) -> JsonValue:
    limits = request.limits
    return parse_json_text(text, max_depth=limits.json_depth, max_values=limits.json_values, param=path)


def check_json_size(value: JsonValue, path: str, limit: int, limit_name: str) -> None:
    """The same for a JSON value's text; of a huge one nothing is written out."""
    if has_more_values(value, limit):
        message = f"{path} is too long: more than {limit} bytes, which is what {limit_name} allows"
        raise BadRequest(message, param=path, code="limit_exceeded")
    check_size(dump_json(value), path, limit, limit_name)


def _bounded(value: JsonValue, path: str, limit: int, limit_name: str) -> str:
    text = read_string(value, path)
    check_size(text, path, limit, limit_name)
    return text


def _regex(value: JsonValue, path: str, request: _Request) -> Regex:
    return Regex(_bounded(value, path, request.limits.regex_bytes, "regex_bytes"))


def _grammar_text(value: JsonValue, path: str, request: _Request) -> str:
    return _bounded(value, path, request.limits.grammar_bytes, "grammar_bytes")


def _grammar(value: JsonValue, path: str, request: _Request) -> Gbnf | Lark:
    from converters.lark.detect import detect_grammar_kind  # loads all of lark: not at server start

    text = _grammar_text(value, path, request)
    return Lark(text) if detect_grammar_kind(text) == "lark" else Gbnf(text)


def _schema(value: JsonValue, path: str, request: _Request) -> JsonSchema:
    """A schema as object, boolean, or JSON text."""
    if isinstance(value, str):
        check_size(value, path, request.limits.schema_bytes, "schema_bytes")
        value = _parse(value, path, request)
    if not isinstance(value, Mapping | bool):
        raise wrong_type(path, "a JSON Schema (an object, or its JSON text)", value)
    check_json_size(value, path, request.limits.schema_bytes, "schema_bytes")
    return JsonSchema(value, **_schema_options(request))


def _schema_options(request: _Request) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if (field := request.get("default_draft")) is not None:
        drafts: tuple[Draft, ...] = ("draft4", "draft6", "draft7", "2019-09", "2020-12")
        options["default_draft"] = read_one_of(field.value, field.path, drafts)
    if (field := request.get("formats")) is not None:
        options["formats"] = read_one_of(field.value, field.path, ("assert", "annotation"))
    return options


def _choice(value: JsonValue, path: str, request: _Request) -> Choice:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise wrong_type(path, "a list of strings", value)
    limits = request.limits
    if not value:
        raise BadRequest(f"{path} must not be empty", param=path)
    if len(value) > limits.n_choice_options:
        raise BadRequest(
            f"{path} has {len(value)} options, where n_choice_options allows {limits.n_choice_options}",
            param=path,
            code="limit_exceeded",
        )
    options = tuple(read_string(option, f"{path}[{i}]") for i, option in enumerate(value))
    check_size("".join(options), path, limits.choice_bytes, "choice_bytes")
    return Choice(options)


def _structural_tag(value: JsonValue, path: str, request: _Request) -> StructuralTag:
    """A structural tag as object or JSON text."""
    if isinstance(value, str):
        check_size(value, path, request.limits.schema_bytes, "schema_bytes")
        value = _parse(value, path, request)
    spec = read_object(value, path)
    check_json_size(spec, path, request.limits.schema_bytes, "schema_bytes")
    return StructuralTag(spec)


# ---- the guided_* fields


def _read_guided_choice(field: _Field, request: _Request) -> _Reading:
    return _Reading(_choice(field.value, field.path, request), "choice", field.path)


def _read_regex(field: _Field, request: _Request) -> _Reading:
    return _Reading(_regex(field.value, field.path, request), "regex", field.path)


def _read_guided_grammar(field: _Field, request: _Request) -> _Reading | None:
    grammar = _grammar(field.value, field.path, request)
    return _Reading(grammar, "grammar", field.path) if field.value else None


def _read_guided_json(field: _Field, request: _Request) -> _Reading:
    return _Reading(_schema(field.value, field.path, request), "json", field.path)


# ---- the exclusive fields


def _read_json_schema(field: _Field, request: _Request) -> _Reading:
    return _Reading(_schema(field.value, field.path, request), "json_schema", field.path)


def _read_gbnf(field: _Field, request: _Request) -> _Reading:
    return _Reading(Gbnf(_grammar_text(field.value, field.path, request)), "grammar", field.path)


def _read_grammar(field: _Field, request: _Request) -> _Reading | None:
    reading = _read_gbnf(field, request)
    return reading if field.value else None


def _read_format(field: _Field, request: _Request) -> _Reading | None:
    """Ollama's: "json" is its JSON mode, an object; other text is a schema's JSON text."""
    value = field.value
    if value == "" or value == {}:
        return None
    if value == "json":
        return _Reading(AnyJson(object_only=True), "json", field.path)
    return _Reading(_schema(value, field.path, request), "json_schema", field.path)


def _read_legacy(field: _Field, request: _Request) -> _Reading:
    """`constraint`, whose language is told by `constraint_type`."""
    kind_field = request.get("constraint_type")
    kind = "regex"
    if kind_field is not None:
        kind = read_one_of(kind_field.value, kind_field.path, tuple(LEGACY_TYPES))
    return _Reading(LEGACY_TYPES[kind](field.value, field.path, request), kind, field.path)


def _legacy_choice(value: JsonValue, path: str, request: _Request) -> Choice:
    if isinstance(value, str):
        check_size(value, path, 2 * request.limits.choice_bytes, "choice_bytes")
        value = _parse(value, path, request)
    return _choice(value, path, request)


LEGACY_TYPES: dict[str, Callable[[JsonValue, str, _Request], Constraint]] = {
    "regex": _regex,
    "lark": lambda value, path, request: Lark(_grammar_text(value, path, request)),
    "json_schema": _schema,
    "json": _schema,
    "gbnf": lambda value, path, request: Gbnf(_grammar_text(value, path, request)),
    "choice": _legacy_choice,
}


def _any_object(value: JsonValue, path: str, _request: _Request) -> AnyJson | None:
    return AnyJson(object_only=True) if read_boolean(value, path) else None


STRUCTURED_KINDS: dict[str, Callable[[JsonValue, str, _Request], Constraint | None]] = {
    "choice": _choice,
    "regex": _regex,
    "json": _schema,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
    "json_object": _any_object,
}
_STRUCTURED_KNOBS = ("backend", "_backend", "_backend_was_auto", "disable_fallback")  # which library: nothing to honour


def _read_structured_outputs(field: _Field, request: _Request) -> _Reading:
    """vLLM's: exactly one kind, and options for it beside it."""
    entries = {name: value for name, value in read_object(field.value, field.path).items() if value is not None}
    readings = []
    for name, value in entries.items():
        path = f"{field.path}.{name}"
        if name in STRUCTURED_KINDS:
            constraint = STRUCTURED_KINDS[name](value, path, request)
            readings += [_Reading(constraint, name, path)] if constraint is not None else []
        elif name not in _STRUCTURED_OPTIONS and name not in _STRUCTURED_KNOBS:
            raise UnsupportedParameter(f"{path} is not known: {EMPTY_STRUCTURED_OUTPUTS}", param=path)
    if not readings:
        raise BadRequest(f"{field.path} is empty: {EMPTY_STRUCTURED_OUTPUTS}", param=field.path)
    if len(readings) > 1:
        names = _join([reading.kind for reading in readings])
        raise BadRequest(
            f"{field.path} sets {names}: only {EMPTY_STRUCTURED_OUTPUTS}",
            param=readings[1].param,
            code="conflicting_constraints",
        )
    pattern_path = f"{field.path}.whitespace_pattern" if "whitespace_pattern" in entries else None
    return replace(readings[0], options=_structured_options(entries, field.path, request), whitespace_param=pattern_path)


_STRUCTURED_OPTIONS = ("whitespace_pattern", "disable_any_whitespace", "disable_additional_properties")


def _structured_options(entries: JsonObject, path: str, request: _Request) -> tuple[tuple[str, Any], ...]:
    options: list[tuple[str, Any]] = []
    if "whitespace_pattern" in entries:
        pattern = _regex(entries["whitespace_pattern"], f"{path}.whitespace_pattern", request).pattern
        options.append(("whitespace_pattern", pattern))
    if read_boolean(entries.get("disable_any_whitespace", False), f"{path}.disable_any_whitespace"):
        options.append(("whitespace", "compact"))
    if read_boolean(entries.get("disable_additional_properties", False), f"{path}.disable_additional_properties"):
        options.append(("closed_objects", True))
    return tuple(options)


# ---- response_format


def _read_response_format(field: _Field, request: _Request) -> _Reading | None:
    value = read_object(field.value, field.path)
    kind = value.get("type")
    if kind is None:
        raise BadRequest(f"{field.path}.type is missing", param=f"{field.path}.type")
    if not isinstance(kind, str):
        raise wrong_type(f"{field.path}.type", "a string", kind)
    if kind not in RESPONSE_FORMATS:
        raise BadRequest(
            f"{field.name} type {kind!r} is not supported: only json_schema and json_object are supported "
            "(and text, structural_tag, grammar and regex)",
            param=f"{field.path}.type",
        )
    read, used = RESPONSE_FORMATS[kind]
    for name, entry in value.items():
        if name in _FORMAT_CONTENTS and name not in used and entry is not None:
            raise BadRequest(f"{field.path}.{name} has no meaning with type {kind!r}", param=f"{field.path}.{name}")
    return read(value, field.path, request)


def _format_json_object(value: JsonObject, path: str, request: _Request) -> _Reading:
    if value.get("schema") is None:
        return _Reading(AnyJson(object_only=True), "json_object", path)
    return _Reading(_schema(value["schema"], f"{path}.schema", request), "json_schema", f"{path}.schema")


def _format_json_schema(value: JsonObject, path: str, request: _Request) -> _Reading:
    """OpenAI's wrapper, or the schema directly beside the type (llama.cpp, Responses)."""
    wrapper, inner = value.get("json_schema"), f"{path}.json_schema"
    is_flat = not path.endswith("response_format")  # the other APIs have no wrapper
    if wrapper is None and (is_flat or value.get("schema") is not None):
        wrapper, inner = value, path
    if wrapper is None:
        raise BadRequest(f"{inner} is missing", param=inner)
    schema = read_object(wrapper, inner).get("schema")
    if schema is None:
        raise BadRequest(f"{inner}.schema is missing", param=f"{inner}.schema")
    return _Reading(_schema(schema, f"{inner}.schema", request), "json_schema", f"{inner}.schema")


def _format_structural_tag(value: JsonObject, path: str, request: _Request) -> _Reading:
    return _Reading(_structural_tag(value, path, request), "structural_tag", path)


def _format_grammar(value: JsonObject, path: str, request: _Request) -> _Reading:
    name = _first_set(value, ("grammar", "value"), path)
    return _Reading(_grammar(value[name], f"{path}.{name}", request), "grammar", f"{path}.{name}")


def _format_regex(value: JsonObject, path: str, request: _Request) -> _Reading:
    name = _first_set(value, ("regex", "pattern", "value"), path)
    return _Reading(_regex(value[name], f"{path}.{name}", request), "regex", f"{path}.{name}")


def _first_set(value: JsonObject, names: tuple[str, ...], path: str) -> str:
    given = [name for name in names if value.get(name) is not None]
    if not given:
        raise BadRequest(f"{path}.{names[0]} is missing", param=f"{path}.{names[0]}")
    if len(given) > 1:
        raise BadRequest(f"{path}: only one of {_join(given)} may be set", param=f"{path}.{given[1]}")
    return given[0]


_FormatReader: TypeAlias = Callable[[JsonObject, str, _Request], "_Reading | None"]
RESPONSE_FORMATS: dict[str, tuple[_FormatReader, tuple[str, ...]]] = {
    "text": (lambda _value, _path, _request: None, ()),
    "json_object": (_format_json_object, ("schema",)),
    "json_schema": (_format_json_schema, ("json_schema", "schema")),
    "structural_tag": (_format_structural_tag, ("structures", "triggers", "format")),
    "grammar": (_format_grammar, ("grammar", "value")),
    "regex": (_format_regex, ("regex", "pattern", "value")),
}
_FORMAT_CONTENTS = (
    "json_schema", "schema", "structures", "triggers", "format", "grammar", "regex", "pattern", "value",
)  # fmt: skip


# ---- options of the whole request


def _read_options(request: _Request) -> CompileOptions:
    options = CompileOptions()
    if (field := request.get("whitespace")) is not None:
        words: tuple[Whitespace, ...] = ("default", "compact", "spaced", "flexible")
        options = replace(options, whitespace=cast(Whitespace, read_one_of(field.value, field.path, words)))
    for name in _WHITESPACE_PATTERNS:
        if (field := request.get(name)) is not None:
            options = replace(options, whitespace_pattern=_regex(field.value, field.path, request).pattern)
    options = replace(options, lenient=_read_flag("lenient", request))
    orphan = request.get("constraint_type")
    if orphan is not None and request.get("constraint") is None:
        raise BadRequest(f"{orphan.path} is set, but constraint is not", param=orphan.path)
    return options


_WHITESPACE_PATTERNS = ("guided_whitespace_pattern", "whitespace_pattern")  # the last one counts


def _whitespace_param(request: _Request) -> str:
    given = [field.path for name in _WHITESPACE_PATTERNS if (field := request.get(name)) is not None]
    return given[-1] if given else _WHITESPACE_PATTERNS[-1]


def _read_flag(name: str, request: _Request) -> bool:
    field = request.get(name)
    return field is not None and read_boolean(field.value, field.path)


# ---- the tables

GUIDED_FIELDS: dict[str, _Reader] = {
    "guided_choice": _read_guided_choice,
    "guided_regex": _read_regex,
    "guided_grammar": _read_guided_grammar,
    "guided_json": _read_guided_json,
}
EXCLUSIVE_FIELDS: dict[str, _Reader] = {
    "structured_outputs": _read_structured_outputs,
    "response_format": _read_response_format,
    "constraint": _read_legacy,
    "json_schema": _read_json_schema,
    "grammar": _read_grammar,
    "regex": _read_regex,
    "ebnf": _read_gbnf,
    "format": _read_format,
    "output_config.format": _read_response_format,
    "output_format": _read_response_format,
    "text.format": _read_response_format,
}
_WRAPPED_FORMATS = ("output_config.format", "text.format")
_RESPONSE_FORMAT_FIELDS = ("response_format", "output_format", *_WRAPPED_FORMATS)
"""OpenAI's chat, Anthropic's (`output_format` is its older name), Responses'."""
KNOWN_FIELDS = {
    *GUIDED_FIELDS,
    *EXCLUSIVE_FIELDS,
    "guided_whitespace_pattern",
    "guided_decoding_backend",  # vLLM's choice of a library: nothing to honour
    "grammar_first",
    "inject_schema",
}
