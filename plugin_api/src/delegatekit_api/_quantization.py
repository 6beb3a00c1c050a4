"""Reading quantized programs: the static quantize and dequantize operators of a graph, as plain data.

A quantized program has its numbers as integers between a quantize and a dequantize, and its weights as constants that
a dequantize reads. torchao spells that in several ways; all of them are read here, so that no backend has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import torch

#: The operator that makes integers of numbers, with parameters known at lowering time.
QUANTIZE: Final = frozenset({"quantized_decomposed.quantize_per_tensor.default"})
#: The dequantize operators: the core leaves those that a backend keeps before constants.
DEQUANTIZE: Final = frozenset(
    {
        "quantized_decomposed.dequantize_per_tensor.default",
        "quantized_decomposed.dequantize_per_channel.default",
        "torchao.dequantize_affine.default",
    }
)
#: The operator that looks the numbers of a weight up in tables: torchao's codebooks. Since API version 2.5.
DEQUANTIZE_TABLES: Final = "quant.dequantize_codebook.default"
#: The operators of quantization whose parameters are computed while the program runs.
DYNAMIC: Final = frozenset({"torchao.choose_qparams_affine.default", "torchao.quantize_affine.default"})


class _Call(Protocol):
    """The interface of a `Call`, which is defined on top of this module."""

    @property
    def operator(self) -> str: ...

    def __getitem__(self, name: str) -> Any: ...


@dataclass(frozen=True, eq=False)
class Quantization:
    """The parameters of integers that stand for numbers: real = scale * (integer - zero_point).

    `scale` and `zero_point` are numbers for a whole tensor, or tensors: of shape (n,) for one pair for each index along
    `axis`; of shape (rows, columns / group) for one pair for each `group` neighbors along the last axis of a matrix.
    """

    dtype: torch.dtype
    #: The range that the integers are kept in, both ends included.
    minimum: int
    maximum: int
    scale: float | torch.Tensor
    zero_point: int | torch.Tensor
    axis: int | None = None
    group: int | None = None

    def __eq__(self, other: object) -> bool:
        """True if the same integers stand for the same numbers."""
        if not isinstance(other, Quantization):
            return NotImplemented
        plain = ("dtype", "minimum", "maximum", "axis", "group")
        return all(getattr(self, name) == getattr(other, name) for name in plain) and all(
            _same(getattr(self, name), getattr(other, name)) for name in ("scale", "zero_point")
        )

    def __hash__(self) -> int:
        return hash((self.dtype, self.minimum, self.maximum, self.axis, self.group))

    @property
    def is_per_tensor(self) -> bool:
        """True if one scale and one zero point hold for all elements."""
        return self.axis is None and self.group is None

    @property
    def is_symmetric(self) -> bool:
        """True if the integer 0 stands for 0 everywhere."""
        zero_point: Any = self.zero_point
        return zero_point == 0 if isinstance(zero_point, int) else not bool(zero_point.any())


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, int | float) or isinstance(right, int | float):
        return isinstance(left, int | float) and isinstance(right, int | float) and left == right
    return left is right or (left.shape == right.shape and bool((left == right).all()))


def read_quantization(call: _Call) -> Quantization | None:
    """The parameters of a static quantize or dequantize; None for other calls and for computed parameters."""
    name = call.operator
    if name.startswith("quantized_decomposed.") and name.endswith("quantize_per_tensor.default"):
        return Quantization(*_bounds(call, "dtype"), call["scale"], call["zero_point"])
    if name == "quantized_decomposed.dequantize_per_channel.default":
        scales = call["scales"].constant
        if scales is None:
            return None
        zeros = _zero_points(call["zero_points"], scales)
        if zeros is None:
            return None
        return Quantization(*_bounds(call, "dtype"), scales.detach(), zeros, axis=call["axis"])
    if name == "torchao.dequantize_affine.default":
        return _affine(call)
    return None


def _bounds(call: _Call, dtype: str) -> tuple[torch.dtype, Any, Any]:
    """The integers' type and the range that they are kept in; `dtype` is the name of its argument."""
    return call[dtype], call["quant_min"], call["quant_max"]


def _affine(call: _Call) -> Quantization | None:
    scales = call["scale"].constant
    if scales is None:
        return None
    zeros = _zero_points(call["zero_point"], scales)
    shape = call["input"].shape
    block: Sequence[int] = call["block_size"]
    dtype, low, high = _bounds(call, "input_dtype")
    if zeros is None or low is None or high is None:
        return None
    bounds = dtype, int(low), int(high)
    if block == shape:
        return Quantization(*bounds, float(scales), int(zeros)) if scales.numel() == 1 else None
    single = [axis for axis, size in enumerate(block) if size == 1 != shape[axis]]
    whole = all(size in (1, full) for size, full in zip(block, shape, strict=True))
    if whole and len(single) == 1:
        return Quantization(*bounds, scales.detach().reshape(-1), zeros.reshape(-1), axis=single[0])
    if len(shape) == 2 and block[0] == 1:
        rows = shape[0], shape[1] // block[1]
        return Quantization(*bounds, scales.detach().reshape(rows), zeros.reshape(rows), group=block[1])
    return None


def _zero_points(given: Any, scales: torch.Tensor) -> torch.Tensor | None:
    """The zero points, zeros if there are none; None if they are computed."""
    if given is None:
        return scales.detach().new_zeros(scales.shape).int()
    found = given.constant
    return None if found is None else found.detach()
