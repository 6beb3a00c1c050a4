"""The times of the operators inside a delegate. A runtime without this protocol is timed as a whole."""

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
    """The time of one operator inside a delegate, in one call."""

    #: The backend's name of the operator: "conv2d".
    name: str
    seconds: float
    #: Its key in `PreprocessResult.debug_handle_map`, which maps it to source lines. None, or a key that
    #: the map lacks, if it comes from no operator of the program.
    key: int | str | None = None


@runtime_checkable
class ProfilingRuntime(DelegateRuntime, Protocol):
    """A runtime that can measure the time of the operators inside a delegate."""

    def profile(
        self, handle: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> Sequence[OperatorTime]:
        """Run once, as `execute` does, and return the time of each operator, in the order of execution.

        An operator that runs several times, or as several pieces, is listed several times. Raises ExecutionError.
        """
        ...
