"""The devices that OpenVINO compiles for."""

from __future__ import annotations

from typing import Final

from delegatekit_api.devices import TargetInfo

#: Name of a device -> what it is.
DEVICES: Final = {
    "CPU": "x86-64 and Arm processors",
    "GPU": "Intel's integrated and discrete GPUs",
    "NPU": "Intel's neural processing units",
    "AUTO": "the best device where the file is loaded",
}


def list_targets() -> tuple[TargetInfo, ...]:
    """The device that is compiled for on any computer; for others OpenVINO needs a computer that has them."""
    return (TargetInfo("CPU", DEVICES["CPU"], {"device": "CPU"}),)
