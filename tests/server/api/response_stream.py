"""A stream of /v1/responses, read as its accumulators read it: order, sequence numbers, indexes, and what the deltas make."""

from __future__ import annotations

import json
from typing import Any

OUTER = {"response.created", "response.in_progress", "response.output_item.added", "response.output_item.done"}
ENDS = {"response.completed", "response.incomplete", "response.failed"}
TEXTS = {  # type of the item → its text's events, where the item has the text
    "message": ("response.output_text", "text"),
    "reasoning": ("response.reasoning_text", "text"),
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}


def read(text: str) -> list[dict[str, Any]]:
    """The events, each under the name that its data says, numbered without a gap."""
    assert text.endswith("\n\n")
    events = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def check(text: str) -> dict[str, Any]:
    """The final response of a whole stream, after checking every event on the way to it."""
    created, in_progress, *inner, end = read(text)
    assert (created["type"], in_progress["type"]) == ("response.created", "response.in_progress")
    assert end["type"] in ENDS
    assert created["response"]["output"] == []
    items: list[Any] = []
    while inner:
        size = next(i for i, event in enumerate(inner) if event["type"] == "response.output_item.done") + 1
        items.append(_item(inner[:size], len(items)))
        inner = inner[size:]
    response: dict[str, Any] = end["response"]
    assert response["id"] == created["response"]["id"] == in_progress["response"]["id"]
    assert response["output"] == items
    assert end["type"] == f"response.{response['status']}"
    return response


def _item(events: list[dict[str, Any]], index: int) -> Any:
    added, *inner, done = events
    assert added["type"] == "response.output_item.added"
    assert all(event["output_index"] == index for event in events)
    item = done["item"]
    assert added["item"]["status"] == "in_progress"
    assert (added["item"]["id"], added["item"]["type"]) == (item["id"], item["type"])
    assert all(event["item_id"] == item["id"] for event in inner)
    if item["type"] == "message":
        part_added, *inner, part_done = inner
        assert (part_added["type"], part_done["type"]) == ("response.content_part.added", "response.content_part.done")
        assert part_added["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        assert item["content"] == [part_done["part"]]
        assert all(event["content_index"] == 0 for event in (part_added, *inner, part_done))
    *deltas, ended = inner
    name, key = TEXTS[item["type"]]
    assert {event["type"] for event in deltas} <= {f"{name}.delta"}
    assert ended["type"] == f"{name}.done"
    text = "".join(event["delta"] for event in deltas)
    assert text == ended[key]
    assert text == (item["content"][0]["text"] if "content" in item else item[key])
    if item["type"] == "message":
        assert [entry for event in deltas for entry in event["logprobs"]] == ended["logprobs"] == item["content"][0]["logprobs"]
    return item


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """What two answers to the same request have in common."""
    times = {"id": "", "created_at": 0, "completed_at": 0}
    output = [{**item, "id": "", **({"call_id": ""} if "call_id" in item else {})} for item in response["output"]]
    return {**response, **times, "output": output}
