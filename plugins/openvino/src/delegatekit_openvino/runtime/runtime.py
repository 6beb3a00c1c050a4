"""The delegate on this machine: OpenVINO imports the blob and computes in the caller's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from delegatekit_api import Availability, DelegatePayload, ExecutionError, FormatError, RuntimeUnavailableError
from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.narrowing import wide_number
from delegatekit_toolkit.signature import Signature, check_call, check_payload, store_results

from ..blob.layout import read_layout
from ..blob.library import availability, core, has_device, openvino, release, told
from ..blob.seal import WHERE, Settings, check
from ..ir.types import DTYPES, NAMES
from ..targets import AUTO, DEVICES

#: Types that numpy lacks, as integers of the same size.
_BITS: Final = {torch.bfloat16: torch.int16}

#: Nodes that compute nothing. What OpenVINO says to have executed does not tell them: for some calls, a node that takes
#: less than a microsecond was not.
_ENDS: Final = frozenset({"Parameter", "Result", "Constant"})


@dataclass
class _Handle:
    """A loaded delegate."""

    payload: DelegatePayload
    device: str
    properties: dict[str, str]
    signature: Signature
    request: Any
    #: The same model with counters, loaded for the first profile.
    counting: Any = None
    #: False before the first call: until then OpenVINO tells zeros for variables that begin otherwise.
    has_state: bool = False


class OpenVINORuntime:
    """A `DelegateRuntime` that executes blobs with the installed OpenVINO."""

    def is_available(self) -> Availability:
        """True if OpenVINO of a fitting version is installed."""
        return availability()

    def init(self, payload: DelegatePayload) -> _Handle:
        """Check the blob and import it. Raises FormatError, and RuntimeUnavailableError where OpenVINO is missing."""
        device, settings = check(payload.blob, payload.compile_specs)
        if device not in DEVICES or device == AUTO:
            raise FormatError(f"is for a device {device!r:.40}, which this release does not load", where=WHERE)
        if not (known := has_device(device)).available:
            raise RuntimeUnavailableError(known.reason, where=WHERE)
        if device == "CPU":
            read_layout(payload.blob)
        properties = _properties(settings, device)
        signature = Signature.of_payload(payload) if settings is None else settings.signature
        check_payload(payload, signature, WHERE)
        handle = _Handle(payload, device, properties, signature, None)
        handle.request = _imported(payload, device, properties)
        return handle

    def execute(self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once and write the results into `outputs`. Raises ExecutionError."""
        self._run(handle, handle.request, inputs, outputs)

    def profile(
        self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> list[OperatorTime]:
        """As `execute`, and the times by OpenVINO's counters. Raises ExecutionError."""
        if handle.request is not None and handle.counting is None:
            counting = handle.properties | {"PERF_COUNT": "YES"}
            handle.counting = _imported(handle.payload, handle.device, counting)
        if handle.has_state:
            _copy_state(handle.request, handle.counting)
        self._run(handle, handle.counting, inputs, outputs)
        _copy_state(handle.counting, handle.request)
        return [
            OperatorTime(item.exec_type or item.node_type, item.real_time.total_seconds(), item.node_name)
            for item in handle.counting.profiling_info
            if item.node_type not in _ENDS
        ]

    def destroy(self, handle: _Handle) -> None:
        """Release the delegate; calling twice is harmless."""
        handle.request = handle.counting = None
        handle.has_state = False

    def _run(
        self, handle: _Handle, request: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> None:
        if request is None:
            raise ExecutionError("was destroyed", where=WHERE)
        check_call(handle.signature, inputs, outputs, WHERE)
        for place, item in enumerate(inputs):
            if item.numel() == 0:
                raise ExecutionError(f"input {place} has no elements", where=WHERE)
            number = wide_number(item) if item.dtype is torch.int64 else None
            if number is not None:
                raise ExecutionError(f"input {place} has the number {number}: OpenVINO has 32 bits", where=WHERE)
        # OpenVINO writes into what has one block of memory, and the size of the call.
        direct = [
            not kind.is_dynamic and item.is_contiguous()
            for kind, item in zip(handle.signature.outputs, outputs, strict=True)
        ]
        given = [_tensor(item) for item in inputs]
        taken = [_tensor(item) if known else None for item, known in zip(outputs, direct, strict=True)]
        with told("OpenVINO fails", ExecutionError, WHERE):
            for place, tensor in enumerate(given):
                request.set_input_tensor(place, tensor)
            for place, tensor in enumerate(taken):
                if tensor is not None:
                    request.set_output_tensor(place, tensor)
            request.infer()
            handle.has_state = True
            results = [
                output if tensor is not None else _result(request.get_output_tensor(place), output.dtype)
                for place, (output, tensor) in enumerate(zip(outputs, taken, strict=True))
            ]
        for place, (result, output) in enumerate(zip(results, outputs, strict=True)):
            if result is output:
                continue
            if result.dim() != output.dim() or any(a > b for a, b in zip(result.shape, output.shape, strict=True)):
                what = f"output {place} has the shape {tuple(result.shape)}: {tuple(output.shape)} is the largest"
                raise ExecutionError(what, where=WHERE)
            store_results([output], [result])


def _properties(settings: Settings | None, device: str) -> dict[str, str]:
    """OpenVINO's properties for a blob. Raises FormatError for one of another release."""
    if settings is not None and settings.openvino != release():
        raise FormatError(
            f"was compiled by OpenVINO {settings.openvino}: {release()} is installed, which reads its own blobs",
            where=WHERE,
            hint=f'pip install --no-deps "openvino=={settings.openvino}.*"',
        )
    if device != "CPU":
        return {}
    threads = 0 if settings is None else settings.threads
    return {
        "INFERENCE_PRECISION_HINT": "f32" if settings is None else settings.precision,
        "INFERENCE_NUM_THREADS": str(threads or torch.get_num_threads()),
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    }


def _imported(payload: DelegatePayload, device: str, properties: dict[str, str]) -> Any:
    """A request for a blob. Raises FormatError if OpenVINO refuses it, or if it is not for the program's call."""
    with told("OpenVINO does not import the blob", FormatError, WHERE):
        compiled = core().import_model(bytes(payload.blob), device, properties)
    for what, ports, specs in (
        ("input", compiled.inputs, payload.inputs),
        ("output", compiled.outputs, payload.outputs),
    ):
        if len(ports) != len(specs):
            raise FormatError(f"has {len(ports)} {what}s, the program calls it with {len(specs)}", where=WHERE)
        for place, (port, spec) in enumerate(zip(ports, specs, strict=True)):
            shape, kind = port.get_partial_shape(), port.get_element_type().get_type_name()
            sizes = [size.get_length() if size.is_static else None for size in shape]
            fits = len(sizes) == len(spec.shape) and all(
                size is None or size == wanted for size, wanted in zip(sizes, spec.shape, strict=True)
            )
            if not fits or kind not in DTYPES or str(DTYPES[kind]) != f"torch.{spec.dtype}":
                found = f"{what} {place} is {kind} {shape}, in the program {spec.dtype} {spec.shape}"
                raise FormatError(found, where=WHERE)
    return compiled.create_infer_request()


def _copy_state(source: Any, target: Any) -> None:
    """Give the variables of a request those of another one of the same model."""
    found = {state.name: state for state in source.query_state()}
    for state in target.query_state():
        state.state = found[state.name].state


def _tensor(value: torch.Tensor) -> Any:
    """A caller's tensor, in its memory."""
    library = openvino()
    kind = getattr(library.Type, NAMES[value.dtype])
    data = value.detach()
    flat = data.reshape(-1).view(_BITS.get(data.dtype, data.dtype)).numpy()
    return library.Tensor(flat, library.Shape(list(value.shape)), kind)


def _result(tensor: Any, dtype: torch.dtype) -> torch.Tensor:
    """A copy of one of OpenVINO's tensors."""
    if dtype in _BITS:
        found = torch.from_numpy(np.array(tensor.data, copy=True).view(np.int16))
        return found.view(dtype).reshape(list(tensor.shape))
    return torch.from_numpy(np.array(tensor.data, copy=True)).reshape(list(tensor.shape)).to(dtype)
