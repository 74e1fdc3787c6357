"""Pages of a list that clients walk by cursors, the ids of its entries: for every API that has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from server.errors import BadRequest

N_DEFAULT = 20


def page(
    entries: Sequence[Mapping[str, Any]], query: Mapping[str, str], most: int, *, after: str = "after", before: str = "before"
) -> dict[str, Any]:
    """{"data", "has_more", "first_id", "last_id"}: up to `limit` of the entries after one, before one, or from the first on.

    `most`: of what limit may be; `after` and `before` are what the API calls its cursors. Raises BadRequest.
    """
    limit = query.get("limit", str(N_DEFAULT))
    if not re.fullmatch("[1-9][0-9]{0,8}", limit) or int(limit) > most:
        raise BadRequest(f"limit must be from 1 to {most}", param="limit")
    first = _place(entries, query, after) + 1 if after in query else 0
    rest = entries[first : _place(entries, query, before) if before in query else None]
    data = rest[-int(limit) :] if before in query else rest[: int(limit)]
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return {"data": list(data), "has_more": len(data) < len(rest), **ends}


def _place(entries: Sequence[Mapping[str, Any]], query: Mapping[str, str], cursor: str) -> int:
    ids = [entry["id"] for entry in entries]
    if query[cursor] not in ids:
        raise BadRequest(f"{cursor} names {query[cursor]!r}, which is nothing in this list", param=cursor)
    return ids.index(query[cursor])
