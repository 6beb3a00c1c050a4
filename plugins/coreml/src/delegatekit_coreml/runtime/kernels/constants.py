"""Quantized values, and constants that are unpacked at load: integers with scales, tables, sparse numbers.

Formulas: MIL's reference (iOS 16 to 18).
"""

from __future__ import annotations

import math
from typing import Final

import torch

from ...blob.weights import unpacked
from ...ir.types import DataType
from ..kernel import Ints, Kernel, Tensor, kernel

# -- while a program runs ----------------------------------------------------------------------------------------------


def _along(parameter: Tensor, rank: int, axis: int | None) -> Tensor:
    """A scale or zero point for each element along an axis, or for all."""
    parameter = parameter.to(torch.float32)
    if parameter.dim() == 0:
        return parameter
    if axis is None:
        raise ValueError("scales without an axis")
    return parameter.reshape([-1 if at == axis % rank else 1 for at in range(rank)])


def _quantize(
    input: Tensor, scale: Tensor, output_dtype: str, zero_point: Tensor | None = None, axis: int | None = None
) -> Tensor:
    low, high, dtype = {"int8": (-128, 127, torch.int8), "uint8": (0, 255, torch.uint8)}[output_dtype]
    steps = torch.round(input / _along(scale, input.dim(), axis))
    if zero_point is not None:
        steps = steps + _along(zero_point, input.dim(), axis)
    return torch.clamp(steps, low, high).to(dtype)


def _dequantize(input: Tensor, scale: Tensor, zero_point: Tensor | None = None, axis: int | None = None) -> Tensor:
    steps = input.to(torch.float32)
    if zero_point is not None:
        steps = steps - _along(zero_point, input.dim(), axis)
    return steps * _along(scale, input.dim(), axis)


# -- when it is loaded -------------------------------------------------------------------------------------------------


def _affine(quantized_data: Tensor, zero_point: Tensor, scale: Tensor, axis: int) -> Tensor:
    rank = quantized_data.dim()
    steps = quantized_data.to(torch.float32) - _along(zero_point, rank, axis)
    return steps * _along(scale, rank, axis)


def _repeated(parameter: Tensor, shape: torch.Size) -> Tensor:
    """A parameter for each block, repeated for each element."""
    if parameter.dim() != len(shape):
        raise ValueError(f"parameters {tuple(parameter.shape)} of blocks of {tuple(shape)}")
    for axis, size in enumerate(shape):
        blocks = parameter.shape[axis]
        if not blocks or size % blocks:
            raise ValueError(f"{blocks} blocks of {size}")
        if blocks not in (1, size):
            parameter = parameter.repeat_interleave(size // blocks, axis)
    return parameter.to(torch.float32)


def _blockwise(data: Tensor, scale: Tensor, offset: Tensor | None = None) -> Tensor:
    steps = data.to(torch.float32)
    if offset is not None:
        steps = steps - _repeated(offset, data.shape)
    return steps * _repeated(scale, data.shape)


def _table(indices: Tensor, lut: Tensor, shape: Ints | None = None, vector_axis: int | None = None) -> Tensor:
    if shape is not None:
        return _stream_table(indices, lut, shape)
    groups, entries, vector = lut.shape[:-2], lut.shape[-2], lut.shape[-1]
    if vector != 1:
        raise ValueError("tables of vectors are not supported")
    wide, group = indices.long(), torch.zeros_like(indices, dtype=torch.int64)
    if len(groups) != indices.dim() or int(wide.max()) >= entries:
        raise ValueError(f"a table {tuple(lut.shape)} for {tuple(indices.shape)}")
    for axis, count in enumerate(groups):
        if not count or indices.shape[axis] % count:
            raise ValueError(f"{count} groups of {indices.shape[axis]}")
        place = torch.arange(indices.shape[axis]) // (indices.shape[axis] // count)
        group = group * count + place.reshape([-1 if at == axis else 1 for at in range(indices.dim())])
    return lut.reshape(-1, entries)[group, wide]


def _stream_table(indices: Tensor, lut: Tensor, shape: Ints) -> Tensor:
    """The form before iOS 18: a stream of bits, and the unpacked shape."""
    bits = {2: DataType.UINT1, 4: DataType.UINT2, 16: DataType.UINT4, 64: DataType.UINT6, 256: DataType.UINT8}
    kind = bits[lut.numel()]
    stream = _bytes(indices)
    if len(stream) != -(-math.prod(shape) * kind.bits // 8):
        raise ValueError(f"{len(stream)} bytes of indices for {shape}")
    return lut.reshape(-1)[unpacked(stream, kind, shape).long()]


def _bytes(stream: Tensor) -> memoryview:
    return memoryview(stream.numpy().tobytes())


def _sparse(nonzero_data: Tensor, mask: Tensor, shape: Ints | None = None) -> Tensor:
    if shape is not None:
        stream = _bytes(mask)
        if len(stream) != -(-math.prod(shape) // 8):
            raise ValueError(f"{len(stream)} bytes of mask for {shape}")
        mask = unpacked(stream, DataType.UINT1, shape)
    places = mask.bool()
    count = int(places.sum())
    if count > nonzero_data.numel():
        raise ValueError(f"{nonzero_data.numel()} numbers for {count} places")
    result = torch.zeros(places.shape, dtype=nonzero_data.dtype)
    result[places] = nonzero_data.reshape(-1)[:count]
    return result


KERNELS: Final[dict[str, Kernel]] = {
    "quantize": kernel(_quantize),
    "dequantize": kernel(_dequantize),
    "constexpr_affine_dequantize": kernel(_affine, once=True),
    "constexpr_blockwise_shift_scale": kernel(_blockwise, once=True),
    "constexpr_lut_to_dense": kernel(_table, once=True),
    "constexpr_sparse_to_dense": kernel(_sparse, once=True),
}
