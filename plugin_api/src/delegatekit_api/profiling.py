"""What a runtime tells about the time that a delegate's operators take. A runtime without it is timed as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ._runtime import DelegateRuntime

if TYPE_CHECKING:
    import torch

__all__ = ["OperatorTime", "ProfilingRuntime"]


@dataclass(frozen=True)
class OperatorTime:
    """How long one operator inside a delegate took, in one call."""

    #: What the backend calls it: "conv2d".
    name: str
    seconds: float
    #: Its key in `PreprocessResult.debug_handle_map`, by which it is traced back to source lines. None, and a key that
    #: the map lacks: it comes from no operator of the program.
    key: int | str | None = None


@runtime_checkable
class ProfilingRuntime(DelegateRuntime, Protocol):
    """A runtime that can tell how long the operators inside a delegate take."""

    def profile(
        self, handle: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> Sequence[OperatorTime]:
        """Run once, as `execute` does, and return what each operator took, in the order in which they ran.

        An operator that runs several times, or as several pieces, is there several times. Raises ExecutionError.
        """
        ...
