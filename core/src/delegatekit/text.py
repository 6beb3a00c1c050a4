"""Numbers as people read them."""

from __future__ import annotations


def human_size(size: int) -> str:
    """A number of bytes: "12 B", "1.5 KiB", "3.0 GiB"."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"
