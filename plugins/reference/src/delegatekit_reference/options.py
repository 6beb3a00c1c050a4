"""The options of the reference backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, option
from delegatekit_toolkit.options import leave_out_option


@dataclass(frozen=True)
class ReferenceOptions(BackendOptions):
    """Options for lowering to PyTorch. The blob needs none at run time."""

    leave_out: frozenset[str] = leave_out_option()
    decompose: bool = option(
        False,
        help="Let the core decompose convolutions, attention, activations and the like, as for a backend that knows "
        "core ATen only, instead of keeping them whole.",
    )
