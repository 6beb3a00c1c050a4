"""Memory of ExecuTorch as Python sees it, without copies: blobs, named data, and the tensors of a call."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Final

import torch

from delegatekit.pte import torch_dtype
from delegatekit_api import ExecutionError, TensorSpec
from delegatekit_toolkit.dtypes import dtype_name

from ..native.library import Argument, library

_TENSOR: Final = 0
_NUMBER: Final = 1


class NamedBuffers(Mapping[str, memoryview]):
    """The named data of a delegate's file, by key; valid until the delegate is destroyed."""

    def __init__(self, delegate: int) -> None:
        self._delegate = delegate
        self._found: dict[str, memoryview] = {}

    def __getitem__(self, key: str) -> memoryview:
        if key not in self._found:
            data, size = ctypes.c_void_p(), ctypes.c_int64()
            if library().dk_named(self._delegate, key.encode(), ctypes.byref(data), ctypes.byref(size)):
                raise KeyError(key)
            self._found[key] = memory(data.value, size.value)
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        for index in range(len(self)):
            key = library().dk_named_key(self._delegate, index)
            if key is not None:
                yield key.decode("utf-8", errors="replace")

    def __len__(self) -> int:
        return int(library().dk_named_count(self._delegate))


def memory(address: int | None, size: int) -> memoryview:
    """A view of memory that is only read."""
    if not address or size <= 0:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B").toreadonly()


def is_number(argument: Argument) -> bool:
    """True for an argument that is no tensor, which delegates are not given. Raises ExecutionError for a list."""
    if argument.kind not in (_TENSOR, _NUMBER):
        raise ExecutionError("is called with an argument that is neither a tensor nor a number")
    return argument.kind == _NUMBER


def spec_of(argument: Argument) -> TensorSpec | None:
    """The spec of an argument as it is now; None for a number."""
    if is_number(argument):
        return None
    order = tuple(argument.order[: argument.ndim])
    return TensorSpec(
        dtype_name(torch_dtype(argument.dtype)),
        sizes_of(argument),
        dynamic=bool(argument.dynamic),
        dim_order=() if order == tuple(range(len(order))) else order,
    )


def sizes_of(argument: Argument) -> tuple[int, ...]:
    """The sizes of a tensor in this call."""
    return tuple(argument.sizes[: argument.ndim])


def tensor_of(argument: Argument, spec: TensorSpec) -> torch.Tensor:
    """A tensor in the argument's memory, with its sizes. Raises ExecutionError if it does not fit its spec."""
    dtype = torch_dtype(argument.dtype)
    sizes = sizes_of(argument)
    if dtype_name(dtype) != spec.dtype or len(sizes) != len(spec.shape):
        found = f"{dtype_name(dtype)} {sizes}"
        raise ExecutionError(f"is called with {found}, and the file says {spec.dtype} {spec.shape}")
    strides = tuple(argument.strides[: argument.ndim])
    if not argument.nbytes:
        return torch.empty_strided(sizes, strides, dtype=dtype)
    if not argument.data:
        raise ExecutionError(f"is called with a tensor {sizes} without memory")
    buffer = (ctypes.c_ubyte * argument.nbytes).from_address(argument.data)
    return torch.frombuffer(buffer, dtype=dtype).as_strided(sizes, strides)
