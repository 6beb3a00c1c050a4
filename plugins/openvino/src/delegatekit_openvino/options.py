"""The options of the OpenVINO backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delegatekit_api import BackendOptions, option
from delegatekit_toolkit.options import between, leave_out_option, whole_graph_option

from .targets import DEVICES

#: OpenVINO takes 32 bits of a number of threads, and no processor has so many.
_MOST_THREADS: Final = 4096


@dataclass(frozen=True)
class OpenVINOOptions(BackendOptions):
    """Options for lowering to OpenVINO."""

    leave_out: frozenset[str] = leave_out_option()
    whole_graph: bool = whole_graph_option()
    device: str = option(
        "CPU",
        help="The device that the model is compiled for and runs on. OpenVINO compiles for devices that this "
        "computer has; AUTO is the one of them that it chooses.",
        choices=tuple(DEVICES),
    )
    precision: str = option(
        "float32",
        help="The precision that float32 is computed in. The stock runtime asks for none: CPUs that multiply in "
        "bfloat16 use that there.",
        choices=("float32", "bfloat16", "float16"),
    )
    threads: int = option(
        0,
        help="Threads of the Python engine's calls; 0: as many as PyTorch's when the file is loaded.",
        check=between(0, _MOST_THREADS),
    )
