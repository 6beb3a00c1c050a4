"""The accelerators: their properties, features of the U85 alone, and size limits.

The limits are those that Vela's compiler states for TOSA on the Ethos-U55 and U65, the narrowest: programs within them
compile for every accelerator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delegatekit_api.devices import TargetInfo

# -- limits ----------------------------------------------------------------------------------------------------------

#: Axes of a tensor.
MAX_RANK: Final = 6
#: Elements along one axis of a feature map.
MAX_AXIS: Final = 1 << 16
MAX_STRIDE: Final = 3
MAX_DILATION: Final = 2
#: Of transposed convolutions: more rows and columns than any network makes from one.
MAX_TRANSPOSED_STRIDE: Final = 16
#: Height, and elements, of a convolution's kernel and of a pooling's window.
KERNEL: Final = (64, 4096)
WINDOW: Final = (256, 1 << 16)
#: Steps from one pixel to the next, and the largest factor by which images are made smaller.
MAX_RESIZE_STEPS: Final = 1 << 11
MAX_SHRINKING: Final = 16
#: Windows of averages that exclude the padding.
PADDED_WINDOW: Final = 8
#: Sums of the exponentials of a softmax, each below 2^15, fit 31 bits.
MAX_SOFTMAX: Final = 1 << 15
#: From the smallest to the largest score of a log_softmax, whose steps are 2^-16 in 29 bits.
MAX_SCORES: Final = 1 << 13
#: Sums of squares in a norm of int8 and int16, of differences from the mean and from the zero point, fit 29 bits.
MAX_NORM: Final = 1 << 14
MAX_ROOT_MEAN_SQUARE: Final = 1 << 12
#: Axes up to which two operands are broadcast.
COMMON_RANK: Final = 4

# -- accelerators ----------------------------------------------------------------------------------------------------

#: Features of the U85 alone, in words.
WIDE_PRODUCTS: Final = "products of int16 matrices"
CHOICES: Final = "choice between two numbers, but in front of a softmax"
COMPUTED_MASKS: Final = "softmax whose mask is computed"
COMPARISONS: Final = "comparisons and booleans"
LOOK_UPS: Final = "look-up of rows by indices"
RESIZES: Final = {
    "nearest": "nearest resizing but by whole factors",
    "bilinear": "bilinear resizing but by 2, 4 or 8 between centres",
}


@dataclass(frozen=True)
class Target:
    """One accelerator. `macs` is the number of multiplications in a cycle, over all `cores`."""

    name: str
    #: "u55", "u65" or "u85".
    family: str
    macs: int
    cores: int
    #: Stock ExecuTorch's choices for the family.
    system_config: str
    memory_mode: str

    @property
    def architecture(self) -> str:
        """The compiler's name of the family: "EthosU55"."""
        return "Ethos" + self.family.upper()

    def lacks(self, what: str) -> str | None:
        """The reason why it lacks a feature of the Ethos-U85; None if it is one."""
        return None if self.family == "u85" else f"the {self.name} has no {what}; an Ethos-U85 has"

    @property
    def address_space(self) -> int:
        """Bytes that the accelerator can address: the limit of the arena if nothing else defines one."""
        return 1 << (32 if self.family == "u55" else 40)


_DEFAULTS: Final = {
    "u55": ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "u65": ("Ethos_U65_High_End", "Dedicated_Sram_384KB"),
    "u85": ("Ethos_U85_SYS_DRAM_Mid", "Sram_Only"),
}
_MACS: Final = {"u55": (32, 64, 128, 256), "u65": (256, 512), "u85": (128, 256, 512, 1024, 2048)}

#: Name -> target.
TARGETS: Final = {
    name: Target(name, family, macs, 2 if name == "ethos-u65-512" else 1, *_DEFAULTS[family])
    for family, sizes in _MACS.items()
    for macs in sizes
    for name in [f"ethos-{family}-{macs}"]
}


def list_targets() -> tuple[TargetInfo, ...]:
    """All targets in the core's format."""
    return tuple(
        TargetInfo(
            target.name,
            f"Ethos-{target.family.upper()}, {target.macs} MACs in a cycle"
            + (f" on {target.cores} cores" if target.cores > 1 else "")
            + f"; {target.system_config}, {target.memory_mode} by default",
            {"target": target.name},
            # The host executes commands of the U55 alone.
            {} if target.family == "u55" else {"keep_tosa": "true"},
        )
        for target in TARGETS.values()
    )
