"""The canonical form of operators, one small rule each: one spelling per meaning, no no-ops, no aliases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..builder import Builder, Check, Rule, Value
from ..sizes import Size, is_size, is_static, known_true, same, same_shape

aten = torch.ops.aten

RULES: dict[OpOverload, Rule] = {}
#: What PyTorch's exporter gets wrong is refused before anybody sees it.
CHECKS: dict[OpOverload, Check] = {}


def rule(*targets: OpOverload) -> Callable[[Rule], Rule]:
    """Register a rewrite rule for operators."""

    def register(function: Rule) -> Rule:
        for target in targets:
            RULES[target] = function
        return function

    return register


def completed(args: tuple[Any, ...], required: int, defaults: tuple[Any, ...]) -> tuple[Any, ...]:
    """Positional arguments, with the defaults of those behind the `required` ones that were left out."""
    return (*args, *defaults[len(args) - required :])


# -- what vanishes ---------------------------------------------------------------------------------------------------


@rule(
    aten.alias.default,
    aten.alias_copy.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.detach_copy.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.lift.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
)
def _identity(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    # Every value is dense and contiguous, and nothing mutates: a copy is the thing itself.
    return args[0]


@rule(
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)
def _dropout(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    probability, train = args[1], args[2]
    if train and probability > 0:
        b.refuse("dropout in training mode is random", hint="call model.eval() before torch.export")
    return args[0]


@rule(
    aten._assert_tensor_metadata.default,
    aten._assert_async.msg,
    aten._assert_async.default,
    aten._assert_scalar.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
)
def _assertion(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return None


@rule(aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten._to_copy.default, aten.type_as.default)
def _convert(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    if value is None:
        return NotImplemented
    if value.device.type not in ("cpu", "meta"):
        b.refuse(f"moves a tensor to device {value.device}", hint="export the model on the CPU")
    if b.dtype(args[0]) == value.dtype:
        return args[0]
    return b.emit(aten._to_copy.default, (args[0],), {"dtype": value.dtype}, value)


@rule(aten.item.default)
def _item(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return b.emit(aten._local_scalar_dense.default, (args[0],), {}, value)


# -- views -----------------------------------------------------------------------------------------------------------


def view(b: Builder, x: Node, shape: Sequence[int]) -> Node:
    """`x` with another shape of as many elements; chains collapse, and no change gives `x` itself."""
    shape = tuple(shape)
    if same_shape(b.shape(x), shape):
        return x
    if x.target is aten.view_copy.default:
        return view(b, x.args[0], shape)  # type: ignore[arg-type]
    return b.emit(aten.view_copy.default, (x, list(shape)), {}, b.fake(shape, b.dtype(x)))


def permute(b: Builder, x: Node, order: Sequence[int]) -> Node:
    """`x` with its dimensions in another order; chains collapse, and the identity gives `x` itself."""
    rank = len(b.shape(x))
    order = [axis % rank for axis in order]
    if x.target is aten.permute_copy.default:
        inner: Any = x.args[1]
        return permute(b, x.args[0], [inner[axis] for axis in order])  # type: ignore[arg-type]
    if order == list(range(rank)):
        return x
    shape = b.shape(x)
    value = b.fake(tuple(shape[axis] for axis in order), b.dtype(x))
    return b.emit(aten.permute_copy.default, (x, order), {}, value)


@rule(
    aten.view.default,
    aten.view_copy.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten._reshape_copy.default,
    aten._reshape_alias.default,
)
def _view(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    shape = list(args[1] if value is None else value.shape)
    if any(isinstance(size, int) and size == -1 for size in shape):
        known = -math.prod(shape)
        total = math.prod(b.shape(args[0]))
        shape[shape.index(-1)] = total // known if known else 0
    return view(b, args[0], shape)


@rule(aten.flatten.using_ints, aten.unflatten.int, aten.view_as.default, aten.reshape_as.default)
def _reshape_to_result(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return NotImplemented if value is None else view(b, args[0], tuple(value.shape))


@rule(aten.permute.default, aten.permute_copy.default)
def _permute(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return permute(b, args[0], args[1])


@rule(aten.transpose.int, aten.transpose_copy.int, aten.swapaxes.default, aten.swapdims.default)
def _transpose(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return swap(b, args[0], args[1], args[2])


@rule(aten.t.default, aten.t_copy.default, aten.numpy_T.default)
def _t(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return permute(b, args[0], list(range(len(b.shape(args[0]))))[::-1])


@rule(aten.mT.default, aten.adjoint.default)
def _matrix_transpose(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return swap(b, args[0], -1, -2)


def swap(b: Builder, x: Node, first: int, second: int) -> Node:
    """`x` with two dimensions exchanged."""
    order = list(range(len(b.shape(x))))
    if order:
        order[first], order[second] = order[second], order[first]
    return permute(b, x, order)


@rule(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.squeeze_copy.default)
@rule(aten.squeeze_copy.dim, aten.squeeze_copy.dims)
def _squeeze(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, shape = args[0], b.shape(args[0])
    rank = len(shape)
    given = range(rank) if len(args) < 2 else args[1] if isinstance(args[1], list | tuple) else [args[1]]
    dims = sorted({axis % rank for axis in given if same(shape[axis], 1)}) if rank else []
    if not dims:
        return x
    result = tuple(size for axis, size in enumerate(shape) if axis not in dims)
    return b.emit(aten.squeeze_copy.dims, (x, dims), {}, b.fake(result, b.dtype(x)))


@rule(aten.unsqueeze.default, aten.unsqueeze_copy.default)
def _unsqueeze(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, axis = args[0], args[1]
    shape = list(b.shape(x))
    axis %= len(shape) + 1
    shape.insert(axis, 1)
    return b.emit(aten.unsqueeze_copy.default, (x, axis), {}, b.fake(tuple(shape), b.dtype(x)))


@rule(aten.expand.default, aten.expand_copy.default, aten.broadcast_to.default, aten.expand_as.default)
def _expand(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, shape = args[0], b.shape(args[0])
    wanted = b.shape(args[1]) if isinstance(args[1], Node) else args[1]
    lead = len(wanted) - len(shape)
    kept = [isinstance(size, int) and size == -1 for size in wanted]
    sizes = [shape[axis - lead] if kept[axis] else size for axis, size in enumerate(wanted)]
    if same_shape(sizes, shape):
        return x
    return b.emit(aten.expand_copy.default, (x, sizes), {}, b.fake(tuple(sizes), b.dtype(x)))


def slice_dim(b: Builder, x: Node, dim: int, start: Size, stop: Size, *, step: int = 1, value: Any = None) -> Node:
    """`x[..., start:stop:step, ...]` along `dim`, bounds already within the size; the whole gives `x` itself."""
    shape = list(b.shape(x))
    dim %= len(shape)
    if same(start, 0) and same(stop, shape[dim]) and step == 1:
        return x
    if value is None or is_static(value.shape):
        written = _written_slice(b, x, dim)
        if written is not None and step == 1:
            source, first, last = written
            if (first, last) == (start, stop):
                return source  # what was just written there
            if stop <= first or last <= start:
                return slice_dim(b, x.args[0], dim, start, stop)  # type: ignore[arg-type]
        shape[dim] = max(0, -(-(stop - start) // step)) if is_static((start, stop)) else (stop - start) // step
        value = b.fake(tuple(shape), b.dtype(x))
    return b.emit(aten.slice_copy.Tensor, (x, dim, start, stop, step), {}, b.fake_like(value))


def _written_slice(b: Builder, x: Node, dim: int) -> tuple[Node, int, int] | None:
    """Source, start and end of the slice along `dim` that `x` is, if it is another value with a slice overwritten."""
    if x.target is not aten.slice_scatter.default:
        return None
    _, source, axis, start, stop, step = completed(x.args, 2, (0, None, None, 1))
    size = b.shape(x)[dim]
    if step != 1 or axis % len(b.shape(x)) != dim or not is_static((size, start or 0, stop or 0)):
        return None
    start, stop, _ = slice(start, stop).indices(size)
    return source, start, stop


@rule(aten.slice.Tensor, aten.slice_copy.Tensor)
def _slice(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, dim, start, stop, step = completed(args, 1, (0, None, None, 1))
    size = b.shape(x)[dim]
    if is_static((size, start or 0, stop or 0)):
        start, stop, step = slice(start, stop, step).indices(size)
        return slice_dim(b, x, dim, start, max(start, stop), step=step)
    if value is None:
        return NotImplemented
    start = _within(0 if start is None else start, size)
    # The result's size says where the slice ends, whatever the caller wrote.
    stop = start + value.shape[dim] if step == 1 else size if stop is None else _within(stop, size)
    return slice_dim(b, x, dim, start, stop, step=step, value=value)


def _within(bound: Size, size: Size) -> Size:
    """A slice's bound as a place from 0 to `size`: counted from the end if negative, and cut off."""
    if known_true(bound < 0):
        bound = bound + size
        return bound if known_true(bound >= 0) else torch.sym_max(bound, 0)  # type: ignore[no-untyped-call]
    return bound if known_true(bound <= size) else torch.sym_min(bound, size)  # type: ignore[no-untyped-call]


