"""Compositions in a backend's support table: lowering functions made of them, and the rows of elementwise operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from delegatekit_api import Call, Operand

from ..constraints import dtypes, no_nan, same_dtypes, types_of
from ..narrowing import fits_elements, narrow_product, narrowed, numbers_fit
from ..support import Constraint, Row, row
from . import activations, along, angles, arithmetic, functions, number
from .activations import rising_softplus
from .along import enough_elements
from .arithmetic import COMPARISONS, exact_division
from .number import Dialect, Number

#: Arguments that may be sizes which change from call to call.
_OTHER: Final = ("other",)
_TWO: Final = "self other"

#: Functions of one number, each under its own name an operator.
FUNCTIONS: Final[tuple[Callable[[Number[Any]], Number[Any]], ...]] = (
    *(number.exp, number.log, number.sqrt, number.rsqrt, number.reciprocal, number.sin, number.cos),
    *(angles.tan, angles.acos, angles.asin, angles.atan),
    *(functions.exp2, functions.expm1, functions.log1p, functions.log2, functions.log10),
    *(functions.sinh, functions.cosh, functions.tanh, functions.asinh, functions.acosh, functions.atanh),
    *(functions.sigmoid, functions.erf),
)


def lowering(
    make: Callable[..., Any],
    operands: str = "self",
    arguments: str = "",
    *,
    argument: Callable[[Any, Call, str], Number[Any] | float | None],
    copied: Callable[[Any, Any], Any],
) -> Callable[[Any, Call], Any]:
    """A lowering function: a composition of operands, then arguments as they are; both named with spaces between.

    `argument` gives an operand of a call as the composition takes it, `copied` a value that is one of the operands as a
    value of its own. The function returns a value, or a tuple of them.
    """

    def lower(b: Any, call: Call) -> Any:
        numbers = [argument(b, call, name) for name in operands.split()]
        given = [item.value for item in numbers if isinstance(item, Number)]

        def finished(made: Number[Any]) -> Any:
            return copied(b, made.value) if any(made.value is item for item in given) else made.value

        made = make(*numbers, *(call[name] for name in arguments.split()))
        return tuple(map(finished, made)) if isinstance(made, tuple) else finished(made)

    return lower


def arguments(
    dialect: Dialect[Any], cast: Callable[[Any, Any, Call], Any], size: Callable[[Any, Any, Call], Any]
) -> Callable[..., Number[Any] | float | None]:
    """The `argument` of `lowering`: an operand in the result's type where that is a floating-point type, a number as it
    is, None where an argument is left out, and a size that changes as a value.

    `cast(b, value, call)` gives a value in the type of the call's result, `size(b, size, call)` a torch.SymInt as a
    value: in the result's type if that is a floating-point type, else in that of the call's `self`.
    """

    def argument(b: Any, call: Call, name: str = "self") -> Number[Any] | float | None:
        item = call[name]
        if isinstance(item, Operand):
            value = b.value(item)
            converted = call.results[0].dtype.is_floating_point and name != "condition"
            return dialect.number(b, cast(b, value, call) if converted else value)
        return item if item is None or isinstance(item, int | float) else dialect.number(b, size(b, item, call))

    return argument


def elementwise_rows(
    composed: Callable[..., Any],
    any_type: Constraint,
    numbers: Constraint,
    *,
    lost_nan: str | Callable[[Call], str] = "",
    quotients: str = "",
    narrow: bool = True,
    bits: Constraint | None = None,
) -> tuple[Row[Any], ...]:
    """The rows of arithmetic, comparisons, logic and choices.

    `composed` makes a lowering function of a composition, as `lowering`; `any_type` and `numbers` are the constraints
    on types of operators that take booleans, and of those that do not. The fact `sizes` of a row names arguments that
    may be sizes which change. `lost_nan` says what becomes of NaN in maxima and minima, `quotients` of extreme numbers
    in divisions. A device that is not `narrow` computes integers in all their bits, others in 32. `bits` are the types
    whose bits the target joins by primitives of its own; without, booleans alone.
    """
    fits = numbers_fit if narrow else fits_elements
    fitting = (fits, no_nan())
    product = (narrow_product,) if narrow else ()
    told: dict[str, Any] = {"special_values": narrowed if narrow else ""}
    division = (numbers, *fitting, exact_division())
    bools, whole = dtypes("bool"), dtypes("int32", "int64", "bool")
    sums: dict[str, Any] = {**told, "sizes": _OTHER}
    divided: dict[str, Any] = {"special_values": quotients, "sizes": _OTHER}
    return (
        row("add.Tensor add.Scalar", composed(arithmetic.add, _TWO, "alpha"), any_type, *fitting, **sums),
        row("sub.Tensor sub.Scalar", composed(arithmetic.sub, _TWO, "alpha"), numbers, *fitting, **sums),
        row("rsub.Scalar", composed(arithmetic.rsub, _TWO, "alpha"), numbers, *fitting, **told),
        row("mul.Tensor mul.Scalar", composed(arithmetic.mul, _TWO), any_type, *fitting, *product, **sums),
        row("div.Tensor div.Scalar", composed(arithmetic.div, _TWO), any_type, *fitting, **divided),
        row("div.Tensor_mode div.Scalar_mode", composed(arithmetic.div, _TWO, "rounding_mode"), *division),
        row("remainder.Tensor remainder.Scalar", composed(arithmetic.remainder, _TWO), *division),
        row("fmod.Tensor fmod.Scalar", composed(arithmetic.fmod, _TWO), *division),
        row("maximum.default", composed(number.maximum, _TWO), any_type, special_values=lost_nan),
        row("minimum.default", composed(number.minimum, _TWO), any_type, special_values=lost_nan),
        row("clamp.Tensor", composed(number.between, "self min max"), numbers, special_values=lost_nan),
        *(
            row(f"{name}.Tensor {name}.Scalar", composed(make, _TWO), any_type, *fitting)
            for name, make in COMPARISONS.items()
        ),
        row("logical_and.default", composed(arithmetic.logical_and, _TWO), any_type),
        row("logical_or.default", composed(arithmetic.logical_or, _TWO), any_type),
        row("logical_xor.default", composed(arithmetic.logical_xor, _TWO), any_type),
        *(
            row(f"{name}.Tensor {name}.Scalar", composed(make, _TWO), bits or bools, same_dtypes(), fits)
            for name, make in arithmetic.BITS.items()
        ),
        row("logical_not.default", composed(arithmetic.logical_not), any_type),
        row("bitwise_not.default", composed(arithmetic.bitwise_not), whole),
        row("where.self", composed(number.where, "condition self other"), any_type),
    )


def function_rows(
    composed: Callable[..., Any],
    any_type: Constraint,
    numbers: Constraint,
    real: Constraint,
    *,
    floats: tuple[str, ...],
    special_values: str | Callable[[Call], str] = "",
) -> tuple[Row[Any], ...]:
    """The rows of functions, powers and activations of which devices that compute in floats differ in the types alone.

    The constraints and `composed` are as those of `elementwise_rows`, `real` is that of operators for floating-point
    numbers, whose types are `floats`. `special_values` says what becomes of NaN and of extreme numbers in functions.
    """
    told: dict[str, Any] = {"special_values": special_values}
    classified = types_of("self", *floats)
    softplus = composed(activations.softplus, arguments="beta threshold")
    return (
        *(row(f"{make.__name__}.default", composed(make), any_type, **told) for make in FUNCTIONS),
        row("abs.default", composed(abs), numbers),
        row("neg.default", composed(operator.neg), numbers),
        row("ceil.default", composed(number.ceil), real),
        row("floor.default", composed(number.floor), real),
        row("round.default", composed(number.round_), real),
        row("trunc.default", composed(number.trunc), real),
        row("erfc.default", composed(functions.erfc), real, **told),
        row("pow.Tensor_Tensor pow.Scalar", composed(functions.pow_, "self exponent"), real, **told),
        row("hypot.default", composed(functions.hypot, _TWO), real, keep=True, **told),
        row("atan2.default", composed(angles.atan2, _TWO), real, **told),
        row("isnan.default", composed(number.isnan), classified),
        row("isinf.default", composed(number.isinf), classified),
        row("copysign.Tensor copysign.Scalar", composed(arithmetic.copysign, _TWO), real),
        row("silu.default", composed(activations.silu), real, keep=True, **told),
        row("mish.default", composed(activations.mish), real, keep=True, **told),
        row("softplus.default", softplus, real, rising_softplus, keep=True, **told),
        row("hardshrink.default", composed(activations.hardshrink, arguments="lambd"), real, numbers_fit, keep=True),
    )


def variance_rows(composed: Callable[..., Any], real: Constraint, *, static_only: bool = False) -> tuple[Row[Any], ...]:
    """The rows of variances and standard deviations along axes; `static_only` if sizes must not change."""
    taken = "dim correction keepdim"
    more: dict[str, Any] = {"static_only": static_only}
    return (
        row("var.correction", composed(along.var, arguments=taken), real, enough_elements, **more),
        row("std.correction", composed(along.std, arguments=taken), real, enough_elements, keep=True, **more),
        row("var_mean.correction", composed(along.var_mean, arguments=taken), real, enough_elements, keep=True, **more),
    )
