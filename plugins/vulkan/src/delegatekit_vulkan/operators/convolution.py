"""Convolutions over one or two axes, as calls of those that the runtime has.

Over two axes the runtime takes one image, groups of one channel or of whole texels, and no transposed kernel with gaps.
Other convolutions are split by image and by group, and joined again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from delegatekit_api import Call
from delegatekit_api.schemes import Quantization
from delegatekit_toolkit.constraints import constant, dtypes
from delegatekit_toolkit.quantized import known_data
from delegatekit_toolkit.sizes import Size, dynamic_count
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Tensor
from .common import as_numbers
from .conditions import far_windows, short_loops
from .program import Lower, ProgramBuilder

#: Convolutions that one call may become.
_MOST_PARTS: Final = 32
#: Channels of a texel.
_TEXEL: Final = 4


@dataclass(frozen=True)
class _Convolution:
    """The constants and settings of a convolution; lists have a number for each axis."""

    #: Its numbers; or integers, which `quantization` makes numbers of.
    weight: torch.Tensor
    quantization: Quantization | None
    bias: torch.Tensor | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    @property
    def of_numbers(self) -> _Convolution:
        """The same with its weight as numbers."""
        return replace(self, weight=as_numbers(self.weight, self.quantization), quantization=None)

    @property
    def inputs(self) -> int:
        """Channels of the input in a group."""
        return self.weight.shape[0] // self.groups if self.transposed else self.weight.shape[1]

    @property
    def outputs(self) -> int:
        """Channels of the result in a group."""
        return self.weight.shape[1] if self.transposed else self.weight.shape[0] // self.groups

    @property
    def is_flat(self) -> bool:
        """True for a convolution over one axis."""
        return self.weight.dim() == 3

    @property
    def is_depthwise(self) -> bool:
        """True if each channel of the input has its own kernels."""
        return self.inputs == 1 and self.groups > 1 and not self.transposed

    @property
    def is_whole(self) -> bool:
        """True if the runtime computes all groups at once."""
        if self.groups == 1:
            return True
        if self.transposed:
            return False
        whole_texels = self.inputs % _TEXEL == 0 and self.outputs % _TEXEL == 0
        return self.is_flat or whole_texels or (self.is_depthwise and self.outputs == 1)

    @property
    def parts(self) -> int:
        """Convolutions that the groups of one image become, unless it `is_whole`."""
        return self.outputs if self.is_depthwise else self.groups


def _of(call: Call) -> _Convolution:
    weight, own = known_data(call["weight"])
    bias = call["bias"]
    return _Convolution(
        weight,
        own,
        None if bias is None else as_numbers(*known_data(bias)),
        stride=tuple(call["stride"]),
        padding=tuple(call["padding"]),
        dilation=tuple(call["dilation"]),
        transposed=call["transposed"],
        output_padding=tuple(call["output_padding"]),
        groups=call["groups"],
    )


# -- lowering ----------------------------------------------------------------------------------------------------------


def _convolution(b: ProgramBuilder, call: Call) -> Tensor:
    x, shape, convolution = b.tensor(call["input"]), b.shape(call), _of(call)
    if convolution.is_flat and convolution.transposed:
        # The runtime has transposed convolutions over two axes only.
        wide = b.call("aten.unsqueeze_copy.default", [x, 2], (*x.shape[:2], 1, x.shape[2]))
        result = _by_image(b, wide, _with_height(convolution), (*shape[:2], 1, shape[2]))
        return b.call("aten.squeeze_copy.dims", [result, (2,)], shape)
    return _by_group(b, x, convolution, shape) if convolution.is_flat else _by_image(b, x, convolution, shape)


def _with_height(convolution: _Convolution) -> _Convolution:
    """The same convolution over images of one row."""
    return replace(
        convolution,
        weight=convolution.weight.unsqueeze(2),
        stride=(1, *convolution.stride),
        padding=(0, *convolution.padding),
        dilation=(1, *convolution.dilation),
        output_padding=(0, *convolution.output_padding),
    )


def _by_image(b: ProgramBuilder, x: Tensor, convolution: _Convolution, shape: Sequence[Size]) -> Tensor:
    images = x.shape[0]
    if images == 1:
        return _by_group(b, x, convolution, shape)
    assert isinstance(images, int)
    one = (1, *shape[1:])
    parts = [_by_group(b, _slice(b, x, 0, image, 1), convolution, one) for image in range(images)]
    return b.call("aten.cat.default", [tuple(parts), 0], shape, x.datatype)


def _by_group(b: ProgramBuilder, x: Tensor, convolution: _Convolution, shape: Sequence[Size]) -> Tensor:
    if convolution.is_whole:
        return _call(b, x, convolution, shape)
    if convolution.is_depthwise:
        return _by_kernel(b, x, convolution, shape)
    inputs, outputs = convolution.inputs, convolution.outputs
    convolution = convolution.of_numbers
    parts = []
    for group in range(convolution.groups):
        rows = inputs if convolution.transposed else outputs
        weight = convolution.weight.narrow(0, group * rows, rows)
        bias = None if convolution.bias is None else convolution.bias.narrow(0, group * outputs, outputs)
        piece = _slice(b, x, 1, group * inputs, inputs)
        part = replace(convolution, weight=weight, bias=bias, groups=1)
        parts.append(_call(b, piece, part, (shape[0], outputs, *shape[2:])))
    return b.call("aten.cat.default", [tuple(parts), 1], shape, x.datatype)


def _by_kernel(b: ProgramBuilder, x: Tensor, convolution: _Convolution, shape: Sequence[Size]) -> Tensor:
    """The first kernel of each channel, the second of each, ...: their results take turns among the channels."""
    channels, kernels = convolution.groups, convolution.outputs
    convolution = convolution.of_numbers
    weight = convolution.weight.reshape(channels, kernels, *convolution.weight.shape[1:])
    bias = None if convolution.bias is None else convolution.bias.reshape(channels, kernels)
    one = (1, channels, *shape[2:])
    parts = []
    for kernel in range(kernels):
        part = replace(convolution, weight=weight[:, kernel], bias=None if bias is None else bias[:, kernel])
        result = _call(b, x, part, one)
        parts.append(b.call("aten.permute_copy.default", [result, (1, 0, 2, 3)], (channels, 1, *shape[2:])))
    turns = b.call("aten.cat.default", [tuple(parts), 1], (channels, kernels, *shape[2:]), x.datatype)
    sizes = tuple(size if isinstance(size, int) else -1 for size in shape)
    return b.call("aten.view_copy.default", [turns, sizes], shape)


def _slice(b: ProgramBuilder, x: Tensor, axis: int, start: int, size: int) -> Tensor:
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return b.call("aten.slice_copy.Tensor", [x, axis, start, start + size, 1], shape)


def _call(b: ProgramBuilder, x: Tensor, convolution: _Convolution, shape: Sequence[Size]) -> Tensor:
    own = convolution.quantization
    weight = convolution.weight
    arguments = [
        x,
        b.constant(weight) if own is None else b.integers(weight, own, x.datatype),
        None if convolution.bias is None else b.constant(convolution.bias),
        convolution.stride,
        convolution.padding,
        convolution.dilation,
        convolution.transposed,
        convolution.output_padding,
        convolution.groups,
    ]
    return b.call("aten.convolution.default", arguments, shape)


# -- conditions --------------------------------------------------------------------------------------------------------


def one_or_two_axes(call: Call) -> str | None:
    """Over one or two axes."""
    axes = call["input"].rank - 2
    return None if axes in (1, 2) else f"a convolution over {axes} axes: the runtime has those over one or two"


def known_images(call: Call) -> str | None:
    """Over two axes, or transposed: at most 32 images, and always as many."""
    images = shape_of(call["input"])[0]
    if call["input"].rank == 3 and not call["transposed"]:
        return None
    if dynamic_count((images,)):
        return f"{images} images: the runtime takes one at a time, and their number changes from call to call"
    return _too_many(images, "images") if images != 1 else None


def few_groups(call: Call) -> str | None:
    """Groups are of one channel, or of whole texels (4 channels), or at most 32 for all images."""
    convolution = _of(call)
    if convolution.is_whole:
        return None
    if convolution.is_depthwise and dynamic_count(shape_of(call.result)) > 1:
        return "several kernels for each channel, and several sizes that change: channels could not be put in order"
    images = shape_of(call["input"])[0]
    assert isinstance(images, int)
    of = f"{images} images of {convolution.inputs} to {convolution.outputs} channels in {convolution.groups} groups"
    return _too_many(convolution.parts * images, f"convolutions for {of}")


def no_gaps(call: Call) -> str | None:
    """A transposed convolution has dilation 1."""
    if not call["transposed"] or all(step == 1 for step in call["dilation"]):
        return None
    return f"a transposed convolution with dilation {list(call['dilation'])}: the runtime's has no gaps in the kernel"


def few_terms(call: Call) -> str | None:
    """At most about 60000 terms of each result: channels times elements of the kernel."""
    weight, groups = call["weight"].shape, call["groups"]
    inputs = weight[0] // groups if call["transposed"] else weight[1]
    return short_loops(*(1, *weight[2:])[-2:], inputs)  # the runtime's windows have a height, if only of 1


def near_windows(call: Call) -> str | None:
    """stride, padding, and dilation times the kernel are below 2^24."""
    reach = (size * step for size, step in zip(call["weight"].shape[2:], call["dilation"], strict=True))
    return far_windows(*call["stride"], *call["padding"], *reach)


def _too_many(count: Any, what: str) -> str | None:
    return None if count <= _MOST_PARTS else f"{count} {what}: each would be a call of its own, {_MOST_PARTS} at most"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "convolution.default",
        _convolution,
        one_or_two_axes,
        dtypes("float32", "float16"),
        constant("weight", "bias"),
        no_gaps,
        known_images,
        few_groups,
        few_terms,
        near_windows,
    ),
)
