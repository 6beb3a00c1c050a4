"""torchao's affine operators: the blocks of a weight or an input that share a scale, and the operator calls.

Weight-only schemes, and dynamic ones with a scale for each row, sample or group, use them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch.fx import GraphModule, Node

from delegatekit_api import QuantizationError
from delegatekit_api.nodes import operator_name
from delegatekit_api.schemes import TensorQuantization

from . import torchao
from .graph import constant_name, evaluate, short_name
from .patterns import ROLES, Layer
from .tables import find_tables, load_operator, look_up, places_in_tables

#: The types that store values of fewer bits.
_STORAGE: Final = {"int4": torch.int8, "uint4": torch.uint8}

#: Numbers of a weight that are converted at a time: few enough for a processor's cache.
_AT_ONCE: Final = 1 << 19
#: Operators that change the type of a tensor.
_CONVERSIONS: Final = ("aten.to.dtype", "aten._to_copy.default")

_DEQUANTIZE: Final = "torchao.dequantize_affine.default"
#: Arguments of it, up to the largest integer.
_BOUNDS: Final = 7

#: Adds a call of an operator to a graph, and returns its value there.
WriteCall: TypeAlias = Callable[[Any, tuple[Any, ...]], Any]


def storage(given: TensorQuantization) -> torch.dtype:
    """The dtype that stores the integers."""
    found: torch.dtype = _STORAGE.get(given.dtype) or getattr(torch, given.dtype)
    return found


# -- weights -----------------------------------------------------------------------------------------------------------


def channel_axis(layer: Layer) -> int:
    """The dimension of a layer's weight with its output channels."""
    assert layer.weight is not None
    return ROLES[short_name(layer.anchor)].channels % int(layer.weight.meta["val"].dim())


def input_axis(layer: Layer) -> int:
    """The dimension of a layer's weight with its input channels."""
    return 1 if channel_axis(layer) == 0 else 0


def block_size(shape: Sequence[int], given: TensorQuantization, channels: int, inputs: int) -> list[int]:
    """The shape of the blocks of a weight that have one scale or table each, in torchao's form."""
    sizes = [int(size) for size in shape]
    if given.granularity.kind == "channel":
        sizes[given.granularity.axis if given.granularity.axis is not None else channels] = 1
    elif given.granularity.kind == "channels":
        sizes[channels] = given.granularity.group or 1
    elif given.granularity.group is not None:
        sizes[channels] = 1
        sizes[inputs] = given.granularity.group
    return sizes


@dataclass(frozen=True)
class Given:
    """A weight that is integers already, and the operator that makes numbers of them: its arguments."""

    integers: Node
    blocks: tuple[int, ...]
    scale: Node
    zero_point: Node | None
    low: int
    high: int

    def __str__(self) -> str:
        """ "int4 in blocks of 1 x 32"."""
        bits = (self.high - self.low).bit_length()
        return f"int{bits} in blocks of {' x '.join(map(str, self.blocks))}"


def given_integers(weight: Node) -> Given | None:
    """The integers of a weight that was quantized before; None if it has float numbers of its own."""
    while operator_name(weight) in _CONVERSIONS and isinstance(weight.args[0], Node):  # to the type that it has
        weight = weight.args[0]
    if operator_name(weight) != _DEQUANTIZE or len(weight.args) < _BOUNDS:
        return None
    integers, blocks, scale, zero_point, _, low, high = weight.args[:_BOUNDS]
    return Given(integers, tuple(blocks), scale, zero_point, low, high)  # type: ignore[arg-type]


def is_quantized_so(value: Node, axes: range, given: TensorQuantization) -> bool | None:
    """True if a value was made integers of this form in the call already; None if it was not made any."""
    if operator_name(value) != _DEQUANTIZE:
        return None
    blocks, (dtype, low, high) = value.args[1], value.args[4:_BOUNDS]
    sizes = value.meta["val"].shape
    single = all(block == 1 for axis, block in enumerate(blocks) if axis not in axes)  # type: ignore[arg-type]
    whole = all(isinstance(blocks[axis], Node) or blocks[axis] == sizes[axis] for axis in axes)  # type: ignore[index]
    return single and whole and (dtype, (low, high)) == (storage(given), given.range)


