"""Views and slices in one canonical form each: view, permute, squeeze, unsqueeze, expand, slice, select, and `cat`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..builder import EdgeBuilder, Rule, Value
from ..draft import Draft
from ..sizes import Size, is_static, known_true, same, same_shape
from .table import Family
from .writing import convert, permute, slice_dim, swap, view

aten = torch.ops.aten

VIEWS = Family("views")

# -- other sizes -----------------------------------------------------------------------------------------------------


@VIEWS.rule(
    aten.view.default,
    aten.view_copy.default,
    aten._unsafe_view.default,
    aten._reshape_copy.default,
    aten._reshape_alias.default,
)
def _view(b: EdgeBuilder, call: Draft) -> Value:
    return _reshaped(b, call["self"], call["size"], call.value)


@VIEWS.rule(aten.reshape.default)
def _reshape(b: EdgeBuilder, call: Draft) -> Value:
    return _reshaped(b, call["self"], call["shape"], call.value)


def _reshaped(b: EdgeBuilder, x: Node, wanted: Sequence[Size], value: Any) -> Node:
    shape = list(wanted if value is None else value.shape)
    if any(isinstance(size, int) and size == -1 for size in shape):
        known = -math.prod(shape)
        total = math.prod(b.shape(x))
        shape[shape.index(-1)] = total // known if known else 0
    return view(b, x, shape)


@VIEWS.rule(aten.flatten.using_ints, aten.unflatten.int, aten.view_as.default, aten.reshape_as.default)
def _reshape_to_result(b: EdgeBuilder, call: Draft) -> Value:
    return NotImplemented if call.value is None else view(b, call["self"], tuple(call.value.shape))


@VIEWS.rule(
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze_copy.default,
    aten.squeeze_copy.dim,
    aten.squeeze_copy.dims,
)
def _squeeze(b: EdgeBuilder, call: Draft) -> Value:
    x, dim = call["self"], call.get("dim")
    shape = b.shape(x)
    rank = len(shape)
    given = range(rank) if dim is None else dim if isinstance(dim, list | tuple) else [dim]
    dims = sorted({axis % rank for axis in given if same(shape[axis], 1)}) if rank else []
    if not dims:
        return x
    result = tuple(size for axis, size in enumerate(shape) if axis not in dims)
    return b.emit(aten.squeeze_copy.dims, (x, dims), {}, b.fake(result, b.dtype(x)))


@VIEWS.rule(aten.unsqueeze.default, aten.unsqueeze_copy.default)
def _unsqueeze(b: EdgeBuilder, call: Draft) -> Value:
    x, axis = call["self", "dim"]
    shape = list(b.shape(x))
    axis %= len(shape) + 1
    shape.insert(axis, 1)
    return b.emit(aten.unsqueeze_copy.default, (x, axis), {}, b.fake(tuple(shape), b.dtype(x)))


@VIEWS.rule(aten.expand.default, aten.expand_copy.default, aten.broadcast_to.default)
def _expand(b: EdgeBuilder, call: Draft) -> Value:
    return _expanded(b, call["self"], call["size"])


@VIEWS.rule(aten.expand_as.default)
def _expand_as(b: EdgeBuilder, call: Draft) -> Value:
    return _expanded(b, call["self"], b.shape(call["other"]))


def _expanded(b: EdgeBuilder, x: Node, wanted: Sequence[Size]) -> Node:
    shape = b.shape(x)
    lead = len(wanted) - len(shape)
    kept = [isinstance(size, int) and size == -1 for size in wanted]
    sizes = [shape[axis - lead] if kept[axis] else size for axis, size in enumerate(wanted)]
    if same_shape(sizes, shape):
        return x
    return b.emit(aten.expand_copy.default, (x, sizes), {}, b.fake(tuple(sizes), b.dtype(x)))


# -- another order ---------------------------------------------------------------------------------------------------


@VIEWS.rule(aten.permute.default, aten.permute_copy.default)
def _permute(b: EdgeBuilder, call: Draft) -> Value:
    return permute(b, call["self"], call["dims"])


@VIEWS.rule(aten.transpose.int, aten.transpose_copy.int, aten.swapdims.default, aten.swapaxes.default)
def _transpose(b: EdgeBuilder, call: Draft) -> Value:
    return swap(
        b, call["self"], *call[("axis0", "axis1") if call.target is aten.swapaxes.default else ("dim0", "dim1")]
    )


@VIEWS.rule(aten.t.default, aten.t_copy.default, aten.numpy_T.default)
def _t(b: EdgeBuilder, call: Draft) -> Value:
    return permute(b, call["self"], list(range(len(b.shape(call["self"]))))[::-1])


@VIEWS.rule(aten.mT.default, aten.adjoint.default)
def _matrix_transpose(b: EdgeBuilder, call: Draft) -> Value:
    return swap(b, call["self"], -1, -2)


# -- pieces ----------------------------------------------------------------------------------------------------------


@VIEWS.rule(aten.slice.Tensor, aten.slice_copy.Tensor)
def _slice(b: EdgeBuilder, call: Draft) -> Value:
    x, dim, start, stop, step = call["self", "dim", "start", "end", "step"]
    size = b.shape(x)[dim]
    if is_static(place for place in (size, start, stop) if place is not None):
        start, stop, step = slice(start, stop, step).indices(size)
        return slice_dim(b, x, dim, start, max(start, stop), step=step)
    if call.value is None:
        return NotImplemented
    start = _within(0 if start is None else start, size)
    # The result's size gives the end of the slice, whatever the caller wrote.
    stop = start + call.value.shape[dim] if step == 1 else size if stop is None else _within(stop, size)
    return slice_dim(b, x, dim, start, stop, step=step, value=call.value)


def _within(bound: Size, size: Size) -> Size:
    """A slice's bound as a position from 0 to `size`: negative counts from the end, clamped."""
    if known_true(bound < 0):
        bound = bound + size
        return bound if known_true(bound >= 0) else torch.sym_max(bound, 0)  # type: ignore[no-untyped-call]
    return bound if known_true(bound <= size) else torch.sym_min(bound, size)  # type: ignore[no-untyped-call]


