"""The inputs of a model: in which types and sizes the caller's tensors come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import sympy  # type: ignore[import-untyped]
import torch

from delegatekit_api import Operand, OptionError, ProgramView
from delegatekit_toolkit.expressions import is_fixed, sizes_of
from delegatekit_toolkit.sizes import largest, smallest
from delegatekit_toolkit.symbols import most
from delegatekit_toolkit.symbols import size_of as sampled

from ..ir.builder import Input
from ..ir.program import Feature, TensorType
from ..ir.types import MOST_AXES, DataType
from ..targets import IOS16, IOS18, TARGETS, Target

if TYPE_CHECKING:
    from torch.fx import Node

    from ..options import CoreMLOptions

#: The type of a value in MIL by its type in the program.
DEVICE: Final = {
    torch.float32: DataType.FLOAT32,
    torch.float16: DataType.FLOAT16,
    torch.int64: DataType.INT32,
    torch.int32: DataType.INT32,
    torch.bool: DataType.BOOL,
}


def outer_type(dtype: torch.dtype, target: Target) -> DataType:
    """The type in which an input or output crosses the border of the model: booleans are numbers there, and
    quantized ones wider integers. ExecuTorch's runtime takes no int8."""
    if dtype is torch.uint8:
        return DataType.INT32
    datatype = DEVICE[dtype]
    if datatype is DataType.BOOL or (datatype is DataType.FLOAT16 and target < IOS16):
        return DataType.FLOAT32
    return datatype


def interface(program: ProgramView, options: CoreMLOptions) -> dict[str, Input]:
    """The inputs of the model: what the delegate converts the caller's tensors to, in the caller's order.

    Raises OptionError for enumerated shapes that are not those of the inputs.
    """
    target = TARGETS[options.target]
    operands = {node.name: program.operand(node) for node in program.inputs}
    listed = _listed(options.enumerated_shapes)
    _check_listed(operands, listed, target)
    return {
        name: Input(_feature(operand, outer_type(operand.dtype, target), listed), sizes_of(operand.shape) or (1,))
        for name, operand in operands.items()
    }


def check_enumerated(options: CoreMLOptions, programs: Iterable[ProgramView]) -> None:
    """Raise OptionError if there are enumerated shapes, and no input of any delegate has sizes that change."""
    inputs = [view.operand(node) for view in programs for node in view.inputs]
    if options.enumerated_shapes and inputs and not any(operand.is_dynamic for operand in inputs):
        raise _wrong("are given, but no input of a delegate has sizes that change")


def states(program: ProgramView) -> dict[str, TensorType]:
    """The buffers that the delegate keeps."""
    return {node.name: TensorType(DataType.FLOAT16, program.operand(node).shape) for node in program.buffers}


def state_fault(program: ProgramView, buffer: Node, options: CoreMLOptions) -> str | None:
    """The reason why a buffer cannot be a state of Core ML; None if it can."""
    state, target = program.buffers[buffer], TARGETS[options.target]
    initial = state.initial
    if not options.state:
        return "the option state is off"
    if target < IOS18:
        return f"states need {IOS18.name}: the target is {target.name}"
    is_half = initial.dtype is torch.float16 or (initial.dtype is torch.float32 and options.precision == "float16")
    if not is_half:
        found = str(initial.dtype).removeprefix("torch.")
        return f"it is {found} with precision={options.precision}: states are float16"
    if not 1 <= initial.dim() <= MOST_AXES or not initial.numel():
        return f"it has the shape {tuple(initial.shape)}: states have 1 to {MOST_AXES} axes, and elements"
    if bool(initial.count_nonzero()):
        return "it does not begin with zeros, as the device's states do"
    if state.updated in program.buffers:
        return "its new value is what another buffer was"
    return None


def _feature(operand: Operand, datatype: DataType, listed: Mapping[str, Sequence[tuple[int, ...]]]) -> Feature:
    if not operand.is_dynamic:
        return Feature(datatype, tuple(operand.shape) or (1,))
    shapes = tuple(listed.get(operand.name, ()))
    if shapes:
        return Feature(datatype, shapes[0], shapes=shapes)
    # The usual sizes of all inputs are those of one call, the largest.
    usual = tuple(largest(sampled(size)) for size in operand.shape)
    return Feature(datatype, usual, tuple(map(_range, operand.shape)))


