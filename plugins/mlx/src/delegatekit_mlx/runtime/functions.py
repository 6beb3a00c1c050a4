"""The operators of a graph as functions of MLX's arrays.

Shapes, types and indices are checked where MLX does not: it reads and writes at any place that an index names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from delegatekit_api import ExecutionError, FormatError
from delegatekit_toolkit.dataflow import MOST_BYTES
from delegatekit_toolkit.narrowing import INT32_MAX, INT32_MIN

from ..blob import schema
from ..blob.library import core
from ..blob.types import DTYPES

#: Bits of integers that stand for numbers, and how many have a scale.
_BITS: Final = (2, 3, 4, 5, 6, 8)
_GROUPS: Final = (16, 32, 64, 128)


class Machine:
    """The tensors and values of a call."""

    def __init__(self, tensors: dict[int, Any]) -> None:
        self.core = core()
        self.tensors = tensors
        self.values: dict[int, Any] = {}

    def integer(self, term: Any) -> int:
        """An integer, known or computed."""
        if isinstance(term, schema.IntOrVidOrTid):
            return int(term.literal if term.vid is None or not term.kind else self.values[term.vid])
        return int(self.values[term.vid] if term.is_vid else term.literal)

    def number(self, term: schema.FloatOrVid) -> Any:
        """A number, known or computed."""
        return self.values[term.vid] if term.is_vid and term.vid is not None else term.literal

    def integers(self, terms: Sequence[Any]) -> list[int]:
        """Integers, known or computed."""
        return [self.integer(term) for term in terms]

    def sizes(self, terms: Sequence[Any]) -> list[int]:
        """The sizes of a tensor. Raises ExecutionError for those that none has."""
        return self.checked(self.integers(terms))

    def checked(self, sizes: Sequence[int]) -> list[int]:
        """The sizes of a tensor. Raises ExecutionError for those that none has."""
        if min(sizes, default=0) < 0 or math.prod(sizes) > MOST_BYTES:
            raise ExecutionError(f"a tensor of sizes {sizes!r:.80} is asked for")
        return list(sizes)

    def dtype(self, number: int) -> Any:
        """MLX's element type by ExecuTorch's number. Raises FormatError for one that is unknown."""
        if number not in DTYPES:
            raise FormatError(f"has elements of type {number}, which is unknown")
        name = str(DTYPES[number]).removeprefix("torch.")
        return getattr(self.core, "bool_" if name == "bool" else name)

    def indices(self, indices: Any, size: int) -> Any:
        """Indices into an axis of this size. Raises ExecutionError for one beyond its ends."""
        if indices.size:
            least, most = int(indices.min().item()), int(indices.max().item())
            if least < -size or most >= size:
                beyond = least if least < -size else most
                raise ExecutionError(f"index {beyond} is beyond the end of an axis of {size}")
        return indices


#: An operator: what it computes, from the tensors of a call.
Function: TypeAlias = "Callable[[Machine, Any], Any]"


def _unary(name: str) -> Function:
    return lambda m, op: getattr(m.core, name)(m.tensors[op.x])


def _binary(name: str) -> Function:
    return lambda m, op: getattr(m.core, name)(m.tensors[op.a], m.tensors[op.b])


def _reduction(name: str, **more: str) -> Function:
    def run(m: Machine, op: Any) -> Any:
        given = {key: getattr(op, key) for key in more}
        return getattr(m.core, name)(m.tensors[op.x], axis=op.axes or None, keepdims=op.keepdims, **given)

    return run


def _integers(function: Callable[[int, int], int]) -> Function:
    """An operator on integers, which the runtime on the device keeps in 32 bits."""

    def run(m: Machine, op: schema.Integers) -> int:
        x, y = m.integer(op.a), m.integer(op.b)
        made = function(x, y)
        if not INT32_MIN <= made <= INT32_MAX:
            raise ExecutionError(f"{made} of {x} and {y} exceeds 32 bits")
        return made

    return run


def _divided(name: str) -> Function:
    def run(m: Machine, op: Any) -> Any:
        x, y = m.tensors[op.a], m.tensors[op.b]
        if not m.core.issubdtype(y.dtype, m.core.floating) and y.size:
            if not bool((y != 0).all().item()):
                raise ExecutionError("integers are divided by 0")
            # The processor has no such quotient, and ends the process.
            if m.core.issubdtype(y.dtype, m.core.signedinteger):
                least = m.core.iinfo(x.dtype).min
                if bool(m.core.logical_and(x == least, y == -1).any().item()):
                    raise ExecutionError(f"{least} is divided by -1")
        return getattr(m.core, name)(x, y)

    return run


def _convolution(axes: int, *, transposed: bool = False) -> Function:
    names = [f"_{letter}" for letter in "dhw"[3 - axes :]] if axes > 1 else [""]

    def run(m: Machine, op: Any) -> Any:
        def setting(name: str, least: int) -> tuple[int, ...]:
            found = tuple(getattr(op, name + axis) for axis in names)
            if min(found) < least or max(found) > 1 << 20:
                raise FormatError(f"{name} = {found}")
            return found

        given: dict[str, Any] = {
            "stride": setting("stride", 1),
            "padding": setting("padding", 0),
            "dilation": setting("dilation", 1),
        }
        if transposed:
            given["output_padding"] = setting("output_padding", 0)
        if axes == 1:
            given = {name: value for name, (value,) in given.items()}
        x, w = m.tensors[op.x], m.tensors[op.w]
        if op.groups < 1 or x.ndim != axes + 2 or w.ndim != axes + 2 or 0 in w.shape or w.shape[0] % op.groups:
            raise FormatError(f"groups = {op.groups}, of {x.shape} and {w.shape}")
        return getattr(m.core, f"conv{'_transpose' * transposed}{axes}d")(x, w, **given, groups=op.groups)

    return run


def _addmm(m: Machine, op: schema.AddmmNode) -> Any:
    left, right = m.tensors[op.mat1], m.tensors[op.mat2]
    if op.bias is not None:
        return m.core.addmm(m.tensors[op.bias], left, right, alpha=op.alpha, beta=op.beta)
    made = m.core.matmul(left, right)
    return made if op.alpha == 1 else made * op.alpha


def _take(m: Machine, op: schema.TakeNode) -> Any:
    x = m.tensors[op.x]
    size = x.shape[op.axis]
    if op.index.kind == 2:
        return m.core.take(x, m.indices(m.tensors[op.index.tid], size), axis=op.axis)  # type: ignore[index]
    found = m.integer(op.index)
    if not -size <= found < size:
        raise ExecutionError(f"index {found} is beyond the end of an axis of {size}")
    return m.core.take(x, found % size, axis=op.axis)


def _take_along_axis(m: Machine, op: schema.TakeAlongAxisNode) -> Any:
    x = m.tensors[op.x]
    indices = m.indices(m.tensors[op.indices], x.shape[op.axis])
    return m.core.take_along_axis(x, indices, axis=op.axis)


def _gather(m: Machine, op: schema.GatherNode) -> Any:
    """Slices at places along several axes, of which the indexed ones stay with the size of their slice."""
    x = m.tensors[op.x]
    if len(op.axes) != len(op.indices) or len(op.slice_sizes) != x.ndim or len(set(op.axes)) != len(op.axes):
        raise FormatError(f"gathers along the axes {op.axes} by {len(op.indices)} indices")
    if any(op.slice_sizes[axis] != (1 if axis in op.axes else size) for axis, size in enumerate(x.shape)):
        raise FormatError(f"gathers slices {op.slice_sizes} of {x.shape}: whole ones are taken")
    found = [m.indices(m.tensors[number], x.shape[axis]) for number, axis in zip(op.indices, op.axes, strict=True)]
    shape = m.core.broadcast_shapes(*(item.shape for item in found))
    flat: Any = None
    for item, axis in zip(found, op.axes, strict=True):
        places = m.core.broadcast_to(item, shape).astype(m.core.int64)
        places = m.core.where(places < 0, places + x.shape[axis], places)
        flat = places if flat is None else flat * x.shape[axis] + places
    rest = [axis for axis in range(x.ndim) if axis not in op.axes]
    rows = x.transpose([*op.axes, *rest]).reshape([-1, *(x.shape[axis] for axis in rest)])
    return m.core.take(rows, flat, axis=0).reshape([*shape, *op.slice_sizes])


def _part_of(m: Machine, op: Any, x: Any) -> tuple[slice, ...]:
    """The part of a tensor that an operator is about, as Python's index."""
    axis = m.integer(op.axis)
    axis = axis + x.ndim if axis < 0 else axis
    if not 0 <= axis < x.ndim or not op.step:
        raise FormatError(f"axis = {axis} of {x.ndim}, step = {op.step}")
    start, stop, step = slice(m.integer(op.start), m.integer(op.stop), op.step).indices(x.shape[axis])
    return (*[slice(None)] * axis, slice(start, None if stop < 0 else stop, step))


