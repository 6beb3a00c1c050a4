"""The devices that MLX's graphs are for."""

from __future__ import annotations

from delegatekit_api.devices import TargetInfo


def list_targets() -> tuple[TargetInfo, ...]:
    """The one target: a graph is the same for all of Apple's chips."""
    return (TargetInfo("apple-silicon", "Macs and iPads with Apple's chips, on the GPU by MLX", {}),)
