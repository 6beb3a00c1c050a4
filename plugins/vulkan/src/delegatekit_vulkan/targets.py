"""Classes of devices and their limits, checked while a program is lowered.

The texture limits are those that ExecuTorch's Vulkan delegate assumes of phones (1.5) and, for the others, the minima
of the Vulkan roadmap profiles; every device allows a buffer of 128 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delegatekit_api.devices import TargetInfo


@dataclass(frozen=True)
class Target:
    """A class of devices."""

    name: str
    summary: str
    #: Texels of a texture along width, height and depth.
    texture: tuple[int, int, int]
    #: Bytes of one tensor in a buffer.
    buffer: int


_MIB: Final = 1 << 20
#: The smallest normal float32: scales and their inverses are float32 on the device.
LEAST_SCALE: Final = 2.0**-126
#: Loop rounds that every driver supports for one invocation: those on CPUs silently end all loops after 65535.
MOST_ROUNDS: Final = 60_000


def rounds(*sizes: int) -> int:
    """Rounds of nested loops, the outermost first.

    >>> rounds(2, 3)
    8
    """
    total = 0
    for size in reversed(sizes):
        total = size * (total + 1)
    return total


#: Name -> target.
TARGETS: Final = {
    target.name: target
    for target in (
        Target("phone-large", "phones with large textures (recent Adreno and Mali)", (16384, 16384, 2048), 128 * _MIB),
        Target("phone-small", "every phone with Vulkan 1.1", (2048, 2048, 2048), 128 * _MIB),
        Target("desktop", "graphics cards, and drivers on CPUs", (4096, 4096, 2048), 1024 * _MIB),
    )
}


def list_targets() -> tuple[TargetInfo, ...]:
    """All targets in the core's format."""
    return tuple(TargetInfo(target.name, _told(target), {"target": target.name}) for target in TARGETS.values())


def _told(target: Target) -> str:
    """The class and its limits."""
    width, height, depth = target.texture
    return f"{target.summary}: textures up to {width} x {height} x {depth}, buffers up to {target.buffer // _MIB} MiB"