def _slice(m: Machine, op: schema.SliceNode) -> Any:
    x = m.tensors[op.x]
    return x[_part_of(m, op, x)]


def _slice_update(m: Machine, op: schema.SliceUpdateNode) -> Any:
    x, update = m.tensors[op.dst], m.tensors[op.update]
    place = _part_of(m, op, x)
    if op.step < 1:
        raise FormatError(f"step = {op.step}")
    wanted = list(x.shape)
    wanted[len(place) - 1] = len(range(*place[-1].indices(x.shape[len(place) - 1])))
    found = m.core.array(x)
    found[place] = m.core.broadcast_to(update, wanted)
    return found


def _index_copy(m: Machine, op: schema.IndexCopyNode) -> Any:
    x, update = m.tensors[op.dst], m.tensors[op.update]
    axis = op.axis + x.ndim if op.axis < 0 else op.axis
    indices = m.indices(m.tensors[op.indices], x.shape[axis])
    found = m.core.array(x)
    place = (*[slice(None)] * axis, indices)
    found[place] = update
    return found


def _scatter_add(m: Machine, op: schema.ScatterAddNode) -> Any:
    x, updates = m.tensors[op.x], m.tensors[op.updates]
    axis = op.axis + x.ndim if op.axis < 0 else op.axis
    indices = m.indices(m.tensors[op.indices], x.shape[axis])
    if indices.ndim != x.ndim or any(a > b for a, b in zip(indices.shape, updates.shape, strict=True)):
        raise FormatError(f"has indices {indices.shape} and updates {updates.shape} for {x.shape}")
    if any(at != axis and size > x.shape[at] for at, size in enumerate(indices.shape)):
        raise FormatError(f"has indices {indices.shape} for {x.shape}")
    updates = updates[tuple(slice(0, size) for size in indices.shape)]
    places = [
        indices if at == axis else m.core.arange(size).reshape([-1 if other == at else 1 for other in range(x.ndim)])
        for at, size in enumerate(indices.shape)
    ]
    return x.at[tuple(places)].add(updates)


