"""Replaces a partition by calls of the library: unit by unit, with conversions where floats begin and end."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call, LoweringError, PartitionProgram, TensorSpec
from delegatekit_api.operators import OperatorProgram, RuntimeTensor
from delegatekit_api.schemes import DEQUANTIZE, QUANTIZE
from delegatekit_toolkit.arguments import bounds_of
from delegatekit_toolkit.units import FUNCTION, REQUANTIZE, Unit, Units

from .ir.numbers import Scale
from .ir.program import ProgramBuilder
from .operators.functions import lower_function
from .options import CortexMOptions
from .support import RULES, TABLE
from .targets import extension_of

#: The number of int8 among the dtypes of the file.
_INT8: Final = 1


def replace_partition(partition: PartitionProgram, options: CortexMOptions) -> OperatorProgram:
    """The calls that compute a partition. Raises LoweringError for operators that the support table refuses."""
    view = partition.view
    b = ProgramBuilder(view, extension_of(options.target, options.extension))
    ends = {end.node: unit for unit in Units(view, RULES).units for end in unit.results}
    inside = {node for unit in ends.values() for node in unit.nodes}
    for call in view.calls():
        unit = ends.get(call.node)
        if unit is not None:
            b.begin(unit, call)
            b.define(call.node, _lowered(b, unit, call))
        elif call.operator in QUANTIZE | DEQUANTIZE:
            if call.node not in inside or call.node in view.outputs:
                b.begin(None, call)
                b.define(call.node, _converted(b, call))
        elif call.node not in inside:
            raise LoweringError("the backend has no lowering for this operator", where=call.description)
    outputs = [b.as_written(b.tensor(view.operand(node))) for node in view.outputs if node is not None]
    return b.calls.program(outputs)


def _lowered(b: ProgramBuilder, unit: Unit, end: Call) -> RuntimeTensor:
    """The integers of a unit's result that a quantize makes."""
    result = Scale.of(end.quantization, end.description)
    if unit.kind == FUNCTION:
        return lower_function(b, unit, result)
    if unit.kind == REQUANTIZE:
        return b.rescaled(b.integers(unit.anchor.result), b.scale(unit.anchor.result), result)
    if unit.clamp is not None:
        result = _bounded(unit.clamp, result)
    return TABLE[unit.kind].lower(b, unit.anchor, result)


def _bounded(clamp: Call, scale: Scale) -> Scale:
    """The scale with the range of a clamp: rounding keeps order. A lower bound above the upper one is the upper one."""
    low, high = bounds_of(clamp)
    most = scale.high if high is None else scale.integer(float(high))
    least = scale.low if low is None else scale.integer(float(low))
    return Scale(scale.scale, scale.zero_point, min(least, most), most)


def _converted(b: ProgramBuilder, call: Call) -> RuntimeTensor:
    """A quantize of floats, or a dequantize to them."""
    found = Scale.of(call.quantization, call.description)
    x = b.as_written(b.tensor(call["input"]))
    name, dtype = ("quantize", "int8") if call.operator in QUANTIZE else ("dequantize", "float32")
    arguments = (x, found.scale, found.zero_point, found.low, found.high, _INT8)
    return b.calls.call(f"cortex_m::{name}_per_tensor.out", *arguments, result=TensorSpec(dtype, x.spec.shape))
