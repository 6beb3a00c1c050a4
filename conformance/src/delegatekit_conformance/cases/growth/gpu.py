"""GPU memory of this process, as the kernel's drivers account for it on each open device."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_SELF = Path("/proc/self")
_UNITS: Mapping[str, int] = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def used() -> int | None:
    """Bytes of GPU memory that this process holds, by Linux' "DRM client usage stats"; None if no driver reports it."""
    if not sys.platform.startswith("linux"):
        return None
    clients: dict[str, int] = {}
    for entry in (_SELF / "fd").iterdir():
        with suppress(OSError, ValueError):
            if not str(entry.readlink()).startswith("/dev/dri/"):
                continue
            lines = (_SELF / "fdinfo" / entry.name).read_text().splitlines()
            values = dict(line.split(":", 1) for line in lines if line.startswith("drm-") and ":" in line)
            kind = "drm-total-" if any(key.startswith("drm-total-") for key in values) else "drm-memory-"
            sizes = [value.split() for key, value in values.items() if key.startswith(kind)]
            if sizes:
                total = sum(int(number) * _UNITS[unit[0] if unit else ""] for number, *unit in sizes)
                clients[values.get("drm-client-id", entry.name).strip()] = total
    return sum(clients.values()) if clients else None
