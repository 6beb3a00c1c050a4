"""The calls that many rules write: views, conversions, complex values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from ..arguments import read_argument
from ..builder import EdgeBuilder
from ..pairs import complex_dtype, is_pair
from ..sizes import Size, is_size, is_static, same, same_shape

aten = torch.ops.aten

NARROW_FLOATS = frozenset({torch.float16, torch.bfloat16})


def view(b: EdgeBuilder, x: Node, shape: Sequence[int]) -> Node:
    """`x` with another shape of as many elements; chains collapse, and no change gives `x` itself."""
    shape = tuple(shape)
    if same_shape(b.shape(x), shape):
        return x
    if x.target is aten.view_copy.default:
        return view(b, read_argument(x, "self"), shape)
    return b.emit(aten.view_copy.default, (x, list(shape)), {}, b.fake(shape, b.dtype(x)))


def permute(b: EdgeBuilder, x: Node, order: Sequence[int]) -> Node:
    """`x` with its dimensions in another order; chains collapse, and the identity gives `x` itself."""
    rank = len(b.shape(x))
    order = [axis % rank for axis in order]
    if x.target is aten.permute_copy.default:
        inner = read_argument(x, "dims")
        return permute(b, read_argument(x, "self"), [inner[axis] for axis in order])
    if order == list(range(rank)):
        return x
    shape = b.shape(x)
    value = b.fake(tuple(shape[axis] for axis in order), b.dtype(x))
    return b.emit(aten.permute_copy.default, (x, order), {}, value)


def swap(b: EdgeBuilder, x: Node, first: int, second: int) -> Node:
    """`x` with two dimensions exchanged."""
    order = list(range(len(b.shape(x))))
    if order:
        order[first], order[second] = order[second], order[first]
    return permute(b, x, order)


def slice_dim(b: EdgeBuilder, x: Node, dim: int, start: Size, stop: Size, *, step: int = 1, value: Any = None) -> Node:
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
                return source  # the value just written there
            if stop <= first or last <= start:
                return slice_dim(b, read_argument(x, "self"), dim, start, stop)
        shape[dim] = max(0, -(-(stop - start) // step)) if is_static((start, stop)) else (stop - start) // step
        value = b.fake(tuple(shape), b.dtype(x))
    return b.emit(aten.slice_copy.Tensor, (x, dim, start, stop, step), {}, b.fake_like(value))


def _written_slice(b: EdgeBuilder, x: Node, dim: int) -> tuple[Node, int, int] | None:
    """Source, start and end of the slice along `dim` that `x` reads back from a slice_scatter."""
    if x.target is not aten.slice_scatter.default:
        return None
    source, axis, start, stop, step = (read_argument(x, name) for name in ("src", "dim", "start", "end", "step"))
    size = b.shape(x)[dim]
    known = is_static(place for place in (size, start, stop) if place is not None)
    if step != 1 or axis % len(b.shape(x)) != dim or not known:
        return None
    start, stop, _ = slice(start, stop).indices(size)
    return source, start, stop


def convert(b: EdgeBuilder, x: Node, dtype: torch.dtype) -> Node:
    """`x` in another dtype; `x` itself if it has that dtype."""
    if b.dtype(x) == dtype:
        return x
    return b.emit(aten._to_copy.default, (x,), {"dtype": dtype}, b.fake(b.shape(x), dtype))


def pair(b: EdgeBuilder, real: Node, imaginary: Node) -> Node:
    """The complex value of two parts of one dtype and shape."""
    return b.pair(real, imaginary, b.fake(b.shape(real), complex_dtype(b.dtype(real))))


def known(b: EdgeBuilder, tensor: torch.Tensor, name: str = "_constant") -> Node:
    """The value of a constant tensor; a complex one by its parts."""
    if not tensor.is_complex():
        return b.constant(tensor, name)
    real, imaginary = torch.view_as_real(tensor.detach().resolve_conj()).unbind(-1)
    return pair(b, b.constant(real), b.constant(imaginary))


def parts(b: EdgeBuilder, x: Node) -> tuple[Node, Node]:
    """Real and imaginary part of a complex value; zeros for the imaginary part of a real one."""
    if is_pair(x):
        real, imaginary = x.args
        return real, imaginary  # type: ignore[return-value]
    return x, b.call(aten.full.default, list(b.shape(x)), 0, dtype=b.dtype(x))


def result_dtype(first: Any, second: Any) -> torch.dtype:
    """The dtype of an arithmetic result of two tensors, or of a tensor and a number."""
    return torch.result_type(*map(_typed, (first, second)))


def _typed(item: Any) -> Any:
    """An example of the operand's kind and dtype."""
    if isinstance(item, Node):
        return item.meta["val"]
    return {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}[type(item)] if is_size(item) else item


def per_dim(setting: Any, dims: int) -> list[int]:
    """A setting for each spatial dimension: PyTorch takes one number, or a list of one, for all."""
    given: list[int] = [setting] if isinstance(setting, int) else list(setting)
    return given * dims if len(given) == 1 else given
