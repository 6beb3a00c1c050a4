"""The accelerators: their properties, and what only the U85 has.

The limits of sizes (`delegatekit_toolkit.tosa.lowering.limits`) are those that Vela's compiler states for TOSA on the
Ethos-U55 and U65, the narrowest: programs within them compile for every accelerator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delegatekit_api.devices import TargetInfo


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

    @property
    def narrow(self) -> bool:
        """True if it is not a U85."""
        return self.family != "u85"

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
