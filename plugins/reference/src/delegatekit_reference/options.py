"""The options of the reference backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, option

from .operators import LEAVABLE


def _known(names: frozenset[str]) -> str | None:
    strangers = sorted(names - LEAVABLE)
    return f"the backend has no operator {', '.join(strangers)}" if strangers else None


@dataclass(frozen=True)
class ReferenceOptions(BackendOptions):
    """What a user may choose about lowering to PyTorch. The blob needs no options at run time."""

    leave_out: frozenset[str] = option(
        frozenset(),
        help='Operators that the backend shall not take: "aten.add.Tensor", "aten.add" or "add".',
        check=_known,
    )
    decompose: bool = option(
        False,
        help="Let core take convolutions, attention, activations and the like to pieces, as for a backend that knows "
        "core ATen only, instead of keeping them whole.",
    )
