"""Chat templates: the helpers that they expect, their errors, and the arrangements for picky ones."""

from __future__ import annotations

import re

import pytest

from server.chat.prompt import builtin_template, render_prompt
from server.chat.templates import TEMPLATES
from server.chat.types import ChatPrompt, Message, ToolCallPart
from server.errors import BadRequest
from tests.server.fakes import INFO

USER = Message("user", "hi")
SYSTEM = Message("system", "be brief")
ANSWER = Message("assistant", "yes")


def render(source: str, *messages: Message, **fields: object) -> str:
    return render_prompt(ChatPrompt(messages or (USER,), **fields), source, INFO)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>hi</s>"),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{% for i in range(5) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{i}}{% endfor %}", "02"),
        ("{% generation %}{{ messages[0].role }}{% endgeneration %}!", "user!"),
        ("{% if add_generation_prompt %}go{% endif %}{% if tools is none %}!{% endif %}", "go!"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
    ],
)  # fmt: skip
def test_helpers(source: str, text: str) -> None:
    assert render(source) == text


def test_strftime_now() -> None:
    assert re.fullmatch(r"\d{4}-\d\d", render("{{ strftime_now('%Y-%m') }}"))


def test_what_a_template_sees_of_calls() -> None:
    call = ToolCallPart("c1", "get", {"city": "X"})
    text = render(
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }} {{ c.function.name }} "
        "{{ c.function.arguments | tojson }}{% endfor %}{{ m.tool_call_id }}{% endfor %}",
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "20C", tool_call_id="c1"),
    )
    assert text == 'c1 get {"city": "X"}c1'


def test_thinking_and_kwargs() -> None:
    source = "{{ enable_thinking }} {{ thinking }} {{ x }}"
    assert render(source, thinking=False, kwargs={"x": 3}) == "False False 3"
    assert render(source, kwargs={"enable_thinking": True}) == "True  "


@pytest.mark.parametrize(
    "source",
    ["{{ raise_exception('only one system message') }}", "{{ x.y.z }}", "{% if %}", "{{ 1 / 0 }}", "{{ ''.__class__.__mro__ }}",
     "{% for i in range(10 ** 9) %}{% endfor %}", "{{ messages.append(1) }}"],
)  # fmt: skip
def test_whatever_fails_in_a_template_is_a_bad_request(source: str) -> None:
    with pytest.raises(BadRequest) as caught:
        render(source)
    assert caught.value.param == "messages"


def test_the_templates_own_words_are_passed_on() -> None:
    with pytest.raises(BadRequest, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}", SYSTEM, USER)


PICKY_FIRST = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system first') }}{% endif %}"
    "[{{ m.role }}:{{ m.content }}]{% endfor %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "[{{ m.role }}:{{ m.content }}]{% endfor %}"
)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (PICKY_FIRST, "[system:be brief\n\nand kind][user:hi][assistant:yes][user:hi]"),
        (NO_SYSTEM, "[user:be brief\n\nand kind\n\nhi][assistant:yes][user:hi]"),
    ],
)
def test_system_messages_are_folded_where_a_template_wants_it(source: str, text: str) -> None:
    assert render(source, SYSTEM, USER, ANSWER, Message("system", "and kind"), USER) == text


def test_a_template_that_takes_them_sees_them_where_they_are() -> None:
    text = render("{% for m in messages %}{{ m.role[0] }}{% endfor %}", USER, SYSTEM, USER, SYSTEM)
    assert text == "usus"


@pytest.mark.parametrize("name", TEMPLATES)
def test_builtin_templates_show_everything_once(name: str) -> None:
    contents = ["S-one", "U-two", "A-three", "U-four"]
    messages = [Message(role, text) for role, text in zip(("system", "user", "assistant", "user"), contents, strict=True)]  # type: ignore[arg-type]
    text = render(builtin_template(name), *messages)
    places = [text.index(content) for content in contents]
    assert places == sorted(places)
    assert all(text.count(content) == 1 for content in contents)
    cut = render(builtin_template(name), *messages[:3], continue_final_message=True)
    assert cut.endswith("A-three")


def test_continuing_what_the_template_hides_is_refused() -> None:
    with pytest.raises(BadRequest, match="continue_final_message"):
        render("empty", USER, continue_final_message=True)
