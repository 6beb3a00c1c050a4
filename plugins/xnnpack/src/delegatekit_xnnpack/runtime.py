"""Executes blobs in this process, each by the XNNPACK delegate inside the stock ExecuTorch library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delegatekit_api import Availability, DelegatePayload, ExecutionError, FormatError, RuntimeUnavailableError
from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.stock import StockDelegate, stock_has

from .blob.program import CallSizes
from .blob.reader import validate

if TYPE_CHECKING:
    import torch

_DELEGATE_ID: Final = "XnnpackBackend"
_INSTALL: Final = "pip install 'delegatekit-xnnpack[runtime]'"
_WHERE: Final = "XNNPACK delegate"
_ERRORS: Final = {0x01: "internal error: XNNPACK refused a value, a node or a shape"}


@dataclass(frozen=True)
class _Handle:
    """A loaded delegate, and the sizes that its blob accepts."""

    delegate: StockDelegate
    sizes: CallSizes


class XnnpackRuntime:
    """A `DelegateRuntime` on stock ExecuTorch."""

    def is_available(self) -> Availability:
        """Check that the stock library is installed and has the XNNPACK delegate."""
        return stock_has(_DELEGATE_ID, _INSTALL)

    def init(self, payload: DelegatePayload) -> _Handle:
        """Validate the blob and load it. Raises FormatError, or RuntimeUnavailableError without executorch."""
        checked = validate(payload)
        available = self.is_available()
        if not available.available:
            raise RuntimeUnavailableError(available.reason, where=_DELEGATE_ID)
        delegate = StockDelegate(payload, sorted(checked.keys), where=_WHERE, errors=_ERRORS)
        return _Handle(delegate, CallSizes(checked, payload))

    def execute(self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once with this call's sizes; results may be smaller than `outputs`. Raises ExecutionError."""
        _check(handle, inputs)
        handle.delegate.execute(inputs, outputs)

    def profile(
        self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> Sequence[OperatorTime]:
        """As `execute`, and the times of XNNPACK's operators, by XNNPACK's names for them. Raises ExecutionError."""
        _check(handle, inputs)
        return handle.delegate.profile(inputs, outputs)

    def destroy(self, handle: _Handle) -> None:
        """Release the delegate; calling twice is harmless."""
        handle.delegate.destroy()


def _check(handle: _Handle, inputs: Sequence[torch.Tensor]) -> None:
    """Raise ExecutionError for a call that XNNPACK must not get."""
    empty = [tuple(tensor.shape) for tensor in inputs if not tensor.numel()]
    if empty:
        # Some of XNNPACK's operators crash the process then.
        raise ExecutionError(
            f"an input has no elements, {empty[0]}",
            where=_WHERE,
            hint="leave such calls out, or lower for them without XNNPACK: the runtime takes empty tensors",
        )
    try:
        handle.sizes.check([tensor.shape for tensor in inputs])
    except FormatError as error:
        raise ExecutionError(f"its blob does not fit the call: {error}", where=_WHERE) from error
