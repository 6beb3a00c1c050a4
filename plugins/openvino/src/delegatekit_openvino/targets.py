"""The devices that OpenVINO compiles for."""

from __future__ import annotations

from typing import Final

from delegatekit_api.devices import TargetInfo

#: Lets OpenVINO choose one of the others.
AUTO: Final = "AUTO"
#: Name of a device -> what it is, and what compiles for it and runs here.
DEVICES: Final = {
    "CPU": "x86-64 and Arm processors; compiled and run by the openvino package alone",
    "GPU": "Intel's integrated and discrete GPUs; compiled and run where such a GPU and its OpenCL driver are",
    "NPU": "Intel's neural processing units; compiled and run where such a unit and its Level Zero driver are",
    AUTO: "the device that OpenVINO chooses on the computer that compiles",
}


def list_targets() -> tuple[TargetInfo, ...]:
    """The devices, the default one first."""
    return tuple(TargetInfo(name, summary, {"device": name}) for name, summary in DEVICES.items())
