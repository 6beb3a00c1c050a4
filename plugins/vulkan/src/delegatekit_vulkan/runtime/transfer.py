"""Tensors of the host as words of the device, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from delegatekit_api import ExecutionError
from delegatekit_toolkit.narrowing import wide_number

from ..ir.graph import Tensor
from .binding import WHERE


def constant_array(data: torch.Tensor) -> np.ndarray[Any, Any]:
    """A constant's elements, on its own memory."""
    return data.detach().contiguous().numpy()


def words_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Elements as words: floats as float32, integers and booleans as int32; uint32 stays unchanged."""
    if array.dtype == np.uint32:
        return np.ascontiguousarray(array).reshape(-1)
    wanted = np.float32 if array.dtype.kind == "f" else np.int32
    return np.ascontiguousarray(array, dtype=wanted).reshape(-1).view(np.uint32)


def to_device(tensor: torch.Tensor, declared: Tensor, target: np.ndarray[Any, Any], where: str) -> None:
    """Write an input's elements as words. Raises ExecutionError for an integer that does not fit 32 bits."""
    number = wide_number(tensor)
    if number is not None:
        raise ExecutionError(f"{where} has the number {number}: the device computes in 32 bits", where=WHERE)
    array = tensor.numpy().reshape(-1)
    if declared.datatype.is_float:
        with np.errstate(over="ignore"):
            if declared.datatype.torch is torch.float16:
                array = array.astype(np.float16)
            target.view(np.float32)[:] = array
    else:
        target.view(np.int32)[:] = array


def from_device(words: np.ndarray[Any, Any], declared: Tensor, output: torch.Tensor) -> None:
    """Write an output's elements; `output` has the result's size."""
    source = words.view(np.float32 if declared.datatype.is_float else np.int32)
    result = torch.from_numpy(source).reshape(output.shape)
    output.copy_(result != 0 if output.dtype is torch.bool else result)