def _as_strided(m: Machine, op: schema.AsStridedNode) -> Any:
    x, shape, strides = m.tensors[op.x], m.sizes(op.shape), m.integers(op.strides)
    if len(shape) != len(strides) or min(strides, default=0) < 0:
        raise FormatError(f"has strides {strides} for {shape}")
    last = op.offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if 0 not in shape and last >= x.size:
        raise ExecutionError(f"a view of {shape} with strides {strides} exceeds {x.size} elements")
    # MLX's reductions of such views on processors are wrong where elements of a window have gaps, and write elsewhere.
    return m.core.contiguous(m.core.as_strided(x, shape, strides, op.offset))


def _pad(m: Machine, op: schema.PadNode) -> Any:
    x, flat = m.tensors[op.x], m.sizes(op.pad_width)
    if len(flat) != 2 * x.ndim:
        raise FormatError(f"pads {len(flat)} ends of {x.ndim} axes")
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    m.checked([size + sum(pair) for size, pair in zip(x.shape, pairs, strict=True)])
    if op.mode == "constant":
        return m.core.pad(x, pairs, constant_values=m.core.array(op.constant_value).astype(x.dtype))
    if op.mode != "edge":
        raise FormatError(f"has a mode {op.mode!r:.40}")
    return m.core.pad(x, pairs, mode="edge")


