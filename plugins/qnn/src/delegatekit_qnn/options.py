"""The options of the QNN backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, OptionError, option
from delegatekit_toolkit.options import at_least, leave_out_option

from .targets import CHIPS


@dataclass(frozen=True)
class QnnOptions(BackendOptions):
    """What a user may choose about lowering to Qualcomm's HTP."""

    leave_out: frozenset[str] = leave_out_option()
    soc: str = option("sm8650", help="The chip that the program is compiled for.", choices=tuple(CHIPS))
    precision: str = option(
        "float16",
        help="What is computed that is not quantized: float16 takes it, in float16; quantized leaves it outside.",
        choices=("float16", "quantized"),
    )
    performance: str = option(
        "burst",
        help="How the device runs the processor while it executes.",
        choices=(
            *("default", "sustained_high", "burst", "high", "power_saver", "low_power_saver", "high_power_saver"),
            *("low_balanced", "balanced"),
        ),
    )
    vtcm: int = option(0, help="MB of the chip's fast memory that the program may use; 0: all.", check=at_least(0))
    weight_sharing: bool = option(
        False,
        help="Whether delegates of several methods are graphs of one context, which has equal weights once: from "
        "HTP v73 on. Devices run it, the simulator on the host does not.",
    )
    profile: str = option(
        "off", help="What the device's runtime measures while it executes.", choices=("off", "detailed", "optrace")
    )
    schematics: str = option(
        "",
        help="The folder for the files that the SDK's qnn-profile-viewer reads beside what profile=optrace measured, "
        "one for each method; written when something is compiled, and not where it was compiled before.",
    )
    validate: bool = option(
        True,
        help="Whether the vendor's library, where it is installed, has the last word on every operator.",
    )

    @property
    def computes_floats(self) -> bool:
        """Whether floating point is computed in the delegate."""
        return self.precision == "float16" and CHIPS[self.soc].has_floats

    def __post_init__(self) -> None:
        """Refuse more fast memory than the chip has, and a folder for nothing. Raises OptionError."""
        if self.schematics and self.profile != "optrace":
            raise OptionError(
                f"schematics = {self.schematics!r} with profile = {self.profile!r}: only optrace has such files",
                where="option of backend qnn",
                hint="choose profile=optrace, or leave schematics out",
            )
        chip = CHIPS.get(self.soc)
        if chip is not None and self.vtcm > chip.memory:
            raise OptionError(
                f"vtcm = {self.vtcm}: the {chip.name} has {chip.memory} MB of fast memory",
                where="option of backend qnn",
                hint="0 is all of it",
            )