@VIEWS.rule(aten.narrow.default, aten.narrow_copy.default)
def _narrow(b: EdgeBuilder, call: Draft) -> Value:
    x, dim, start, length = call["self", "dim", "start", "length"]
    if isinstance(start, Node):
        return NotImplemented
    return slice_dim(b, x, dim, _from_front(start, b.shape(x)[dim]), _from_front(start, b.shape(x)[dim]) + length)


def _from_front(index: Size, size: Size) -> Size:
    """An index from the end, if negative, as one from the start."""
    return index + size if known_true(index < 0) else index


@VIEWS.rule(aten.select.int, aten.select_copy.int)
def _select(b: EdgeBuilder, call: Draft) -> Value:
    return _selected(b, call["self"], call["dim"], call["index"])


def _selected(b: EdgeBuilder, x: Node, dim: int, index: Size) -> Node:
    shape = list(b.shape(x))
    dim %= len(shape)
    index = _from_front(index, shape[dim])
    del shape[dim]
    return b.emit(aten.select_copy.int, (x, dim, index), {}, b.fake(tuple(shape), b.dtype(x)))


def _pieces(b: EdgeBuilder, x: Node, sizes: Sequence[int], dim: int) -> tuple[Node, ...]:
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return tuple(slice_dim(b, x, dim, start, start + size) for start, size in zip(starts, sizes, strict=True))


@VIEWS.rule(aten.split.Tensor, aten.split_copy.Tensor)
def _split(b: EdgeBuilder, call: Draft) -> Value:
    x, size, dim = call["self", "split_size", "dim"]
    total = b.shape(x)[dim]
    if not is_static((total, size)):
        return _pieces_as_known(b, x, dim, call.value)
    # An empty dimension has one piece, whose size may be given as 0.
    return _pieces(b, x, [min(size, total - start) for start in range(0, total, max(1, size))] or [0], dim)


def _pieces_as_known(b: EdgeBuilder, x: Node, dim: int, value: Any) -> Value:
    """Pieces with the sizes of the fake results."""
    return NotImplemented if value is None else _pieces(b, x, [piece.shape[dim] for piece in value], dim)


@VIEWS.rule(aten.split_with_sizes.default, aten.split_with_sizes_copy.default, aten.split.sizes)
def _split_with_sizes(b: EdgeBuilder, call: Draft) -> Value:
    sizes = call["split_size" if call.target is aten.split.sizes else "split_sizes"]
    return _pieces(b, call["self"], sizes, call["dim"])