def _tile(m: Machine, op: schema.TileNode) -> Any:
    x, repeats = m.tensors[op.x], m.sizes(op.reps)
    sizes = [1] * (len(repeats) - x.ndim) + list(x.shape)
    m.checked([size * count for size, count in zip(sizes[::-1], repeats[::-1], strict=False)])
    return m.core.tile(x, repeats)


def _broadcast_to(m: Machine, op: schema.BroadcastToNode) -> Any:
    """To sizes of which -1 stands for the tensor's own."""
    x, sizes = m.tensors[op.x], m.integers(op.shape)
    own = [1] * (len(sizes) - x.ndim) + list(x.shape)
    wanted = [before if size == -1 else size for size, before in zip(sizes, own, strict=True)]
    return m.core.broadcast_to(x, m.checked(wanted))


def _repeat(m: Machine, op: schema.RepeatNode) -> Any:
    x, count = m.tensors[op.x], m.integer(op.repeats)
    m.checked([count, *x.shape])
    return m.core.repeat(x, count, axis=op.axis)


def _split(m: Machine, op: schema.SplitNode) -> Any:
    x, sizes = m.tensors[op.x], m.sizes(op.sizes)
    if len(sizes) == 1 < len(op.outs) and sizes[0]:  # equal parts, of which the last may be smaller
        whole, (size,) = x.shape[op.axis], sizes
        sizes = [min(size, whole - start) for start in range(0, whole, size)]
    if len(op.outs) != len(sizes) or sum(sizes) != x.shape[op.axis]:
        raise FormatError(f"splits {x.shape[op.axis]} into {sizes}")
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes) - 1)]
    return m.core.split(x, ends, axis=op.axis) if ends else [x]


def _arange(m: Machine, op: schema.ARangeNode) -> Any:
    start, stop, step = (m.integer(term) for term in (op.start, op.stop, op.step))
    if not step:
        raise ExecutionError("arange has step 0")
    m.checked([len(range(start, stop, step))])
    dtype = m.core.int32 if op.scalar_type is None else m.dtype(op.scalar_type)
    return m.core.arange(start, stop, step, dtype=dtype)


def _filled(m: Machine, shape: Sequence[int], number: Any, dtype: Any) -> Any:
    if m.core.issubdtype(dtype, m.core.integer):
        number = int(number)
    return m.core.full(m.checked(shape), m.core.array(number, dtype=dtype))


def _full(m: Machine, op: schema.FullNode) -> Any:
    return _filled(m, m.sizes(op.shape), m.number(op.v), m.dtype(op.scalar_type))


def _full_like(m: Machine, op: schema.FullLikeNode) -> Any:
    x = m.tensors[op.x]
    return _filled(m, x.shape, m.number(op.v), x.dtype if op.scalar_type is None else m.dtype(op.scalar_type))