class Weights:
    """The weights of a module as integers, cached; `deferred`: only their scales, and integers when they are read.

    Weights that are integers already stay what they are, but for the type of their scales.
    """

    def __init__(
        self,
        module: GraphModule,
        *,
        deferred: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        torchao.load("quantization.quant_primitives")  # registers the operators
        self.deferred = deferred
        #: The number of layers, as far as it is known.
        self.total = 0
        self._progress = progress
        self._module = module
        self._known: dict[Any, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    def of(self, layer: Layer) -> tuple[list[int], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """The blocks of a layer's weight; and integers, scales and zero points; or places, tables, and none of these.

        Deferred integers are all zero, and their scales of the type that they are kept in.
        """
        weight, given = layer.weight, layer.weight_quantization
        assert weight is not None and given is not None
        blocks = block_size(weight.meta["val"].shape, given, channel_axis(layer), input_axis(layer))
        key = (weight, given, tuple(blocks))
        if key not in self._known:
            self._known[key] = self._quantized(weight, given, blocks)
            self._progress(len(self._known), max(self.total, len(self._known)))
        return blocks, self._known[key]

    def obstacle(self, layer: Layer) -> str | None:
        """The reason why a layer cannot keep the integers that its weight is already; None for a float weight, too."""
        weight, given = layer.weight, layer.weight_quantization
        found = None if weight is None else given_integers(weight)
        if weight is None or given is None or found is None:
            return None
        blocks = block_size(weight.meta["val"].shape, given, channel_axis(layer), input_axis(layer))
        if given.table is not None:
            return f"its weight is {found} already: the scheme has tables"
        if list(found.blocks) != blocks:
            return f"its weight is {found} already: the scheme has blocks of {' x '.join(map(str, blocks))}"
        low, high = given.range
        dtype = found.integers.meta["val"].dtype
        if dtype != storage(given):
            return f"its weight is of {dtype} already: the scheme has {given.dtype}"
        if (found.low < low or found.high > high) and not self._within(found.integers, low, high):
            return f"its weight is {found} already: the scheme has {low} to {high}"
        if found.zero_point is not None and given.symmetric and evaluate(self._module, found.zero_point).any():
            return f"its weight is {found} already, with zero points: the scheme has none"
        return None

    def _within(self, integers: Node, low: int, high: int) -> bool:
        least, most = evaluate(self._module, integers).aminmax()
        return int(least) >= low and int(most) <= high

    def _taken(
        self, found: Given, given: TensorQuantization, shape: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A placeholder of integers that are there already, with their scales and zero points."""
        held = getattr(torch, given.scale_dtype)
        scale = evaluate(self._module, found.scale).detach().float()
        scale = scale.clamp(max=torch.finfo(held).max).to(held)
        zero = torch.zeros((), dtype=storage(given))
        zero_point = zero.expand(scale.shape)
        if found.zero_point is not None and (values := evaluate(self._module, found.zero_point)).any():
            zero_point = values.to(zero.dtype)
        elif not self.deferred:
            zero_point = zero_point.clone()
        return zero.expand(tuple(shape)), scale if self.deferred else scale.float(), zero_point

    def _quantized(
        self, weight: Node, given: TensorQuantization, blocks: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if (found := given_integers(weight)) is not None:
            return self._taken(found, given, weight.meta["val"].shape)
        values = evaluate(self._module, unconverted(weight)).detach()
        if given.table is not None:
            load_operator()
            tables, none = find_tables(values, given, blocks), torch.zeros(0)
            if self.deferred:
                return torch.zeros((), dtype=torch.uint8).expand(values.shape), tables, none
            return places_in_tables(values, tables).to(torch.uint8), tables, none
        scale, zero_point = _parameters(constant_name(weight), values, given, blocks)
        if not self.deferred:
            return quantize_weight(values, blocks, scale, zero_point, storage(given), *given.range), scale, zero_point
        zero, scale = torch.zeros((), dtype=storage(given)), scale.to(getattr(torch, given.scale_dtype))
        return zero.expand(values.shape), scale, zero_point if zero_point.any() else zero.expand(zero_point.shape)


def unconverted(weight: Node) -> Node:
    """The value that a weight is converted from to float32, without a loss; the weight itself if it is not."""
    source = weight.args[0] if operator_name(weight) in _CONVERSIONS and weight.args else None
    value = source.meta.get("val") if isinstance(source, Node) else None
    lossless = isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return source if lossless and weight.meta["val"].dtype is torch.float32 else weight  # type: ignore[return-value]


@torch.library.custom_op(
    "delegatekit::quantize_weight",
    mutates_args=(),
    schema="(Tensor values, int[] blocks, Tensor scale, Tensor zero_point, ScalarType dtype, int low, int high) "
    "-> Tensor",
)
def quantize_weight(
    values: torch.Tensor,
    blocks: Sequence[int],
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    dtype: torch.dtype,
    low: int,
    high: int,
) -> torch.Tensor:
    """The integers of a weight, a few rows at a time: the float numbers of a large one would take much memory."""
    primitives = torchao.load("quantization.quant_primitives")
    found = torch.empty(values.shape, dtype=dtype)
    for rows, into, scales, zeros in _by_rows(blocks, values, found, scale, zero_point):
        into.copy_(primitives.quantize_affine(rows.float(), list(blocks), scales.float(), zeros, dtype, low, high))
    return found


@quantize_weight.register_fake
def _(values: torch.Tensor, blocks: Any, scale: Any, zero_point: Any, dtype: torch.dtype, *_: Any) -> torch.Tensor:
    return torch.empty(values.shape, dtype=dtype)


def _parameters(
    name: str, values: torch.Tensor, given: TensorQuantization, blocks: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The scales and zero points of a weight."""
    primitives = torchao.load("quantization.quant_primitives")
    low, high = given.range
    held, found = getattr(torch, given.scale_dtype), []
    for (rows,) in _by_rows(blocks, values):
        scale, zero_point = primitives.choose_qparams_affine(
            rows.float(),
            primitives.MappingType.SYMMETRIC if given.symmetric else primitives.MappingType.ASYMMETRIC,
            tuple(blocks),
            target_dtype=storage(given),
            quant_min=low,
            quant_max=high,
            eps=given.eps,
            zero_point_dtype=storage(given),
        )
        if not scale.isfinite().all() and not rows.isfinite().all():
            raise QuantizationError(
                "has infinities or NaNs, which no integers stand for",
                where=f"weight {name}",
                hint="keep_float its layer, if they are meant",
            )
        if zero_point is None:
            zero_point = torch.zeros_like(scale, dtype=storage(given))
        scale = scale.clamp(max=torch.finfo(held).max).to(held).to(scale.dtype)  # before a weight is rounded with it
        found.append((scale, zero_point))
    scales, zeros = zip(*found, strict=True)
    return (scales[0], zeros[0]) if len(found) == 1 else (torch.cat(scales), torch.cat(zeros))


def _by_rows(blocks: Sequence[int], *tensors: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """The same rows of a weight, the first tensor, and of what belongs to it; all at once if some share a block."""
    if blocks[0] != 1:
        yield [*tensors]
        return
    rows = len(tensors[0])
    step = max(1, _AT_ONCE * rows // max(1, tensors[0].numel()))
    for start in range(0, max(1, rows), step):
        yield [item[start : start + step] for item in tensors]


# -- inputs ------------------------------------------------------------------------------------------------------------


def shared_axes(kind: str, rank: int, channels: int) -> range:
    """The dimensions along which all elements of an input share a scale; `channels` counts from the last one."""
    if kind == "token":
        return range(rank + channels, rank + channels + 1)
    return range(1 if kind == "sample" else 0, rank)


def dequantize(
    call: WriteCall, integers: Any, blocks: Sequence[Any], scale: Any, zero_point: Any, given: TensorQuantization
) -> Any:
    """Write the operator that dequantizes integers, or looks up places (int32) in tables, which are the scales here."""
    if given.table is not None:
        return look_up(call, integers, blocks, scale, given)
    arguments = (integers, blocks, scale, zero_point, storage(given), *given.range)
    return call(torch.ops.torchao.dequantize_affine.default, arguments)


def quantize_in_each_call(
    call: WriteCall, value: Any, blocks: Sequence[Any], given: TensorQuantization
) -> tuple[Any, Any, Any]:
    """Write the operators that compute the parameters of a value, and quantize it: integers, scale, zero point."""
    operators, dtype, (low, high) = torch.ops.torchao, storage(given), given.range
    mapping = "SYMMETRIC" if given.symmetric else "ASYMMETRIC"
    arguments = (value, mapping, blocks, dtype, low, high, given.eps, None, dtype)
    chosen = call(operators.choose_qparams_affine.default, arguments)
    scale, zero_point = (call(operator.getitem, (chosen, index)) for index in (0, 1))
    integers = call(operators.quantize_affine.default, (value, blocks, scale, zero_point, dtype, low, high))
    return integers, scale, zero_point