@VIEWS.rule(aten.chunk.default)
def _chunk(b: EdgeBuilder, call: Draft) -> Value:
    x, chunks, dim = call["self", "chunks", "dim"]
    total = b.shape(x)[dim]
    if not is_static((total,)):
        return _pieces_as_known(b, x, dim, call.value)
    size = max(1, -(-total // chunks))
    # An empty dimension has as many pieces as requested; else there may be fewer.
    return _pieces(b, x, [min(size, total - start) for start in range(0, total, size)] or [0] * chunks, dim)


@VIEWS.rule(aten.unbind.int, aten.unbind_copy.int)
def _unbind(b: EdgeBuilder, call: Draft) -> Value:
    x, dim = call["self", "dim"]
    count = b.shape(x)[dim] if call.value is None else len(call.value)
    return tuple(_selected(b, x, dim, index) for index in range(count))


# -- views that are copies -------------------------------------------------------------------------------------------


def _copying(copy: OpOverload) -> Rule:
    """The rule of a view: the operator that copies the viewed elements."""

    def apply(b: EdgeBuilder, call: Draft) -> Value:
        return b.emit(copy, call.args, call.kwargs, None if call.value is None else b.fake_like(call.value))

    return apply


VIEWS.rule(aten.diagonal.default)(_copying(aten.diagonal_copy.default))
VIEWS.rule(aten.unfold.default)(_copying(aten.unfold_copy.default))
VIEWS.rule(aten.view.dtype)(_copying(aten.view_copy.dtype))


@VIEWS.rule(aten.as_strided.default)
def _as_strided(b: EdgeBuilder, call: Draft) -> Value:
    # It reads the memory of the tensor. That is the tensor itself if it is contiguous and occupies all of the
    # memory, or if nothing else is read: of an input, the exporter may leave open how large its memory is.
    source = b.origin.args[0] if b.origin is not None and b.origin.target is aten.as_strided.default else None
    base = source.meta.get("val") if isinstance(source, Node) else None
    whole = (
        isinstance(base, torch.Tensor)
        and is_static(base.shape)
        and base.is_contiguous()
        and same(base.storage_offset(), 0)
        and (
            _stays_within(base.numel(), call)
            or same(base.untyped_storage().nbytes(), base.numel() * base.element_size())
        )
    )
    if not whole:
        b.refuse("looks at the memory of a tensor that is not contiguous", hint="call contiguous() before it")
    value = None if call.value is None else b.fake_like(call.value)
    return b.emit(aten.as_strided_copy.default, call.args, call.kwargs, value)


def _stays_within(count: int, call: Draft) -> bool:
    """True if as_strided reads the first `count` elements only, in every call."""
    sizes, strides, offset = call["size", "stride", "storage_offset"]
    if not is_static([*sizes, *strides, offset or 0]):
        return False
    last: int = (offset or 0) + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return last < count


@VIEWS.rule(aten.cat.default)
def _cat(b: EdgeBuilder, call: Draft) -> Value:
    tensors, value = call["tensors"], call.value
    parts = [part for part in tensors if not any(same(size, 0) for size in b.shape(part))]
    if value is None or not parts or len(parts) == len(tensors):
        return NotImplemented
    if len(parts) == 1:
        return convert(b, parts[0], value.dtype)
    # Omitted ones may have determined the dtype.
    parts = [convert(b, part, value.dtype) for part in parts]
    return b.emit(aten.cat.default, (parts, *call.args[1:]), call.kwargs, value)


@VIEWS.check(aten.index.Tensor, aten._unsafe_index.Tensor)
def _check_index(b: EdgeBuilder, call: Draft) -> None:
    # PyTorch forgets to broadcast a last index of rank 0, and so all sizes from here on are wrong in the program.
    indices = [index.meta["val"] for index in call["indices"] if isinstance(index, Node)]
    value = call.value
    if value is not None and indices and not any(index.dtype in (torch.bool, torch.uint8) for index in indices):
        rank = len(b.shape(call["self"])) - len(indices) + max(index.dim() for index in indices)
        if value.dim() != rank:
            b.refuse(
                f"PyTorch's exporter gives it {value.dim()} dimensions; but the result has {rank}",
                hint="give the index of rank 0 a dimension: index[None]",
            )