def _gelu(m: Machine, op: schema.GeluNode) -> Any:
    x = m.tensors[op.x]
    if op.approximate == "tanh":
        return 0.5 * x * (1 + m.core.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    if op.approximate != "none":
        raise FormatError(f"approximate = {op.approximate!r:.40}")
    return x * (1 + m.core.erf(x * math.sqrt(0.5))) / 2


def _clip(m: Machine, op: schema.ClipNode) -> Any:
    low, high = (None if number is None else m.tensors[number] for number in (op.a_min, op.a_max))
    return m.tensors[op.x] if low is None and high is None else m.core.clip(m.tensors[op.x], low, high)


def _optional(m: Machine, number: int | None) -> Any:
    return None if number is None else m.tensors[number]


def _layer_norm(m: Machine, op: schema.LayerNormNode) -> Any:
    x, weight, bias = m.tensors[op.x], _optional(m, op.weight), _optional(m, op.bias)
    return m.core.fast.layer_norm(x, weight, bias, op.eps)


def _rms_norm(m: Machine, op: schema.RMSNormNode) -> Any:
    return m.core.fast.rms_norm(m.tensors[op.x], _optional(m, op.weight), op.eps)


def _rope(m: Machine, op: schema.RopeNode) -> Any:
    offset = m.values[op.offset.vid] if op.offset.is_vid else m.tensors[op.offset.tid]  # type: ignore[index]
    freqs = _optional(m, op.freqs)
    return m.core.fast.rope(
        m.tensors[op.x],
        op.dims,
        traditional=op.traditional,
        base=None if freqs is not None else op.base,
        scale=op.scale,
        offset=offset,
        freqs=freqs,
    )


def _attention(m: Machine, op: schema.SdpaNode) -> Any:
    query, key, value = (m.tensors[number] for number in (op.q, op.k, op.v))
    mask = "causal" if op.causal else _optional(m, op.mask)
    return m.core.fast.scaled_dot_product_attention(query, key, value, scale=op.scale, mask=mask)


def _check_groups(op: Any) -> None:
    """Raise FormatError for groups and bits by which MLX would divide."""
    if op.bits not in _BITS or op.group_size not in _GROUPS:
        raise FormatError(f"has integers of {op.bits} bits in groups of {op.group_size}")


def _quantized_matmul(m: Machine, op: schema.QuantizedMatmulNode) -> Any:
    _check_groups(op)
    return m.core.quantized_matmul(
        m.tensors[op.x],
        m.tensors[op.w],
        m.tensors[op.scales],
        _optional(m, op.biases),
        transpose=op.transpose,
        group_size=op.group_size,
        bits=op.bits,
        mode=op.mode,
    )


def _dequantize(m: Machine, op: schema.DequantizeNode) -> Any:
    _check_groups(op)
    return m.core.dequantize(
        m.tensors[op.w],
        m.tensors[op.scales],
        _optional(m, op.biases),
        group_size=op.group_size,
        bits=op.bits,
        mode=op.mode,
        global_scale=_optional(m, op.global_scale),
        dtype=None if op.dtype is None else m.dtype(op.dtype),
    )


def _squeeze(m: Machine, op: schema.SqueezeNode) -> Any:
    x = m.tensors[op.x]
    if not op.dims:
        return m.core.squeeze(x)
    return m.core.squeeze(x, axis=tuple(dim for dim in op.dims if x.shape[dim] == 1))


def _position(name: str) -> Function:
    return lambda m, op: getattr(m.core, name)(m.tensors[op.x], axis=op.axis, keepdims=op.keepdims)


def _along(name: str) -> Function:
    return lambda m, op: getattr(m.core, name)(m.tensors[op.x], axis=op.axis)


def _partition(name: str) -> Function:
    return lambda m, op: getattr(m.core, name)(m.tensors[op.x], m.integer(op.kth), axis=op.axis)


def _cumsum(m: Machine, op: schema.CumsumNode) -> Any:
    return m.core.cumsum(m.tensors[op.x], axis=op.axis, reverse=op.reverse, inclusive=op.inclusive)


def _item(m: Machine, op: schema.ItemIntNode) -> Any:
    if m.tensors[op.x].size != 1:
        raise ExecutionError(f"the element of a tensor {m.tensors[op.x].shape} is asked for")
    return m.tensors[op.x].item()


def _size(m: Machine, op: schema.SymSizeNode) -> Any:
    return m.tensors[op.a].shape[op.dim]


def _flip(m: Machine, op: schema.FlipNode) -> Any:
    x = m.tensors[op.x]
    turned = {axis % x.ndim for axis in op.axes} if x.ndim else set()
    return x[tuple(slice(None, None, -1) if axis in turned else slice(None) for axis in range(x.ndim))]


def _gather_mm(m: Machine, op: schema.GatherMmNode) -> Any:
    left, right = m.tensors[op.a], m.tensors[op.b]
    places = [_optional(m, op.lhs_indices), _optional(m, op.rhs_indices)]
    for item, batch in zip(places, (left, right), strict=True):
        if item is not None:
            m.indices(item, math.prod(batch.shape[:-2]))
    is_sorted = _is_sorted(m, op)
    if left.dtype == m.core.float32:
        return m.core.gather_mm(left, right, *places, sorted_indices=is_sorted)
    # On processors MLX has it for float32 alone.
    wide = (item.astype(m.core.float32) for item in (left, right))
    return m.core.gather_mm(*wide, *places, sorted_indices=is_sorted).astype(left.dtype)


def _gather_qmm(m: Machine, op: schema.GatherQmmNode) -> Any:
    _check_groups(op)
    x, weight = m.tensors[op.x], m.tensors[op.w]
    places = [_optional(m, op.lhs_indices), _optional(m, op.rhs_indices)]
    for item, batch in zip(places, (x, weight), strict=True):
        if item is not None:
            m.indices(item, math.prod(batch.shape[:-2]))
    return m.core.gather_qmm(
        x,
        weight,
        m.tensors[op.scales],
        _optional(m, op.biases),
        *places,
        transpose=op.transpose,
        group_size=op.group_size,
        bits=op.bits,
        mode=op.mode,
        sorted_indices=_is_sorted(m, op),
    )


def _is_sorted(m: Machine, op: schema.GatherMmNode | schema.GatherQmmNode) -> bool:
    """True if the indices of the second operand are told to be in order."""
    return op.sorted_indices if op.sorted_indices_flag is None else bool(m.integer(op.sorted_indices_flag))


#: The operators that this runtime lacks, and why.
LACKING: Final[dict[type, str]] = {
    schema.MetalKernelNode: "is a program in Metal's language, which only Apple's GPUs run",
    schema.UpdateAndAttendNode: "needs a cache that the program on the device keeps beside the delegate",
    schema.RandomBitsNode: "makes random bits, which MLX does not offer in Python",
}
#: The operators that MLX runs on any device.
FUNCTIONS: Final[dict[type, Function]] = {
    schema.NoopNode: lambda m, op: None,
    schema.IdCopyNode: lambda m, op: m.tensors[op.x],
    schema.AddmmNode: _addmm,
    schema.ItemIntNode: _item,
    schema.ExpandDimsNode: lambda m, op: m.core.expand_dims(m.tensors[op.x], op.axis),
    schema.TileNode: _tile,
    schema.TakeAlongAxisNode: _take_along_axis,
    schema.TakeNode: _take,
    schema.RMSNormNode: _rms_norm,
    schema.LayerNormNode: _layer_norm,
    schema.RopeNode: _rope,
    schema.SdpaNode: _attention,
    schema.AddIntNode: _integers(lambda x, y: x + y),
    schema.SubtractIntNode: _integers(lambda x, y: x - y),
    schema.MultiplyIntNode: _integers(lambda x, y: x * y),
    schema.FloorDivideIntNode: _integers(lambda x, y: x // y),
    schema.ModIntNode: _integers(lambda x, y: x % y),
    schema.SymSizeNode: _size,
    schema.Conv1DNode: _convolution(1),
    schema.Conv2DNode: _convolution(2),
    schema.Conv3DNode: _convolution(3),
    schema.ConvTranspose1DNode: _convolution(1, transposed=True),
    schema.ConvTranspose2DNode: _convolution(2, transposed=True),
    schema.ConvTranspose3DNode: _convolution(3, transposed=True),
    schema.GeluNode: _gelu,
    schema.ARangeNode: _arange,
    schema.SiluNode: lambda m, op: m.tensors[op.x] * m.core.sigmoid(m.tensors[op.x]),
    schema.SqueezeNode: _squeeze,
    schema.SplitNode: _split,
    schema.SoftmaxNode: lambda m, op: m.core.softmax(m.tensors[op.x], axis=op.axis, precise=op.precise),
    schema.BroadcastToNode: _broadcast_to,
    schema.PadNode: _pad,
    schema.WhereNode: lambda m, op: m.core.where(m.tensors[op.condition], m.tensors[op.x], m.tensors[op.y]),
    schema.ReshapeNode: lambda m, op: m.core.reshape(m.tensors[op.x], m.integers(op.shape)),
    schema.TransposeNode: lambda m, op: m.core.transpose(m.tensors[op.x], op.perm),
    schema.AsStridedNode: _as_strided,
    schema.ContiguousNode: _unary("contiguous"),
    schema.GatherNode: _gather,
    schema.SliceNode: _slice,
    schema.AsTypeNode: lambda m, op: m.tensors[op.x].astype(m.dtype(op.scalar_type)),
    schema.ConcatenateNode: lambda m, op: m.core.concatenate([m.tensors[item] for item in op.tensors], axis=op.axis),
    schema.StackNode: lambda m, op: m.core.stack([m.tensors[item] for item in op.tensors], axis=op.axis),
    schema.FullNode: _full,
    schema.FullLikeNode: _full_like,
    schema.ArgmaxNode: _position("argmax"),
    schema.ArgminNode: _position("argmin"),
    schema.SliceUpdateNode: _slice_update,
    schema.IndexCopyNode: _index_copy,
    schema.DequantizeNode: _dequantize,
    schema.QuantizedMatmulNode: _quantized_matmul,
    schema.TriNode: lambda m, op: m.core.tri(*m.sizes([op.n, op.m]), op.k, dtype=m.dtype(op.scalar_type)),
    schema.TrilNode: lambda m, op: m.core.tril(m.tensors[op.x], op.k),
    schema.TriuNode: lambda m, op: m.core.triu(m.tensors[op.x], op.k),
    schema.ClipNode: _clip,
    schema.CumsumNode: _cumsum,
    schema.RepeatNode: _repeat,
    schema.SortNode: _along("sort"),
    schema.ArgsortNode: _along("argsort"),
    schema.PartitionNode: _partition("partition"),
    schema.ArgPartitionNode: _partition("argpartition"),
    schema.ScatterAddNode: _scatter_add,
    schema.GatherMmNode: _gather_mm,
    schema.GatherQmmNode: _gather_qmm,
    schema.RollNode: lambda m, op: m.core.roll(m.tensors[op.x], tuple(m.integers(op.shift)), tuple(op.axes)),
    schema.FlipNode: _flip,
    schema.RoundNode: lambda m, op: m.core.round(m.tensors[op.x], op.decimals),
    schema.FloorDivideNode: _divided("floor_divide"),
    schema.RemainderNode: _divided("remainder"),
    **{
        getattr(schema, f"{node}Node"): _unary(name)
        for node, name in {
            **{
                name.capitalize(): name
                for name in ("sigmoid", "tanh", "rsqrt", "log", "floor", "ceil", "square", "exp", "sin", "cos", "tan")
            },
            **{name.capitalize(): name for name in ("arcsin", "arccos", "arctan", "sinh", "cosh", "arcsinh")},
            **{name.capitalize(): name for name in ("arccosh", "arctanh", "log2", "log10", "log1p", "erf", "expm1")},
            **{name.capitalize(): name for name in ("reciprocal", "sqrt", "abs", "sign", "trunc")},
            "Neg": "negative",
            "LogicalNot": "logical_not",
            "BitwiseInvert": "bitwise_invert",
        }.items()
    },
    **{
        getattr(schema, f"{node}Node"): _binary(name)
        for node, name in {
            **{name.capitalize(): name for name in ("add", "multiply", "divide", "subtract", "maximum", "minimum")},
            **{name.capitalize(): name for name in ("less", "greater", "equal", "power")},
            "LessEqual": "less_equal",
            "GreaterEqual": "greater_equal",
            "NotEqual": "not_equal",
            "LogicalAnd": "logical_and",
            "LogicalOr": "logical_or",
            "BitwiseAnd": "bitwise_and",
            "BitwiseOr": "bitwise_or",
            "BitwiseXor": "bitwise_xor",
            "Atan2": "arctan2",
            "LogAddExp": "logaddexp",
        }.items()
    },
    **{
        getattr(schema, f"{node}Node"): _reduction(node.lower())
        for node in ("LogSumExp", "Sum", "Mean", "Prod", "Max", "Min", "Median", "Any", "All")
    },
    schema.VarNode: _reduction("var", ddof="ddof"),
    schema.StdNode: _reduction("std", ddof="ddof"),
}
