"""Checks a backend's result for a partition, before any of it goes into a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensor

from delegatekit_api import CompileSpec, NamedData, PluginError, PreprocessResult
from delegatekit_api.devices import Estimate
from delegatekit_api.versions import PROJECT

from ..plugins import blaming, check_answer


@dataclass(frozen=True)
class CheckedResult:
    """A `PreprocessResult` whose parts are of the declared types and can be written; nothing in it is a list."""

    blob: tuple[bytes | bytearray | memoryview, ...]
    compile_specs: tuple[CompileSpec, ...]
    named_data: tuple[NamedData, ...]
    debug_handle_map: Mapping[int | str, tuple[int, ...]]
    estimate: Estimate | None


def check_result(result: Any, where: str) -> CheckedResult:
    """The result as plain data. Raises PluginError, naming the part that violates the API."""
    if not isinstance(result, PreprocessResult):
        raise PluginError(f"preprocess returned {type(result).__name__}, not a PreprocessResult", where=where)
    check_answer(result, PreprocessResult, "result", where)
    with blaming(lambda fault: PluginError(f"the result cannot be read: {fault}", where=where)):
        fault = next(_faults(result), None)
        if fault is None:
            return CheckedResult(
                tuple(part.cast("B") if isinstance(part, memoryview) else part for part in _parts(result)),
                tuple(result.compile_specs),
                tuple(result.named_data),
                {key: tuple(handles) for key, handles in result.debug_handle_map.items()},
                result.estimate,
            )
    raise PluginError(f"result: {fault}", where=where)


def _parts(result: PreprocessResult) -> tuple[bytes | bytearray | memoryview, ...]:
    blob = result.blob
    return (blob,) if isinstance(blob, bytes | bytearray | memoryview) else tuple(blob)


def _faults(result: PreprocessResult) -> Iterator[str]:
    """Faults that the types do not express."""
    parts = _parts(result)
    if not any(memoryview(part).nbytes for part in parts):
        yield "blob is empty"
    if not all(memoryview(part).c_contiguous for part in parts):
        yield "blob has a memoryview that is not contiguous"
    for index, data in enumerate(result.named_data):
        fault = _data_fault(data)
        if fault is not None:
            yield f"named_data[{index}] {fault}"
    if result.estimate is not None and any(number < 0 for number in _numbers(result.estimate)):
        yield "estimate has a negative number"


def _data_fault(item: NamedData) -> str | None:
    if not item.key or item.key.startswith(f"{PROJECT}."):
        return f"has the key {item.key!r}: keys are not empty and do not begin with {PROJECT!r}"
    if item.alignment < 1 or item.alignment & (item.alignment - 1):
        return f"({item.key}) has the alignment {item.alignment}, which is not a power of two"
    if isinstance(item.data, memoryview) and not item.data.c_contiguous:
        return f"({item.key}) is a memoryview that is not contiguous"
    if isinstance(item.data, torch.Tensor) and not _is_plain(item.data):
        return f"({item.key}) is a tensor that cannot be written: it is not dense, not in main memory, or fake"
    return None


def _is_plain(tensor: torch.Tensor) -> bool:
    real = not isinstance(tensor, FakeTensor) and tensor.device.type == "cpu"
    return real and tensor.layout == torch.strided and not tensor.is_quantized


def _numbers(estimate: Estimate) -> Iterator[float]:
    yield from (estimate.latency or 0, estimate.cycles or 0, estimate.macs or 0)
    yield from estimate.memory.values()
    yield from estimate.storage.values()
    for layer in estimate.layers:
        yield from (layer.latency, layer.cycles or 0, layer.macs, layer.utilization, *layer.memory.values())