@rule(aten.narrow.default, aten.narrow_copy.default)
def _narrow(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, dim, start, length = args
    if isinstance(start, Node):
        return NotImplemented
    return slice_dim(b, x, dim, _from_front(start, b.shape(x)[dim]), _from_front(start, b.shape(x)[dim]) + length)


def _from_front(index: Size, size: Size) -> Size:
    """An index that is counted from the end if negative, counted from the start."""
    return index + size if known_true(index < 0) else index


@rule(aten.select.int, aten.select_copy.int)
def _select(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, dim, index = args
    shape = list(b.shape(x))
    dim %= len(shape)
    index = _from_front(index, shape[dim])
    del shape[dim]
    return b.emit(aten.select_copy.int, (x, dim, index), {}, b.fake(tuple(shape), b.dtype(x)))


def _pieces(b: Builder, x: Node, sizes: Sequence[int], dim: int) -> tuple[Node, ...]:
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return tuple(slice_dim(b, x, dim, start, start + size) for start, size in zip(starts, sizes, strict=True))


@rule(aten.split.Tensor, aten.split_copy.Tensor)
def _split(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, size, dim = completed(args, 2, (0,))
    total = b.shape(x)[dim]
    if not is_static((total, size)):
        return NotImplemented if value is None else _pieces(b, x, [piece.shape[dim] for piece in value], dim)
    # Of nothing, there is one piece; its size may be given as 0.
    return _pieces(b, x, [min(size, total - start) for start in range(0, total, max(1, size))] or [0], dim)


@rule(aten.split_with_sizes.default, aten.split_with_sizes_copy.default, aten.split.sizes)
def _split_with_sizes(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, sizes, dim = completed(args, 2, (0,))
    return _pieces(b, x, sizes, dim)


@rule(aten.chunk.default)
def _chunk(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, chunks, dim = completed(args, 2, (0,))
    total = b.shape(x)[dim]
    if not is_static((total,)):
        return NotImplemented if value is None else _pieces(b, x, [piece.shape[dim] for piece in value], dim)
    size = max(1, -(-total // chunks))
    # Of nothing, there are as many pieces as are asked for; else there may be fewer.
    return _pieces(b, x, [min(size, total - start) for start in range(0, total, size)] or [0] * chunks, dim)


@rule(aten.unbind.int, aten.unbind_copy.int)
def _unbind(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, dim = completed(args, 1, (0,))
    count = b.shape(x)[dim] if value is None else len(value)
    return tuple(_select(b, (x, dim, index), {}, None) for index in range(count))


# -- numbers as operands ---------------------------------------------------------------------------------------------


def _with_scalar_form(scalar_form: OpOverload) -> Rule:
    """The rule of an operator whose second operand may be a number: then its Scalar overload says so."""

    def apply(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        if not isinstance(args[0], Node) and scalar_form is aten.mul.Scalar:
            return b.emit(scalar_form, (args[1], args[0]), kwargs, value)
        if isinstance(args[1], Node):
            return NotImplemented
        return b.emit(scalar_form, args, kwargs, value)

    return apply


for _name in ("mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "fmod", "bitwise_and", "bitwise_or"):
    _packet = getattr(aten, _name)
    RULES[_packet.Tensor] = _with_scalar_form(_packet.Scalar)
RULES[aten.div.Tensor_mode] = _with_scalar_form(aten.div.Scalar_mode)


@rule(aten.remainder.Tensor, aten.remainder.Scalar)
def _remainder(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, y = args
    dtype = result_dtype(x, y)
    if not dtype.is_floating_point and isinstance(x, Node):
        # ExecuTorch 1.5 computes the remainder of integers with the wrong sign; its division rounds as it should.
        x = convert(b, x, dtype)
        quotient = b.call(aten.div.Tensor_mode, x, y, rounding_mode="floor")
        return b.call(aten.sub.Tensor, x, b.call(aten.mul.Tensor, quotient, y), value=value)
    return _with_scalar_form(aten.remainder.Scalar)(b, args, kwargs, value)


def result_dtype(first: Any, second: Any) -> torch.dtype:
    """The dtype of an arithmetic result of two tensors, or of a tensor and a number."""
    return torch.result_type(*map(_typed, (first, second)))


def _typed(item: Any) -> Any:
    """Something of the operand's kind and dtype."""
    if isinstance(item, Node):
        return item.meta["val"]
    return {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}[type(item)] if is_size(item) else item


def convert(b: Builder, x: Node, dtype: torch.dtype) -> Node:
    """`x` in another dtype; `x` itself if it has that dtype."""
    if b.dtype(x) == dtype:
        return x
    return b.emit(aten._to_copy.default, (x,), {"dtype": dtype}, b.fake(b.shape(x), dtype))


def _with_alpha(tensor_form: OpOverload, scalar_form: OpOverload) -> Rule:
    """The rule of add and sub: a number operand absorbs alpha."""

    def apply(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
        if not isinstance(args[0], Node):
            # A number in front: 1 + x, 1 - x.
            if tensor_form is aten.add.Tensor and alpha == 1:
                return apply(b, (args[1], args[0]), {}, value)
            if tensor_form is aten.sub.Tensor:
                return b.emit(aten.rsub.Scalar, (args[1], args[0], *([alpha] if alpha != 1 else [])), {}, value)
            return NotImplemented
        if isinstance(args[1], Node):
            second = args[1]
            if alpha != 1 and not same_shape(b.shape(args[0]), b.shape(second)):
                # The runtime's kernel scales the wrong operand where the first has one element.
                second, alpha = b.call(aten.mul.Tensor, second, alpha), 1
            return b.emit(tensor_form, (args[0], second), {} if alpha == 1 else {"alpha": alpha}, value)
        number = args[1] if alpha == 1 else args[1] * alpha  # True * 1 would be 1, which makes integers of bools
        # The runtime's kernel refuses a number that changes the dtype (an integer tensor + 0.5).
        x = convert(b, args[0], result_dtype(args[0], number))
        return b.emit(scalar_form, (x, number), {}, value)

    return apply


RULES[aten.add.Tensor] = RULES[aten.add.Scalar] = _with_alpha(aten.add.Tensor, aten.add.Scalar)
RULES[aten.sub.Tensor] = RULES[aten.sub.Scalar] = _with_alpha(aten.sub.Tensor, aten.sub.Scalar)


def _clamp_side(position: int) -> Rule:
    def apply(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        bounds: list[Any] = [None, None]
        bounds[position] = args[1]
        return b.emit(aten.clamp.default, (args[0], *bounds), {}, value)

    return apply


RULES[aten.clamp_min.default] = _clamp_side(0)
RULES[aten.clamp_max.default] = _clamp_side(1)


@rule(aten.relu6.default)
def _relu6(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return b.emit(aten.hardtanh.default, (args[0], 0.0, 6.0), {}, value)


# -- tensors that depend on no input ---------------------------------------------------------------------------------


def _filled(fill: float | None) -> Rule:
    """The rule of *_like and new_*: only shape and dtype of the operand count."""

    def apply(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        if value is None:
            return NotImplemented
        number = fill
        if number is None:
            number = args[2] if isinstance(args[1], list | tuple) else args[1]
        if isinstance(number, Node):
            return NotImplemented
        return b.emit(aten.full.default, (list(value.shape), number), {"dtype": value.dtype}, b.fake_like(value))

    return apply


for _target in (aten.zeros_like.default, aten.new_zeros.default, aten.zeros.default):
    RULES[_target] = _filled(0)
# What lies in new memory is not defined. Folded as it is, it would differ in each file, and be the process's old data.
for _target in (aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default, aten.empty_permuted.default):
    RULES[_target] = _filled(0)
for _target in (aten.empty_strided.default, aten.new_empty_strided.default):
    RULES[_target] = _filled(0)
for _target in (aten.ones_like.default, aten.new_ones.default, aten.ones.default):
    RULES[_target] = _filled(1)
for _target in (aten.full_like.default, aten.new_full.default):
    RULES[_target] = _filled(None)


# -- composites with one obvious spelling ----------------------------------------------------------------------------


@rule(aten.softmax.int, aten._softmax.default)
def _softmax(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return _softmax_like(b, aten._softmax.default, args, kwargs, value)


@rule(aten.log_softmax.int, aten._log_softmax.default)
def _log_softmax(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return _softmax_like(b, aten._log_softmax.default, args, kwargs, value)


def _softmax_like(b: Builder, target: OpOverload, args: Any, kwargs: Any, value: Any) -> Value:
    x, dim = args[0], args[1]
    dtype = kwargs.get("dtype", args[2] if len(args) > 2 else None)
    if isinstance(dtype, torch.dtype):
        x = convert(b, x, dtype)
    return b.emit(target, (x, dim, False), {}, b.fake(b.shape(x), b.dtype(x)))


@rule(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
def _convolution(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return _emit_convolution(b, args, kwargs, value, transposed=False)


@rule(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def _transposed_convolution(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return _emit_convolution(b, args, kwargs, value, transposed=True)


@rule(aten.convolution.default)
def _whole_convolution(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    # A list of one number stands for all dimensions; kernels and backends get the number of each.
    spatial = len(b.shape(args[1])) - 2
    full = tuple(_per_dim(item, spatial) if position in (3, 4, 5, 7) else item for position, item in enumerate(args))
    return NotImplemented if full == args else b.call(aten.convolution.default, *full, value=value, **kwargs)


def _per_dim(setting: Any, spatial: int) -> list[int]:
    values: list[int] = [setting] if isinstance(setting, int) else list(setting)
    return values * spatial if len(values) == 1 else values


def _emit_convolution(b: Builder, args: Any, kwargs: Any, value: Any, *, transposed: bool) -> Value:
    spatial = len(b.shape(args[1])) - 2
    if len(b.shape(args[0])) != spatial + 2:
        return NotImplemented  # no batch dimension: the decomposition adds and removes one

    names = (
        "bias stride padding output_padding groups dilation" if transposed else "bias stride padding dilation groups"
    )
    defaults = {"bias": None, "stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}
    given = defaults | dict(zip(names.split(), args[2:], strict=False)) | kwargs
    settings = [_per_dim(given[name], spatial) for name in ("stride", "padding", "dilation")]
    output_padding = _per_dim(given["output_padding"], spatial)
    full = (args[0], args[1], given["bias"], *settings, transposed, output_padding, given["groups"])
    return b.call(aten.convolution.default, *full, value=value)


@rule(aten.pad.default)
def _pad(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    mode = kwargs.get("mode", args[2] if len(args) > 2 else "constant")
    fill = kwargs.get("value", args[3] if len(args) > 3 else None)
    if mode != "constant":
        return NotImplemented
    return _constant_pad(b, (args[0], args[1], 0.0 if fill is None else fill), {}, value)


@rule(aten.constant_pad_nd.default)
def _constant_pad(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, padding, fill = completed(args, 2, (0,))
    for number, (before, behind) in enumerate(zip(padding[::2], padding[1::2], strict=True), 1):
        # A negative padding cuts off: a slice says so.
        size = b.shape(x)[-number]
        if not is_static((before, behind)):
            return b.emit(aten.constant_pad_nd.default, args, kwargs, value)
        x = slice_dim(b, x, -number, max(0, -before), size - max(0, -behind))
    added = [max(0, amount) for amount in padding]
    return b.emit(aten.constant_pad_nd.default, (x, added, fill), {}, value) if any(added) else x


@rule(aten.mean.default)
def _mean(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return b.emit(aten.mean.dim, (args[0], list(range(len(b.shape(args[0])))), False), kwargs, value)


@rule(aten.sum.default)
def _sum(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return b.emit(aten.sum.dim_IntList, (args[0], list(range(len(b.shape(args[0])))), False), kwargs, value)


@rule(aten.var.dim, aten.var.default)
def _variance(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    # var(x, dims, unbiased, keepdim), or var(x, unbiased) over everything
    if len(args) > 1 and not isinstance(args[1], bool):
        x, dims, unbiased, keepdim = completed(args, 2, (True, False))
    else:
        (x, unbiased), dims, keepdim = completed(args, 1, (True,)), None, False
    unbiased, keepdim = kwargs.get("unbiased", unbiased), kwargs.get("keepdim", keepdim)
    return b.emit(aten.var.correction, (x, dims), {"correction": int(unbiased), "keepdim": keepdim}, value)


@rule(aten.adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d.default)
def _adaptive_average(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, size = args[0], list(args[1])
    if same_shape(size, b.shape(x)[-2:]):
        return x
    if size == [1, 1]:
        return b.emit(aten.mean.dim, (x, [-1, -2], True), {}, value)
    return b.emit(aten._adaptive_avg_pool2d.default, (x, size), {}, value)
