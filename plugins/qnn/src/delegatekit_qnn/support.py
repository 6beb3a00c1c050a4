"""The backend's support table: the rows of all operator families, the conditions of every operator, the partitioner.

If the vendor's library is installed, it decides; a row that it refuses is a fault of the row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from delegatekit_api import Call, LoweringError, Operand, Verdict
from delegatekit_api.schemes import Quantization
from delegatekit_toolkit.constraints import elements, max_rank, static_sizes
from delegatekit_toolkit.fewer_axes import FewerAxes
from delegatekit_toolkit.narrowing import narrow_constants
from delegatekit_toolkit.support import SupportTable, TablePartitioner

from .blob.spec import options_of
from .compiler.process import Validator
from .ir.encodings import activation_fault, made_as
from .ir.types import MAX_RANK, OUTER
from .operators import (
    arranging,
    axes,
    convolution,
    elementwise,
    functions,
    indexing,
    linear,
    normalization,
    quantization,
    reduction,
    resizing,
    scattering,
    shape,
    sorting,
    spatial,
)
from .operators.alone import build_call
from .operators.program import Lower, has_fixed_form
from .options import QnnOptions
from .targets import CHIPS

#: For products of integers the library compares a number of axes with uninitialized memory, and refuses some.
_AT_RANDOM: Final = re.compile(r"has incorrect Value \d, expected < -?\d{6,}\.")
#: The maximum number of axes of integers and booleans.
_INTEGER_RANK: Final = 4


def device_types(call: Call) -> str | None:
    """Tensors are float32, int32, int64 (narrowed to 32 bits by the delegate) or bool; quantized integers are any."""
    integers = TABLE[call.operator].facts.get("integers")
    for item in call.tensors:
        if item.dtype not in OUTER and (item.dtype.is_floating_point or not integers):
            return f"{item.name} is {item.dtype_name}: float32, int32, int64 and bool are taken"
    return None


def integer_rank(call: Call) -> str | None:
    """Integers and booleans have at most 4 axes."""
    for item in call.tensors:
        if item.rank > _INTEGER_RANK and not item.dtype.is_floating_point and not _is_quantized_storage(item):
            return f"{item.name} is {item.dtype_name} with {item.rank} axes: {_INTEGER_RANK} are taken"
    return None


def _is_quantized_storage(item: Operand) -> bool:
    return item.dtype not in OUTER


def special_numbers(call: Call) -> str:
    """Floats are float16 without NaN, infinity and signed zeros; integers have 32 bits and saturate.

    An input that these cannot hold is refused when the program runs.
    """
    if any(item.dtype.is_floating_point for item in call.tensors):
        return "the processor computes in float16, has no NaN, no infinity (a large number stands for it), one zero"
    return "the processor's integers have 32 bits, and saturate; inputs beyond them are refused"


TABLE: Final[SupportTable[Lower]] = SupportTable(
    [
        *elementwise.ROWS,
        *functions.ROWS,
        *reduction.ROWS,
        *axes.ROWS,
        *sorting.ROWS,
        *shape.ROWS,
        *arranging.ROWS,
        *indexing.ROWS,
        *scattering.ROWS,
        *linear.ROWS,
        *normalization.ROWS,
        *convolution.ROWS,
        *spatial.ROWS,
        *resizing.ROWS,
        *quantization.ROWS,
    ],
    common=(device_types, static_sizes(), max_rank(MAX_RANK), integer_rank, elements(), narrow_constants),
    special_values=special_numbers,
)


def is_quantized(call: Call) -> bool:
    """True if a call is computed on integers: its operands and results, except constants, are integers."""
    row = TABLE.get(call.operator)
    if row is None or not has_fixed_form(row, call):
        return False
    read = [item for item in call.operands if item.dtype.is_floating_point and not item.is_known]
    made = [item for item in call.results if item.dtype.is_floating_point][:1]
    found = [*map(_read_as, read), *map(made_as, made)]
    return bool(read) and all(activation_fault(item) is None for item in found)


def _read_as(operand: Operand) -> Quantization | None:
    """The quantization of a call's operand: that of a dequantize, or of a call before a clamp."""
    if operand.integers is not None:
        return operand.quantization
    maker = operand.producer
    return made_as(operand) if maker is not None and is_quantized(maker) else None


#: Reasons for the absence of operators that one could expect in the table.
_NO_NAN: Final = "the processor has neither NaN nor infinity: they become numbers before anything can detect them"
_NO_BITS: Final = "the processor has no operations on the bits of integers"
_NO_SIGN: Final = "the processor does not distinguish signed zeros"
REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("aten.isnan.default", "aten.isinf.default"), _NO_NAN),
    **dict.fromkeys(("aten.signbit.default", "aten.copysign.Tensor", "aten.copysign.Scalar"), _NO_SIGN),
    **{
        f"aten.bitwise_{name}.{kind}": _NO_BITS
        for name in ("and", "or", "xor", "left_shift", "right_shift")
        for kind in ("Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor")
        if f"aten.bitwise_{name}.{kind}" not in TABLE
    },
}


#: Operators on more axes than the device has are written on fewer.
PASSES: Final = (FewerAxes(MAX_RANK),)


class QnnPartitioner(TablePartitioner):
    """The table, narrowed by the user's options and by the library. Raises OptionError for an unknown operator."""

    def __init__(self, options: QnnOptions) -> None:
        super().__init__(TABLE, leave_out=options.leave_out, backend="qnn")
        self._floats: Final = options.computes_floats
        self._chip: Final = CHIPS[options.soc]
        self._validator: Final = Validator(options_of(options, floats=self._floats)) if options.validate else None

    def check(self, call: Call) -> Verdict:
        """The table's verdict, the chip's types, and the library's answer."""
        verdict = super().check(call)
        if not verdict.supported:
            return Verdict.no(REFUSED[call.operator]) if call.operator in REFUSED else verdict
        facts = self.table[call.operator].facts
        if facts.get("integers"):
            return verdict
        reason = self._float_reason(call) or self._library_reason(call)
        return verdict if reason is None else Verdict.no(reason)

    def _float_reason(self, call: Call) -> str | None:
        """The reason for refusing a call that computes in floating point."""
        facts = self.table[call.operator].facts
        if self._floats or facts.get("moves") or is_quantized(call):
            return None
        if not any(item.dtype.is_floating_point for item in call.tensors):
            return None
        if not self._chip.has_floats:
            return f"computes in float32, and the {self._chip.name} computes on integers: quantize the model"
        return "computes in float32: quantize the model, or choose precision float16"

    def _library_reason(self, call: Call) -> str | None:
        if self._validator is None:
            return None
        try:
            graph = build_call(call, self.table)
        except LoweringError as error:
            return f"cannot be lowered: {error}"
        reason = self._validator.reason(graph) if graph.nodes else None
        return None if reason is not None and _AT_RANDOM.search(reason) else reason
