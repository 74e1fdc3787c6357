"""Anthropic's tools and tool_choice -> the tools that may be called and whether they must be.

Tools that run on Anthropic's side, or whose schema only its models know (web_search_…, bash_…), are refused by their type.
"""

from __future__ import annotations

from dataclasses import replace

from converters.constraint import Tool
from server.api.fields import FieldMap
from server.api.tools import GivenTool, listed_tools, only, tool_name, use_of
from server.chat.types import JsonObject, ToolUse
from server.errors import BadRequest, UnsupportedParameter
from server.json_text import dump_json
from server.settings import RequestLimits
from server.values import missing, read_flag, read_object, read_text, read_word

SCHEMA = "input_schema"


def decode_tools(merged: FieldMap, limits: RequestLimits) -> ToolUse | None:
    """How a request uses tools; None without tools, or under tool_choice none. Raises BadRequest with the path."""
    given = [_tool(value, path) for value, path in listed_tools(merged, "tools", limits)]
    path, value = merged.get("tool_choice", ("tool_choice", {"type": "auto"}))
    choice = read_object(value, path)
    kind = read_word(choice, "type", path, ("auto", "any", "tool", "none"))
    is_single = read_flag(choice, "disable_parallel_tool_use", path, default=kind == "tool")
    if kind in ("any", "tool") and not given:
        raise BadRequest(f"{path} needs tools, and the request has none", param=path)
    if kind == "none" or not given:
        return None
    use = replace(use_of(given, path, is_parallel=not is_single), is_forced=kind != "auto")
    return only(use, {tool_name(choice, path): f"{path}.name"}) if kind == "tool" else use


def _tool(value: JsonObject, path: str) -> GivenTool:
    schema, kind = value.get(SCHEMA), value.get("type")
    if schema is None and kind in (None, "custom"):
        raise missing(f"{path}.{SCHEMA}")
    if schema is None:
        message = f"{path}.type {dump_json(kind)} is not supported: only tools with a name and an {SCHEMA} are"
        raise UnsupportedParameter(message, param=f"{path}.type")
    name = tool_name(value, path)
    parameters = read_object(schema, f"{path}.{SCHEMA}")
    function: JsonObject = {"name": name, "description": read_text(value, "description", path, ""), "parameters": parameters}
    return GivenTool(Tool(name, parameters), path, {"type": "function", "function": function}, SCHEMA)
