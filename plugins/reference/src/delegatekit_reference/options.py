"""The options of the reference backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, option
from delegatekit_toolkit.options import leave_out_option


@dataclass(frozen=True)
class ReferenceOptions(BackendOptions):
    """What a user may choose about lowering to PyTorch. The blob needs no options at run time."""

    leave_out: frozenset[str] = leave_out_option()
    decompose: bool = option(
        False,
        help="Let core take convolutions, attention, activations and the like to pieces, as for a backend that knows "
        "core ATen only, instead of keeping them whole.",
    )
