"""The options of the QNN backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, OptionError, option
from delegatekit_toolkit.options import at_least, leave_out_option

from .targets import CHIPS


@dataclass(frozen=True)
class QnnOptions(BackendOptions):
    """Options for lowering to Qualcomm's HTP."""

    leave_out: frozenset[str] = leave_out_option()
    soc: str = option("sm8650", help="The chip that the program is compiled for.", choices=tuple(CHIPS))
    precision: str = option(
        "float16",
        help="Operators that are not quantized: float16 computes them, in float16; quantized leaves them outside.",
        choices=("float16", "quantized"),
    )
    performance: str = option(
        "burst",
        help="The performance mode of the processor while it executes.",
        choices=(
            *("default", "sustained_high", "burst", "high", "power_saver", "low_power_saver", "high_power_saver"),
            *("low_balanced", "balanced"),
        ),
    )
    vtcm: int = option(0, help="MB of the chip's fast memory that the program may use; 0: all.", check=at_least(0))
    weight_sharing: bool = option(
        False,
        help="Compile delegates of several methods as graphs of one context, which stores equal weights once: from "
        "HTP v73 on. Devices support it, the simulator on the host does not.",
    )
    profile: str = option(
        "off", help="The measurements of the device's runtime.", choices=("off", "detailed", "optrace")
    )
    schematics: str = option(
        "",
        help="The folder for the files that the SDK's qnn-profile-viewer reads with the results of profile=optrace, "
        "one for each method; written when something is compiled, but not if it was compiled before.",
    )
    validate: bool = option(
        True,
        help="Let the vendor's library, if it is installed, decide on every operator.",
    )

    @property
    def computes_floats(self) -> bool:
        """True if floating point is computed in the delegate."""
        return self.precision == "float16" and CHIPS[self.soc].has_floats

    def __post_init__(self) -> None:
        """Refuse more fast memory than the chip has, and a folder without effect. Raises OptionError."""
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
                hint="0 means all of it",
            )
