"""Complex numbers as pairs of real ones: neither backends nor a .pte file have complex tensors.

A complex value is a node `aten.complex(real, imaginary)` only. Every operator on such nodes is rewritten
to their parts, so that in a program without complex inputs and outputs these nodes end up unused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..arguments import nodes_in, substitute
from ..builder import EdgeBuilder, Rule, Value
from ..draft import Draft
from ..pairs import is_pair, real_dtype
from ..sizes import same_shape
from .table import Family
from .writing import convert, pair, parts

aten = torch.ops.aten

COMPLEX_NUMBERS: Final = Family("complex_numbers")


# -- both parts alike ------------------------------------------------------------------------------------------------

#: Operators that move elements, or are linear in them: applied to a complex tensor, they apply to its parts.
_PARTWISE: Final = (
    "alias clone cat cumsum.default _unsafe_view constant_pad_nd contiguous detach detach_copy "
    "diagonal_copy expand expand_as expand_copy flatten.using_ints flip gather index.Tensor index_select "
    "lift_fresh_copy masked_select mean mean.dim movedim.intlist neg permute permute_copy pixel_shuffle repeat reshape "
    "resolve_conj resolve_neg roll select.int select_copy.int select_scatter slice.Tensor slice_copy.Tensor "
    "slice_scatter split.Tensor split_with_sizes squeeze squeeze.dim squeeze.dims squeeze_copy.dims stack "
    "sum sum.dim_IntList t transpose.int tril triu unbind.int unflatten.int unfold unfold_copy unsqueeze "
    "unsqueeze_copy view view_as view_copy"
)


def _operators(names: str) -> list[OpOverload]:
    found = []
    for name in names.split():
        packet, _, overload = name.partition(".")
        found.append(getattr(getattr(aten, packet), overload or "default"))
    return found


@COMPLEX_NUMBERS.rule(*_operators(_PARTWISE))
def _partwise(b: EdgeBuilder, call: Draft) -> Value:
    operands = [node for node in nodes_in((call.args, call.kwargs)) if isinstance(node.meta["val"], torch.Tensor)]
    kinds = {node: parts(b, node) for node in operands if is_pair(node) or _is_term(call.target)}
    kwargs = {name: item for name, item in call.kwargs.items() if not isinstance(item, torch.dtype)}
    value = _real_value(b, call.value)
    results = []
    for number in range(2):
        args, named = substitute((call.args, kwargs), {n: kinds[n][number] if n in kinds else n for n in operands})
        if number and call.target is aten.constant_pad_nd.default:
            args = (*args[:2], 0)  # the padding value is real
        results.append(b.translate(call.target, args, named, value))
    if isinstance(results[0], tuple | list):
        return tuple(pair(b, real, imaginary) for real, imaginary in zip(*results, strict=True))
    return pair(b, *results)


def _is_term(target: OpOverload) -> bool:
    """True if a real operand counts as a complex one."""
    return target in (aten.cat.default, aten.stack.default)


def _real_value(b: EdgeBuilder, value: Any) -> Any:
    """The fake value of a part of a result."""
    if isinstance(value, tuple | list):
        return type(value)(_real_value(b, item) for item in value)
    return None if value is None else b.fake(tuple(value.shape), real_dtype(value.dtype))


# -- parts and wholes ------------------------------------------------------------------------------------------------


@COMPLEX_NUMBERS.rule(aten.complex.default)
def _complex(b: EdgeBuilder, call: Draft) -> Value:
    shape = list(call.value.shape)
    return pair(b, *(b.call(aten.expand.default, item, shape) for item in call["real", "imag"]))


@COMPLEX_NUMBERS.rule(aten.polar.default)
def _polar(b: EdgeBuilder, call: Draft) -> Value:
    length, angle = call["abs", "angle"]
    return pair(
        b, *(b.call(aten.mul.Tensor, length, b.call(form, angle)) for form in (aten.cos.default, aten.sin.default))
    )


@COMPLEX_NUMBERS.rule(aten.view_as_complex.default, aten.view_as_complex_copy.default)
def _view_as_complex(b: EdgeBuilder, call: Draft) -> Value:
    return pair(b, *(b.call(aten.select.int, call["self"], -1, number) for number in range(2)))


@COMPLEX_NUMBERS.rule(aten.view_as_real.default, aten.view_as_real_copy.default)
def _view_as_real(b: EdgeBuilder, call: Draft) -> Value:
    return b.call(aten.stack.default, list(parts(b, call["self"])), -1)


@COMPLEX_NUMBERS.rule(aten.real.default)
def _real(b: EdgeBuilder, call: Draft) -> Value:
    return parts(b, call["self"])[0]


@COMPLEX_NUMBERS.rule(aten.imag.default)
def _imaginary(b: EdgeBuilder, call: Draft) -> Value:
    return parts(b, call["self"])[1]


@COMPLEX_NUMBERS.rule(aten._conj.default, aten.conj.default, aten._conj_physical.default, aten.conj_physical.default)
def _conjugate(b: EdgeBuilder, call: Draft) -> Value:
    real, imaginary = parts(b, call["self"])
    return pair(b, real, b.call(aten.neg.default, imaginary))


@COMPLEX_NUMBERS.rule(
    aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten.type_as.default
)
def _convert(b: EdgeBuilder, call: Draft) -> Value:
    dtype = call.value.dtype
    real, imaginary = parts(b, call["self"])
    if not dtype.is_complex:
        return convert(b, real, dtype)
    return pair(b, *(convert(b, item, real_dtype(dtype)) for item in (real, imaginary)))


@COMPLEX_NUMBERS.rule(
    *_operators("full full_like zeros zeros_like ones ones_like new_zeros new_ones new_full scalar_tensor")
)
def _filled(b: EdgeBuilder, call: Draft) -> Value:
    name, value = call.target._schema.name, call.value
    number = 1 if "ones" in name else 0 if "zeros" in name else call["s" if "scalar" in name else "fill_value"]
    if isinstance(number, Node) or not value.dtype.is_complex:
        return NotImplemented
    return pair(b, *(_full(b, value.shape, part, real_dtype(value.dtype)) for part in _number_parts(number)))


def _full(b: EdgeBuilder, shape: Any, number: float, dtype: torch.dtype) -> Node:
    return b.call(aten.full.default, list(shape), number, dtype=dtype)  # type: ignore[no-any-return]


def _number_parts(number: Any) -> tuple[float, float]:
    return complex(number).real, complex(number).imag


# -- arithmetic ------------------------------------------------------------------------------------------------------


def known_parts(b: EdgeBuilder, x: Any) -> tuple[Any, Any]:
    """Real and imaginary part of an operand, which may be a number; None for an absent imaginary part."""
    if not isinstance(x, Node):
        real, imaginary = _number_parts(x)
        return real, imaginary or None
    return parts(b, x) if is_pair(x) else (x, None)


def added(b: EdgeBuilder, first: Any, second: Any, *, sign: int = 1) -> Any:
    """The sum or difference of terms, each a node, a number, or None for an absent one."""
    if second is None:
        return first
    if first is None:
        return second if sign == 1 else b.call(aten.neg.default, second) if isinstance(second, Node) else -second
    return b.call(aten.add.Tensor if sign == 1 else aten.sub.Tensor, first, second)


def _product(b: EdgeBuilder, multiply: Callable[[Any, Any], Any], x: Any, y: Any) -> tuple[Any, Any]:
    """Parts of the product of two complex operands; `multiply` multiplies real parts."""
    (a, i), (c, j) = known_parts(b, x), known_parts(b, y)

    def times(left: Any, right: Any) -> Any:
        return None if left is None or right is None else multiply(left, right)

    return added(b, times(a, c), times(i, j), sign=-1), added(b, times(a, j), times(i, c))


def _multiplied(b: EdgeBuilder, x: Any, y: Any) -> Node:
    if not is_pair(x) and not is_pair(y) and isinstance(x, Node) and isinstance(y, int | float):
        return b.call(aten.mul.Tensor, x, y)  # type: ignore[no-any-return]
    return pair(b, *_product(b, lambda left, right: b.call(aten.mul.Tensor, left, right), x, y))


@COMPLEX_NUMBERS.rule(aten.mul.Tensor, aten.mul.Scalar)
def _mul(b: EdgeBuilder, call: Draft) -> Value:
    return _multiplied(b, *call["self", "other"])


@COMPLEX_NUMBERS.rule(aten.mm.default, aten.bmm.default, aten.matmul.default, aten.mv.default, aten.dot.default)
def _matrix_product(b: EdgeBuilder, call: Draft) -> Value:
    return pair(b, *_product(b, lambda left, right: b.call(call.target, left, right), *call.args))


@COMPLEX_NUMBERS.rule(aten.linear.default)
def _linear(b: EdgeBuilder, call: Draft) -> Value:
    x, weight, bias = call["input", "weight", "bias"]
    product = pair(b, *_product(b, lambda left, right: b.call(aten.linear.default, left, right), x, weight))
    return product if bias is None else b.call(aten.add.Tensor, product, bias, value=call.value)


@COMPLEX_NUMBERS.rule(aten.add.Tensor, aten.add.Scalar)
def _add(b: EdgeBuilder, call: Draft) -> Value:
    x, other, alpha = call["self", "other", "alpha"]
    return _added(b, x, other, alpha, call.value, sign=1)


@COMPLEX_NUMBERS.rule(aten.sub.Tensor, aten.sub.Scalar)
def _sub(b: EdgeBuilder, call: Draft) -> Value:
    x, other, alpha = call["self", "other", "alpha"]
    return _added(b, x, other, alpha, call.value, sign=-1)


@COMPLEX_NUMBERS.rule(aten.rsub.Tensor, aten.rsub.Scalar)
def _reversed_sub(b: EdgeBuilder, call: Draft) -> Value:
    x, other, alpha = call["self", "other", "alpha"]
    return _added(b, other, x, alpha, call.value, sign=-1)


def _added(b: EdgeBuilder, x: Any, other: Any, alpha: Any, value: Any, *, sign: int) -> Node:
    other = other if alpha == 1 else _multiplied(b, other, alpha) if isinstance(other, Node) else other * alpha
    real, imaginary = (
        added(b, mine, yours, sign=sign) for mine, yours in zip(known_parts(b, x), known_parts(b, other), strict=True)
    )
    # A part that is missing, or only a number, is as large as the other one.
    if not isinstance(imaginary, Node):
        imaginary = _full(b, b.shape(real), imaginary or 0, b.dtype(real))
    if not isinstance(real, Node):
        real = _full(b, b.shape(imaginary), real, b.dtype(imaginary))
    if value is not None and not same_shape(b.shape(real), b.shape(imaginary)):
        real, imaginary = (b.call(aten.expand.default, item, list(value.shape)) for item in (real, imaginary))
    return pair(b, real, imaginary)


@COMPLEX_NUMBERS.rule(aten.div.Tensor, aten.div.Scalar)
def _div(b: EdgeBuilder, call: Draft) -> Value:
    x, divisor = call["self", "other"]
    if isinstance(divisor, Node) and is_pair(divisor):
        return _multiplied(b, x, _inverse(b, divisor))
    if not isinstance(divisor, Node) and complex(divisor).imag:
        return _multiplied(b, x, 1 / complex(divisor))
    divisor = divisor if isinstance(divisor, Node) else complex(divisor).real
    return pair(b, *(b.call(aten.div.Tensor, part, divisor) for part in parts(b, x)))


@COMPLEX_NUMBERS.rule(aten.reciprocal.default)
def _reciprocal(b: EdgeBuilder, call: Draft) -> Value:
    return _inverse(b, call["self"])


def _inverse(b: EdgeBuilder, x: Node) -> Node:
    """1 / x by its modulus, so that squares neither overflow nor underflow."""
    length = _length(b, x)
    real, imaginary = (b.call(aten.div.Tensor, b.call(aten.div.Tensor, part, length), length) for part in parts(b, x))
    return pair(b, real, b.call(aten.neg.default, imaginary))


@COMPLEX_NUMBERS.rule(aten.abs.default)
def _abs(b: EdgeBuilder, call: Draft) -> Value:
    return _length(b, call["self"])


def _length(b: EdgeBuilder, x: Node) -> Node:
    """The larger part times sqrt(1 + (smaller / larger)^2): squares of the parts themselves may overflow."""
    sizes = [b.call(aten.abs.default, part) for part in parts(b, x)]
    large, small = b.call(aten.maximum.default, *sizes), b.call(aten.minimum.default, *sizes)
    zero = b.call(aten.eq.Scalar, large, 0)
    one = b.constant(torch.tensor(1, dtype=b.dtype(large)))
    ratio = b.call(aten.div.Tensor, small, b.call(aten.where.self, zero, one, large))
    squared = b.call(aten.mul.Tensor, ratio, ratio)
    return b.call(aten.mul.Tensor, large, b.call(aten.sqrt.default, b.call(aten.add.Scalar, squared, 1)))  # type: ignore[no-any-return]


@COMPLEX_NUMBERS.rule(aten.angle.default)
def _angle(b: EdgeBuilder, call: Draft) -> Value:
    real, imaginary = parts(b, call["self"])
    return b.call(aten.atan2.default, imaginary, real)


@COMPLEX_NUMBERS.rule(aten.sgn.default)
def _sgn(b: EdgeBuilder, call: Draft) -> Value:
    x = call["self"]
    length = _length(b, x)
    one = b.constant(torch.tensor(1, dtype=b.dtype(length)))
    divisor = b.call(aten.where.self, b.call(aten.eq.Scalar, length, 0), one, length)
    return pair(b, *(b.call(aten.div.Tensor, part, divisor) for part in parts(b, x)))


@COMPLEX_NUMBERS.rule(aten.exp.default)
def _exp(b: EdgeBuilder, call: Draft) -> Value:
    real, imaginary = parts(b, call["self"])
    length = b.call(aten.exp.default, real)
    forms = aten.cos.default, aten.sin.default
    return pair(b, *(b.call(aten.mul.Tensor, length, b.call(form, imaginary)) for form in forms))


@COMPLEX_NUMBERS.rule(aten.log.default)
def _log(b: EdgeBuilder, call: Draft) -> Value:
    real, imaginary = parts(b, call["self"])
    return pair(b, b.call(aten.log.default, _length(b, call["self"])), b.call(aten.atan2.default, imaginary, real))


@COMPLEX_NUMBERS.rule(aten.square.default)
def _square(b: EdgeBuilder, call: Draft) -> Value:
    return _multiplied(b, call["self"], call["self"])


@COMPLEX_NUMBERS.rule(aten.pow.Tensor_Scalar)
def _power(b: EdgeBuilder, call: Draft) -> Value:
    x, exponent = call["self", "exponent"]
    if not isinstance(exponent, int | float) or exponent != int(exponent) or not 1 <= exponent <= 16:
        b.refuse(f"is a complex number to the power {exponent}", hint="powers from 1 to 16 are products")
    result = x
    for _ in range(int(exponent) - 1):
        result = _multiplied(b, result, x)
    return result


# -- comparisons and choices -----------------------------------------------------------------------------------------


def _comparison(form: OpOverload, join: OpOverload) -> Rule:
    def apply(b: EdgeBuilder, call: Draft) -> Value:
        first, second = (
            parts(b, item) if isinstance(item, Node) else _number_parts(item) for item in call["self", "other"]
        )
        return b.call(join, *(b.call(form, mine, yours) for mine, yours in zip(first, second, strict=True)))

    return apply


for _name, _join in (("eq", aten.logical_and.default), ("ne", aten.logical_or.default)):
    for _overload in ("Tensor", "Scalar"):
        COMPLEX_NUMBERS.rule(getattr(getattr(aten, _name), _overload))(_comparison(getattr(aten, _name).Tensor, _join))


@COMPLEX_NUMBERS.rule(aten.where.self)
def _where(b: EdgeBuilder, call: Draft) -> Value:
    condition, first, second = call["condition", "self", "other"]
    chosen = zip(parts(b, first), parts(b, second), strict=True)
    return pair(b, *(b.call(aten.where.self, condition, one, other) for one, other in chosen))


@COMPLEX_NUMBERS.rule(aten.masked_fill.Scalar)
def _masked_fill(b: EdgeBuilder, call: Draft) -> Value:
    x, mask, number = call["self", "mask", "value"]
    filled = zip(parts(b, x), _number_parts(number), strict=True)
    return pair(b, *(b.translate(aten.masked_fill.Scalar, (part, mask, fill), {}, None) for part, fill in filled))


@COMPLEX_NUMBERS.rule(aten.isnan.default)
def _isnan(b: EdgeBuilder, call: Draft) -> Value:
    return b.call(aten.logical_or.default, *(b.call(aten.isnan.default, part) for part in parts(b, call["self"])))
