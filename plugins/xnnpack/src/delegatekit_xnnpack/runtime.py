"""Executes blobs in this process, each through the XNNPACK delegate inside the stock ExecuTorch library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from delegatekit_api import (
    Availability,
    DelegatePayload,
    ExecutionError,
    FormatError,
    RuntimeUnavailableError,
    TensorSpec,
)
from delegatekit_toolkit.capture import quiet
from delegatekit_toolkit.dtypes import dtype_name
from delegatekit_toolkit.signature import store_results

from .blob.program import CallSizes
from .blob.reader import validate

if TYPE_CHECKING:
    import torch

_DELEGATE_ID = "XnnpackBackend"
_INSTALL = "pip install 'delegatekit-xnnpack[runtime]'"

#: ExecuTorch's error codes, as far as a delegate raises them.
_ERRORS = {
    0x01: "internal error: XNNPACK refused a value, a node or a shape",
    0x10: "not supported: the result's shape is not the declared one",
    0x12: "invalid argument",
    0x20: "not found: a constant is missing",
    0x21: "out of memory",
    0x23: "invalid program",
    0x30: "incompatible delegate blob",
    0x31: "out of memory in the delegate",
}


@dataclass
class _Handle:
    """A loaded delegate. ExecuTorch does not keep the program's bytes alive: we do, longer than the method."""

    method: Any
    program: Any
    data: bytes
    outputs: tuple[TensorSpec, ...]
    sizes: CallSizes


class XnnpackRuntime:
    """A `DelegateRuntime` on ExecuTorch's low-level binding (its Python layer would import the whole stock stack)."""

    def is_available(self) -> Availability:
        """Whether the stock library is installed and has the XNNPACK delegate."""
        try:
            binding = _binding()
            registered = binding._get_registered_backend_names()
        except Exception as error:  # whatever a broken installation raises: the caller wants an answer
            return Availability(False, f"executorch cannot be imported ({error}): {_INSTALL}")
        if _DELEGATE_ID not in registered:
            return Availability(False, f"the installed executorch was built without {_DELEGATE_ID}")
        return Availability(True)

    def init(self, payload: DelegatePayload) -> _Handle:
        """Validate the blob and load it. Raises FormatError, or RuntimeUnavailableError without executorch."""
        checked = validate(payload)
        available = self.is_available()
        if not available.available:
            raise RuntimeUnavailableError(available.reason, where=_DELEGATE_ID)
        data = payload.as_program(sorted(checked.keys))
        try:
            program = _binding()._load_program_from_buffer(data)
            method = program.load_method("forward")
        except RuntimeError as error:
            raise FormatError(f"does not load: {_explain(error)}", where="XNNPACK blob") from error
        return _Handle(method, program, data, payload.outputs, CallSizes(checked, payload))

    def execute(self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once with this call's sizes; results may be smaller than `outputs`. Raises ExecutionError."""
        if handle.method is None:
            raise ExecutionError("was destroyed", where="XNNPACK delegate")
        if len(outputs) != len(handle.outputs):
            raise ExecutionError(f"has {len(handle.outputs)} outputs, got {len(outputs)}", where="XNNPACK delegate")
        empty = [tuple(tensor.shape) for tensor in inputs if not tensor.numel()]
        if empty:
            # Some of XNNPACK's operators end the process then.
            raise ExecutionError(
                f"an input has no elements, {empty[0]}",
                where="XNNPACK delegate",
                hint="leave such calls out, or lower for them without XNNPACK: the runtime takes empty tensors",
            )
        try:
            handle.sizes.check([tensor.shape for tensor in inputs])
        except FormatError as error:
            raise ExecutionError(f"its blob does not fit the call: {error}", where="XNNPACK delegate") from error
        try:
            results = handle.method(tuple(inputs), clone_outputs=False)
        except RuntimeError as error:
            raise ExecutionError(f"failed: {_explain(error)}", where="XNNPACK delegate") from error
        for output, result, spec in zip(outputs, results, handle.outputs, strict=True):
            if output.dtype != result.dtype or not (spec.dynamic or output.shape == result.shape):
                found, wanted = (f"{dtype_name(item.dtype)} {tuple(item.shape)}" for item in (output, result))
                raise ExecutionError(f"an output is {found}, the result {wanted}", where="XNNPACK delegate")
        store_results(outputs, results)

    def destroy(self, handle: _Handle) -> None:
        """Release the delegate; twice is harmless."""
        handle.method = None
        handle.program = None
        handle.data = b""


def _binding() -> Any:
    import torch  # noqa: F401  (the binding links against its libraries)
    from executorch.extension.pybindings import _C

    _start_threads(_C)
    return _C


@cache
def _start_threads(binding: Any) -> None:
    """Start the library's threads now: it tells on stderr how it found out about the CPU, which helps nobody."""
    with quiet("[cpuinfo_utils.cpp:", descriptor=2):
        binding._threadpool_get_thread_count()


def _explain(error: RuntimeError) -> str:
    """The binding's message with the meaning of its hexadecimal code."""
    code = re.search(r"0x:?([0-9a-fA-F]+)", str(error))
    meaning = _ERRORS.get(int(code[1], 16)) if code else None
    return f"{error}" if meaning is None else f"{meaning} ({error})"
