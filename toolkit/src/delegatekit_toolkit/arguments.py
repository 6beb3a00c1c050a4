"""Arguments that PyTorch accepts in several forms: axes, pads, and settings of windows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from delegatekit_api import Call, Operand

if TYPE_CHECKING:
    import torch


def axis_of(dim: int, rank: int) -> int:
    """A dimension counted from the front.

    >>> axis_of(-1, 4)
    3
    """
    return dim + rank if dim < 0 else dim


def axes_of(dims: Any, rank: int) -> tuple[int, ...]:
    """Dimensions counted from the front, ascending; also accepts None, an empty list, and a single number.

    >>> axes_of([-1, 1], 4), axes_of(None, 2)
    ((1, 3), (0, 1))
    """
    if isinstance(dims, int):
        dims = [dims]
    if rank == 0:  # PyTorch accepts axis 0 of a scalar
        return ()
    return tuple(sorted({dim % rank for dim in dims})) if dims else tuple(range(rank))


def per_axis(setting: Any, axes: int, default: int | None = None) -> tuple[int, ...]:
    """A window setting for each spatial axis: PyTorch allows one number for all, and an empty list for the default.

    >>> per_axis(2, 2), per_axis([], 2, default=1)
    ((2, 2), (1, 1))
    """
    values = [setting] if isinstance(setting, int) else list(setting or ())
    if not values and default is not None:
        values = [default]
    return tuple(values * axes if len(values) == 1 else values)


def pads_of(pads: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """Padding before and after each axis, the first axis first. PyTorch lists the last axis first.

    >>> pads_of([1, 2, 3, 4], 3)
    [(0, 0), (3, 4), (1, 2)]
    """
    pairs = list(zip(pads[::2], pads[1::2], strict=True))
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


def windows_of(call: Call, axes: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernel, stride and padding of a pooling, each for every spatial axis.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> windows_of(call_of(torch.nn.AvgPool2d((3, 2)), torch.ones(1, 4, 4)), 2)
    ((3, 2), (3, 2), (0, 0))
    """
    kernel = per_axis(call["kernel_size"], axes)
    strides = per_axis(call["stride"], axes, default=0)
    return kernel, strides if any(strides) else kernel, per_axis(call["padding"], axes)


def is_plain_average(call: Call) -> bool:
    """True if the divisor of an avg_pool1d, 2d or 3d is the number of elements in the window.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> is_plain_average(call_of(torch.nn.AvgPool2d(2, padding=1), torch.ones(1, 4, 4)))
    False
    """
    if call.has("divisor_override") and call["divisor_override"] is not None:
        return False
    return not call["count_include_pad"] or not any(windows_of(call, pooled_axes(call))[2])


