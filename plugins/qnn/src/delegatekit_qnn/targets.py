"""The chips that context binaries are compiled for: their numbers, processor generations and fast memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delegatekit_api.devices import TargetInfo


@dataclass(frozen=True)
class Chip:
    """A chip with a Hexagon Tensor Processor (HTP)."""

    name: str
    #: The chip's number in the vendor's list.
    number: int
    #: Generation of the processor: 68 computes on integers only, later ones in float16, too.
    generation: int
    #: Tightly coupled memory, in MB.
    memory: int

    @property
    def has_floats(self) -> bool:
        """True if it computes in floating point."""
        return self.generation >= FIRST_WITH_FLOATS


#: The first generation that computes in float16.
FIRST_WITH_FLOATS: Final = 69
#: The first generation that supports 16-bit weights.
FIRST_WITH_WIDE_WEIGHTS: Final = 73

_CHIPS: Final = (
    Chip("SM8650", 57, 75, 8),
    Chip("SM8850", 87, 81, 8),
    Chip("SM8845", 97, 81, 8),
    Chip("SM8750", 69, 79, 8),
    Chip("SM8550", 43, 73, 8),
    Chip("SM8475", 42, 69, 8),
    Chip("SM8450", 36, 69, 8),
    Chip("SM8350", 30, 68, 4),
    Chip("QCM6490", 93, 68, 2),
    Chip("QCS9100", 77, 73, 8),
    Chip("SA8295", 39, 68, 8),
    Chip("SA8255", 52, 73, 8),
    Chip("SA8797", 72, 81, 16),
    Chip("SAR2230P", 95, 81, 4),
    Chip("SC8380XP", 60, 73, 8),
    Chip("SSG2115P", 46, 73, 2),
    Chip("SSG2125P", 58, 73, 2),
    Chip("SW6100", 96, 81, 4),
    Chip("SXR1230P", 45, 73, 2),
    Chip("SXR2230P", 53, 69, 8),
    Chip("SXR2330P", 75, 79, 8),
)
#: Name -> chip.
CHIPS: Final = {chip.name.lower(): chip for chip in _CHIPS}


def list_targets() -> tuple[TargetInfo, ...]:
    """All chips in the core's format."""
    return tuple(
        TargetInfo(name, f"{chip.name}: HTP v{chip.generation}, {chip.memory} MB of VTCM", {"soc": name})
        for name, chip in CHIPS.items()
    )