def _range(size: int | torch.SymInt) -> tuple[int, int]:
    """The least and the largest of a size. Raises LoweringError for one without an upper bound."""
    if isinstance(size, int):
        return size, size
    found = sampled(size)
    high = max(most(size) or 0, largest(found))
    # Only where a size grows with its symbols, it is the least where they are.
    grows = all(sympy.diff(size.node.expr, symbol).is_positive for symbol in size.node.expr.free_symbols)
    return max(smallest(found), 1) if grows else 1, high


# -- enumerated shapes -------------------------------------------------------------------------------------------------


def _listed(items: Sequence[str]) -> dict[str, list[tuple[int, ...]]]:
    """The shapes of each input, in their order."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for item in items:
        name, _, shape = item.partition(":")
        found.setdefault(name, []).append(tuple(map(int, shape.split("x"))))
    return found


def _check_listed(
    operands: Mapping[str, Operand], listed: Mapping[str, Sequence[tuple[int, ...]]], target: Target
) -> None:
    if not listed or not any(operand.is_dynamic for operand in operands.values()):
        return
    unknown = next((name for name in listed if name not in operands), None)
    if unknown is not None:
        raise _wrong(f"names {unknown}: the inputs of the delegate are {', '.join(operands)}")
    missing = next((name for name, item in operands.items() if item.is_dynamic and name not in listed), None)
    if missing is not None:
        raise _wrong(
            f"does not say which sizes {missing} {operands[missing].shape} has, which change from call to call"
        )
    if len(listed) > 1 and target < IOS18:
        raise _wrong(f"names several inputs: that needs {IOS18.name}, the target is {target.name}")
    calls = list(zip(*listed.values(), strict=False))
    if any(len(shapes) != len(calls) for shapes in listed.values()) or len(set(calls)) != len(calls) or len(calls) < 2:
        raise _wrong("must have at least two shapes of each input, as many of one as of another, and none twice")
    for call in calls:
        given = [(operands[name], shape) for name, shape in zip(listed, call, strict=True)]
        for operand, shape in given:
            _check_shape(operand, shape)
        _check_agreement(given)


def _check_shape(operand: Operand, shape: tuple[int, ...]) -> None:
    """Raise OptionError unless the sizes are within the bounds."""
    fits = len(shape) == operand.rank and all(
        low <= given <= high for given, (low, high) in zip(shape, map(_range, operand.shape), strict=False)
    )
    if not fits or not operand.is_dynamic:
        raise _wrong(f"says {shape} of {operand.name}, which has the shape {operand.shape}{_bounds(operand)}")


def _check_agreement(call: Sequence[tuple[Operand, tuple[int, ...]]]) -> None:
    """Raise OptionError unless all sizes of a call are those of the same symbols."""
    sizes = [
        (operand, shape, size, given)
        for operand, shape in call
        for size, given in zip(sizes_of(operand.shape), shape, strict=True)
        if not isinstance(size, int)
    ]
    known: dict[sympy.Symbol, int] = {}
    for *_, size, given in sizes:
        known = _solved(size, given) | known
    for operand, shape, size, given in sizes:
        found = size.subs(known)
        if found != given and (found.is_number or _is_solvable(size)):
            raise _wrong(f"says {shape} of {operand.name} {operand.shape}: its size {size} is not {given} there")


def _solved(size: sympy.Expr, given: int) -> dict[sympy.Symbol, int]:
    """The value of the symbol of a size, given the size, if that follows from it."""
    solutions = sympy.solve(size - given, *size.free_symbols) if _is_solvable(size) else ()
    return {symbol: int(item) for symbol in size.free_symbols for item in solutions if item.is_Integer}


def _is_solvable(size: sympy.Expr) -> bool:
    """True if its one symbol follows from a size: half of a symbol, rounded, does not say whether it is odd."""
    return len(size.free_symbols) == 1 and bool(size.is_polynomial())


def _bounds(operand: Operand) -> str:
    changing = [
        f"{size} from {low} to {high}" for size in operand.shape if not is_fixed(size) for low, high in (_range(size),)
    ]
    return f", with {', '.join(changing)}" if changing else ""


def _wrong(what: str) -> OptionError:
    return OptionError(
        f"enumerated_shapes {what}",
        where="option of backend coreml",
        hint="name all inputs whose sizes change, with all shapes that calls may have: x:1x3x224x224,x:1x3x448x448",
    )
