"""Numbers as people read them."""

from __future__ import annotations


def human_size(size: int) -> str:
    """A number of bytes: "12 B", "1.5 KiB", "3.0 GiB"."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def human_time(seconds: float) -> str:
    """A time: "24.62 ms", "1.20 s"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds / 1e-6:.2f} us"
