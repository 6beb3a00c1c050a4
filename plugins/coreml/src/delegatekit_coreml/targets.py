"""Deployment targets: systems that a program can be compiled for, and the features that each added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delegatekit_api.devices import TargetInfo


@dataclass(frozen=True, order=True)
class Target:
    """A generation of systems; later ones have all features of earlier ones."""

    #: Version of Core ML's specification.
    version: int
    name: str
    #: The same generation on other devices.
    others: frozenset[str]


IOS15: Final = Target(6, "ios15", frozenset(("macos12", "watchos8", "tvos15")))
IOS16: Final = Target(7, "ios16", frozenset(("macos13", "watchos9", "tvos16")))
IOS17: Final = Target(8, "ios17", frozenset(("macos14", "watchos10", "tvos17")))
IOS18: Final = Target(9, "ios18", frozenset(("macos15", "watchos11", "tvos18")))
IOS26: Final = Target(10, "ios26", frozenset(("macos26", "watchos26", "tvos26")))

_GENERATIONS: Final = (IOS15, IOS16, IOS17, IOS18, IOS26)
#: Name -> target, iOS first.
TARGETS: Final = {
    **{target.name: target for target in _GENERATIONS},
    **{name: target for target in _GENERATIONS for name in sorted(target.others)},
}


def list_targets() -> tuple[TargetInfo, ...]:
    """All targets in the core's format."""
    return tuple(
        TargetInfo(name, f"Core ML specification {target.version}", {"target": name})
        for name, target in TARGETS.items()
    )
