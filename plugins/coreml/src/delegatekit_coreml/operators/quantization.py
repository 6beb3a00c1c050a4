"""Quantized values: integers with scales between a quantize and a dequantize, and constants that are integers.

Core ML joins a dequantize, an operator and a quantize to one on integers where the device has it. Constants stay
integers in the file, and are unpacked by the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from delegatekit_api import Call, Operand
from delegatekit_api.nodes import operator_name
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, numbers
from ..ir.types import DataType
from ..targets import IOS16, IOS17, IOS18, Target
from .program import Lower, ProgramBuilder

if TYPE_CHECKING:
    from torch.fx import Node

_RANGES: Final = {"int8": (-128, 127), "uint8": (0, 255)}
_FOUR_BITS: Final = (-8, 7)
#: Between the least and the largest integer of 4 bits, if the range is symmetric.
_LEAST_STEPS: Final = 14
#: Smaller scales would lose digits in float16.
_LEAST_SCALE: Final = 2.0**-16


# -- constants ---------------------------------------------------------------------------------------------------------


def _dequantize(b: ProgramBuilder, call: Call) -> Var:
    source = call["input"]
    if source.is_constant:
        return b.packed(source, ("quantized", call.node), lambda data: _constant(b, call, data))
    quantization = call.quantization
    assert quantization is not None
    more = _zero_point(quantization.zero_point, source.dtype_name)
    datatype = b.result_type(call)
    scale = b.number(float(quantization.scale), datatype)
    return b.call("dequantize", input=b.value(source), scale=scale, **more)


def _constant(b: ProgramBuilder, call: Call, integers: torch.Tensor) -> Var:
    """Integers that the device unpacks."""
    quantization = call.quantization
    assert quantization is not None
    datatype = b.result_type(call)
    b.release(call)
    scale, zero = (torch.as_tensor(item).detach() for item in (quantization.scale, quantization.zero_point))
    narrow = DataType.INT4 if b.target >= IOS18 and _is_narrow(call) else None
    data = b.stored(np.ascontiguousarray(integers.numpy()), narrow)
    if b.target < IOS18:
        return b.call(
            "constexpr_affine_dequantize",
            quantized_data=data,
            zero_point=_array(zero, data.dtype),
            scale=_array(scale, _numpy(datatype)),
            axis=numbers([quantization.axis or 0])[0],
        )
    shapes = _block_shape(call)
    arguments: dict[str, Any] = {
        "data": data,
        "scale": b.stored(_array(scale.reshape(shapes), _numpy(datatype))),
    }
    if not quantization.is_symmetric:
        arguments["offset"] = b.stored(_array(zero.reshape(shapes), integers.numpy().dtype), narrow)
    return b.call("constexpr_blockwise_shift_scale", **arguments)


def _block_shape(call: Call) -> tuple[int, ...]:
    """The sizes of a scale: one along axes on which all elements share one."""
    quantization = call.quantization
    assert quantization is not None
    shape = call["input"].shape
    if quantization.group is not None:
        return shape[0], shape[1] // quantization.group
    return tuple(size if axis == quantization.axis else 1 for axis, size in enumerate(shape))


def unit_of(call: Call) -> tuple[Node, ...]:
    """The quantize to int8 and the dequantizes that read it, which stand or fall together; nothing for others."""
    if call["input"].is_constant or _numbers_of(call)[0].dtype_name != "int8":
        return ()
    maker = call.node if _quantizes(call) else call["input"].node
    return (maker, *maker.users)


def _is_narrow(call: Call) -> bool:
    quantization = call.quantization
    assert quantization is not None
    return _FOUR_BITS[0] <= quantization.minimum and quantization.maximum <= _FOUR_BITS[1]


def _array(values: torch.Tensor, dtype: Any) -> Any:
    array = values.numpy().astype(dtype)
    return array if array.ndim else array[()]


def _numpy(datatype: DataType) -> type[np.generic]:
    return np.float16 if datatype is DataType.FLOAT16 else np.float32


# -- values ------------------------------------------------------------------------------------------------------------


def _quantize(b: ProgramBuilder, call: Call) -> Var:
    quantization = call.quantization
    assert quantization is not None
    x = b.value(call["input"])
    name = call.result.dtype_name
    datatype = b.datatype(call["input"].dtype)
    return b.call(
        "quantize",
        input=x,
        scale=b.number(float(quantization.scale), datatype),
        output_dtype=name,
        **_zero_point(quantization.zero_point, name),
    )


def _zero_point(value: Any, name: str) -> dict[str, Any]:
    """Left out where it is 0."""
    if not value:
        return {}
    return {"zero_point": np.int8(value) if name == "int8" else np.uint8(value)}


# -- conditions --------------------------------------------------------------------------------------------------------


def _numbers_of(call: Call) -> tuple[Operand, Operand]:
    """Integers and numbers of a quantize or dequantize."""
    return (call.result, call["input"]) if _quantizes(call) else (call["input"], call.result)


def _quantizes(call: Call) -> bool:
    return ".quantize" in call.operator


def known_parameters(call: Call) -> str | None:
    """Scales and zero points are known; integers are int8 or uint8, numbers float32 or float16."""
    quantization = call.quantization
    if quantization is None:
        return "scales or zero points are computed, or in blocks of an unusual form"
    integers, real = _numbers_of(call)
    if integers.dtype_name not in _RANGES or real.dtype_name not in ("float32", "float16"):
        return f"{integers.dtype_name} and {real.dtype_name}: int8 or uint8, and float32 or float16 are taken"
    scale = torch.as_tensor(quantization.scale)
    if not scale.is_meta and float(scale.min()) < _LEAST_SCALE:
        return f"a scale of {float(scale.min()):.3g}: float16 has few digits of it"
    return None


def stored_widths(call: Call) -> str | None:
    """Integers of constants have 8 or 4 bits."""
    quantization = call.quantization
    if quantization is None or not call["input"].is_constant:
        return None
    steps = quantization.maximum - quantization.minimum
    if steps < _LEAST_STEPS:
        return f"constants of {quantization.minimum} to {quantization.maximum}: MIL stores 8 or 4 bits (see palettize)"
    return None


def whole_range(call: Call) -> str | None:
    """Values use the whole range of their type; one scale for all of them."""
    if call["input"].is_constant:
        return None
    quantization = call.quantization
    assert quantization is not None
    name = _numbers_of(call)[0].dtype_name
    if not quantization.is_per_tensor:
        return "several scales of a computed tensor"
    if (quantization.minimum, quantization.maximum) != _RANGES[name]:
        return f"{quantization.minimum} to {quantization.maximum}: MIL's {name} has the range {_RANGES[name]}"
    return None


def oldest_form(call: Call) -> Target:
    """The target from which on the form of quantization is there."""
    quantization = call.quantization
    if _quantizes(call) or not call["input"].is_constant:
        return IOS17
    narrow = quantization is not None and (quantization.group is not None or _is_narrow(call))
    return IOS18 if narrow else IOS16


def border_of_integers(call: Call) -> str | None:
    """int8 values stay inside: a quantize is read by dequantizes only, a dequantize reads a quantize or a constant."""
    if _numbers_of(call)[0].dtype_name != "int8":
        return None
    if _quantizes(call):
        users = tuple(call.node.users)
        inside = users and all(
            user.op == "call_function" and "dequantize_per_tensor" in operator_name(user) for user in users
        )
        return None if inside else "its int8 values leave the delegate, and ExecuTorch's runtime passes none"
    source = call["input"]
    if source.is_constant:
        return None
    maker = source.producer
    inside = maker is not None and _quantizes(maker) and border_of_integers(maker) is None
    return None if inside else "its int8 values come from outside, and ExecuTorch's runtime passes none"


_CONDITIONS: Final = (known_parameters, stored_widths, whole_range, border_of_integers)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "quantized_decomposed.quantize_per_tensor.default",
        _quantize,
        *_CONDITIONS,
        keep=True,
        passenger=True,
        since=oldest_form,
        integers=True,
    ),
    row(
        "quantized_decomposed.dequantize_per_tensor.default quantized_decomposed.dequantize_per_channel.default "
        "torchao.dequantize_affine.default",
        _dequantize,
        *_CONDITIONS,
        keep=True,
        passenger=True,
        since=oldest_form,
        integers=True,
    ),
)
