"""The options of the Cortex-M backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, option
from delegatekit_toolkit.options import leave_out_option

from .targets import EXTENSIONS, TARGETS


@dataclass(frozen=True)
class CortexMOptions(BackendOptions):
    """Options for compiling for a Cortex-M. The program needs none at run time."""

    target: str = option("cortex-m55", help="The processor.", choices=tuple(TARGETS))
    extension: str | None = option(
        None,
        help="The instructions that CMSIS-NN is built for: scratch memory and the sums of products depend on them. By "
        "default the most that the processor may have.",
        choices=(None, *EXTENSIONS),
    )
    leave_out: frozenset[str] = leave_out_option()
