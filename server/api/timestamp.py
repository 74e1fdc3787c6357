"""Points in time as RFC 3339 writes them."""

from __future__ import annotations

import time
from datetime import datetime, timezone


def timestamp(seconds: float | None = None) -> str:
    """Of seconds since 1970, in UTC with microseconds; None: now."""
    moment = datetime.fromtimestamp(time.time() if seconds is None else seconds, timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
