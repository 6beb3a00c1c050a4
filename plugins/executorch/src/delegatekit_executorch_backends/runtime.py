"""Executes blobs by the delegates inside the stock ExecuTorch library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from delegatekit_api import Availability, DelegatePayload, ExecutionError, RuntimeUnavailableError
from delegatekit_toolkit.stock import StockDelegate, stock_has

from .targets import System

if TYPE_CHECKING:
    import torch

    from delegatekit_api.profiling import OperatorTime

_INSTALL: Final = "pip install 'delegatekit-executorch-backends[runtime]'"


class StockRuntime:
    """A `DelegateRuntime` on stock ExecuTorch."""

    def __init__(self, system: System) -> None:
        self._system: Final = system
        self._id: Final = system.delegate_id

    def is_available(self) -> Availability:
        """Check that the stock library is installed and has the delegate."""
        self._system.name_library()
        return stock_has(self._id, _INSTALL)

    def init(self, payload: DelegatePayload) -> StockDelegate:
        """Load a blob. Raises FormatError, or RuntimeUnavailableError without executorch."""
        available = self.is_available()
        if not available.available:
            raise RuntimeUnavailableError(available.reason, where=self._id)
        # A blob names the data that it reads.
        blob = bytes(payload.blob)
        keys = [key for key in payload.named_data if key.encode() in blob]
        return StockDelegate(payload, keys, where=f"delegate {self._id}")

    def execute(self, handle: StockDelegate, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once with this call's sizes; results may be smaller than `outputs`. Raises ExecutionError."""
        self._check(inputs)
        handle.execute(inputs, outputs)

    def profile(
        self, handle: StockDelegate, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> Sequence[OperatorTime]:
        """As `execute`, and the times of the delegate's operators, by its names for them. Raises ExecutionError."""
        self._check(inputs)
        return handle.profile(inputs, outputs)

    def destroy(self, handle: StockDelegate) -> None:
        """Release the delegate; calling twice is harmless."""
        handle.destroy()

    def _check(self, inputs: Sequence[torch.Tensor]) -> None:
        """Raise ExecutionError for inputs without elements, with which stock's delegates end the process."""
        empty = next((tuple(tensor.shape) for tensor in inputs if not tensor.numel()), None)
        if empty is not None:
            raise ExecutionError(
                f"an input has no elements, {empty}",
                where=f"delegate {self._id}",
                hint="leave such calls out, or lower for them without this backend",
            )
