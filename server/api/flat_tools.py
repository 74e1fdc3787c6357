"""The tools of Responses: flat ones, and namespaces of them, under the names that the model sees. The rest is `tools`' work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from server.api.fields import FieldMap
from server.api.tools import GivenTool, choose, listed_tools, tool, tool_name, with_options
from server.chat.types import JsonObject, ToolUse
from server.errors import BadRequest
from server.settings import RequestLimits

DEFAULT_NAMESPACE = "functions"  # what Codex calls that of tools without one
Names: TypeAlias = Mapping[str, tuple[str, str]]
"""Of a tool's joined name: its namespace and its name in there, as calls have to say them."""


def joined_name(namespace: str, name: str) -> str:
    """The name by which the model calls a tool of a namespace: `mcp__files` and `read` → `mcp__files__read`."""
    if namespace in ("", DEFAULT_NAMESPACE):
        return name
    return namespace + name if namespace.endswith("__") else f"{namespace}__{name}"


def decode_flat_tools(body: JsonObject, fields: FieldMap, limits: RequestLimits) -> tuple[ToolUse | None, Names]:
    """How a request uses its tools (None: not at all), and which stand in namespaces. Raises BadRequest with the path."""
    given: dict[str, GivenTool] = {}
    names: dict[str, tuple[str, str]] = {}
    for value, path, namespace in _listed(fields, limits):
        if joined_name(namespace, "") != "":
            names[joined_name(namespace, tool_name(value, path))] = (namespace, tool_name(value, path))
            value = {**value, "name": joined_name(namespace, tool_name(value, path))}
        entry = tool(value, path, limits)
        if entry.tool.name in given:
            raise BadRequest(f"{entry.path}.name: two tools are called {entry.tool.name!r}", param=f"{entry.path}.name")
        given[entry.tool.name] = entry
    use = choose(list(given.values()), {name: fields[name] for name in _CHOICE if name in fields})
    return None if use is None else with_options(use, body, limits), names


_CHOICE = ("tool_choice", "parallel_tool_calls")


def _listed(fields: FieldMap, limits: RequestLimits) -> Iterator[tuple[JsonObject, str, str]]:
    """Every tool with its path and its namespace, "" for none."""
    for value, path in listed_tools(fields, "tools", limits):
        if value.get("type") != "namespace":
            yield value, path, ""
            continue
        inner = {"tools": (f"{path}.tools", value.get("tools", []))}
        for entry, place in listed_tools(inner, "tools", limits):
            yield entry, place, tool_name(value, path)