def shares_of(call: Call, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The number of elements in each window of such a pooling over its divisor, (1, *sizes): the average of ones.

    They are in the operand's type if no other is given: float16 has none above 65504.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> shares_of(call_of(torch.nn.AvgPool2d(2, padding=1), torch.ones(1, 2, 2)))
    tensor([[[0.2500, 0.2500],
             [0.2500, 0.2500]]])
    """
    import torch  # schemes are listed without it

    axes = pooled_axes(call)
    settings = [call[name] for name in ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")]
    more = [call["divisor_override"]] if call.has("divisor_override") else []
    pool = getattr(torch.ops.aten, f"avg_pool{axes}d").default
    made: torch.Tensor = pool(torch.ones(1, *call["self"].shape[-axes:], dtype=torch.float64), *settings, *more)
    return made.to(call["self"].dtype if dtype is None else dtype)


def reduced_axes(call: Call) -> tuple[int, ...]:
    """The axes of its first operand that an operator reduces, counted from the front, ascending.

    >>> import torch
    >>> from delegatekit_toolkit.testing import as_module, call_of
    >>> reduced_axes(call_of(as_module(lambda x: x.sum((-1, 0))), torch.ones(2, 3, 4)))
    (0, 2)
    """
    return axes_of(call.get("dim"), call["self"].rank)


def pooled_axes(call: Call) -> int:
    """The number of axes that an operator pools over, as its name says.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> pooled_axes(call_of(torch.nn.AvgPool2d(2), torch.ones(1, 4, 4)))
    2
    """
    return int(call.operator.rsplit("pool", 1)[1][0])


def bounds_of(call: Call) -> tuple[float | None, float | None]:
    """The bounds of a clamp, hardtanh or relu; None for one that is left out. The lower one may be above the upper.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> bounds_of(call_of(torch.nn.Hardtanh(-2.0, 3.0), torch.ones(2)))
    (-2.0, 3.0)
    >>> bounds_of(call_of(torch.relu, torch.ones(2)))
    (0.0, None)
    """
    if call.operator == "aten.relu.default":
        return 0.0, None
    low, high = ("min_val", "max_val") if call.has("min_val") else ("min", "max")
    return call[low], call[high]


def rms_epsilon(call: Call) -> float:
    """The number that an rms_norm adds to the mean of squares: without one, the epsilon of the type that PyTorch
    computes in, which is float32 for halves.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> rms_epsilon(call_of(lambda x: torch.ops.aten.rms_norm(x, [2]), torch.ones(2).half()))
    1.1920928955078125e-07
    """
    import torch  # schemes are listed without it

    given: float | None = call["eps"]
    dtype = torch.promote_types(call["input"].dtype, torch.float32)
    return torch.finfo(dtype).eps if given is None else given


def indices_of(call: Call) -> dict[int, Operand]:
    """The axes of `self` that are indexed by tensors, and by which."""
    return {axis: item for axis, item in enumerate(call["indices"]) if item is not None}


def axis_of_indices(axes: Collection[int]) -> int:
    """The axis of a result, and of what is written, where the axes of the indices begin: that of the first indexed axis
    if these are neighbors, else 0.

    >>> axis_of_indices([1, 2]), axis_of_indices([1, 3])
    (1, 0)
    """
    first = min(axes)
    return first if list(axes) == list(range(first, first + len(axes))) else 0


def written_part(call: Call) -> tuple[int, int, int]:
    """The axis, and the bounds on it, of what slice_scatter or select_scatter writes to.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> written_part(call_of(lambda x: x.select_scatter(torch.ones(2), 1, -1), torch.ones(2, 4)))
    (1, 3, 4)
    """
    axis = axis_of(call["dim"], call["self"].rank)
    size = call["self"].shape[axis]
    if call.has("index"):
        start = axis_of(call["index"], size)
        return axis, start, start + 1
    start, end, _ = slice(call["start"], call["end"]).indices(size)
    return axis, start, max(start, end)


class Diagonal(NamedTuple):
    """The elements along two axes of a tensor at once, as a slice of one axis that holds the elements of both."""

    order: tuple[int, ...]  # of the tensor's axes: the two come last
    sizes: tuple[Any, ...]  # of the tensor so ordered, with one axis for the two
    places: slice  # of that axis


def diagonal_of(call: Call) -> Diagonal:
    """What aten.diagonal_copy takes; the two axes have known sizes.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> diagonal_of(call_of(lambda x: torch.diagonal_copy(x, 1), torch.ones(2, 3)))
    Diagonal(order=(0, 1), sizes=(6,), places=slice(1, 6, 4))
    """
    shape, offset = call["self"].shape, call["offset"]
    pair = [axis_of(call[name], len(shape)) for name in ("dim1", "dim2")]
    rest = [axis for axis in range(len(shape)) if axis not in pair]
    rows, columns = (shape[axis] for axis in pair)
    start, step = max(-offset, 0) * columns + max(offset, 0), columns + 1
    end = start + (call.result.shape[-1] - 1) * step + 1
    return Diagonal((*rest, *pair), (*(shape[axis] for axis in rest), rows * columns), slice(start, end, step))
