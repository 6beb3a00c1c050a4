"""The age of a record, in words."""

from __future__ import annotations

from datetime import datetime, timezone


def age_of(started: str, now: datetime | None = None) -> str:
    """The time since a run began ("2026-11-21T12:00:00Z", as records have it), in words; "" for what is no time."""
    try:
        begun = datetime.strptime(started, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return ""
    days = ((now or datetime.now(timezone.utc)) - begun).days
    if days < 0:
        return "from the future"
    return {0: "today", 1: "1 day old"}.get(days, f"{days:,} days old")
