"""The options of the Vulkan backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, option
from delegatekit_toolkit.options import at_least, leave_out_option

from .targets import TARGETS


@dataclass(frozen=True)
class VulkanOptions(BackendOptions):
    """Options for lowering to Vulkan."""

    leave_out: frozenset[str] = leave_out_option()
    target: str = option(
        "phone-large",
        help="The class of devices that the program is for: its limits are checked, and layouts chosen for it.",
        choices=tuple(TARGETS),
    )
    fp16: bool = option(
        False,
        help="Store and compute float32 values of the program as float16 on the device, weights included; inputs and "
        "outputs stay float32.",
    )
    storage: str = option(
        "auto",
        help='Storage of tensors: "texture" wherever an operator and the limits of the target allow it, '
        '"buffer" likewise, "auto" as phones compute fastest.',
        choices=("auto", "texture", "buffer"),
    )
    buffer_limit: int = option(
        0,
        help="The maximum size of a tensor in bytes; 0: what the target guarantees.",
        check=at_least(0),
    )
    require_dynamic_shapes: bool = option(
        False,
        help="Refuse operators that the runtime on the device cannot compute with other sizes in later calls.",
    )
