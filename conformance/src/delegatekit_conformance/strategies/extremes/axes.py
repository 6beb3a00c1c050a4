"""Written examples of settings for each axis, of which one differs from the usual: the first one's, or the last one's.

Draws often have the same number along all axes, and one that is read of the wrong axis, or of one for all, is seen only
where they differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ...recipe import Recipe, Ref, Values
from .rows import row
from .sketch import HurtfulSketch

#: Few numbers, whose products and sums are exact in every floating-point type.
_FEW: Values = ("among", (0.5, 1.0, -1.0, 2.0))
#: Setting -> its usual number and another one.
_SETTINGS: Mapping[str, tuple[int, int]] = {"kernel": (3, 2), "stride": (1, 2), "padding": (0, 1), "dilation": (1, 2)}


def _rank(name: str) -> int:
    """The number of axes of images that an operator takes."""
    return next((int(name[at - 1]) for at in range(1, len(name)) if name[at] == "d" and name[at - 1].isdigit()), 2)


def _ends(rank: int, usual: Any, other: Any) -> list[list[Any]]:
    """The usual thing along all axes but the last, and but the first."""
    return [[other if axis == at else usual for axis in range(rank)] for at in (rank - 1, 0)]


def _forms(rank: int, *names: str, **usual: int) -> Iterator[dict[str, list[int]]]:
    """Settings for each axis, one of which differs at one end. `usual` are other usual numbers than those above."""
    for name in names:
        before, other = _SETTINGS[name]
        for numbers in _ends(rank, usual.get(name, before), other):
            yield {one: [usual.get(one, _SETTINGS[one][0])] * rank for one in _SETTINGS} | {name: numbers}


_CONVOLUTIONS = ("aten.conv2d.default", "aten.conv3d.default", "aten.convolution.default")


def _convolved(sketch: HurtfulSketch, name: str, rank: int, groups: int) -> list[Ref]:
    made = []
    for form in _forms(rank, *_SETTINGS):
        # Each axis has a size of its own, none of them the number of channels.
        x = sketch.tensor((1, 4, *(7, 6, 5)[-rank:]), values=_FEW, layouts=False)
        weight = sketch.tensor((8, 4 // groups, *form["kernel"]), values=_FEW, constant=True)
        more: list[Any] = [False, [0] * rank] if name == "aten.convolution.default" else []
        lists = (form["stride"], form["padding"], form["dilation"])
        made.append(sketch.call(name, x, weight, None, *lists, *more, groups))
    return made


@row(*_CONVOLUTIONS)
def _convolutions(sketch: HurtfulSketch, name: str) -> Recipe:
    """Convolutions whose window, step, padding or distance of taps is another along one axis."""
    rank = _rank(name)
    return sketch.recipe(*_convolved(sketch, name, rank, 1), reduction_length=4 * 3**rank)


@row("aten.conv2d.default", "aten.convolution.default")
def _channel_by_channel(sketch: HurtfulSketch, name: str) -> Recipe:
    """Likewise, for each channel by itself."""
    return sketch.recipe(*_convolved(sketch, name, 2, 4), reduction_length=9)


@row("aten.conv2d.padding", "aten.conv3d.padding")
def _padded_by_name(sketch: HurtfulSketch, name: str) -> Recipe:
    """Likewise, with padding that follows from the window, of even windows on one side only."""
    rank = _rank(name)
    made = []
    for padding, settings in (("same", ("kernel", "dilation")), ("valid", ("kernel", "stride", "dilation"))):
        for form in _forms(rank, *settings):
            x = sketch.tensor((1, 4, *(7, 6, 5)[-rank:]), values=_FEW, layouts=False)
            weight = sketch.tensor((5, 4, *form["kernel"]), values=_FEW, constant=True)
            made.append(sketch.call(name, x, weight, None, form["stride"], padding, form["dilation"], 1))
    return sketch.recipe(*made, reduction_length=4 * 3**rank)


def _transposed(sketch: HurtfulSketch, name: str, groups: int) -> Recipe:
    rank = _rank(name)
    made = []
    forms = [(form, [0] * rank) for form in _forms(rank, *_SETTINGS)]
    forms += [(next(_forms(rank, "kernel", stride=2)) | {"kernel": [3] * rank}, more) for more in _ends(rank, 0, 1)]
    for form, more in forms:
        x = sketch.tensor((1, 4, *(3, 5, 6)[-rank:]), values=_FEW, layouts=False)
        weight = sketch.tensor((4, 8 // groups, *form["kernel"]), values=_FEW, constant=True)
        stride, padding, dilation = form["stride"], form["padding"], form["dilation"]
        arguments: list[Any] = [stride, padding, more, groups, dilation]
        if name == "aten.convolution.default":
            arguments = [stride, padding, dilation, True, more, groups]
        made.append(sketch.call(name, x, weight, None, *arguments))
    return sketch.recipe(*made, reduction_length=4 * 3**rank)


@row("aten.conv_transpose2d.input", "aten.conv_transpose3d.input", "aten.convolution.default")
def _transposed_convolutions(sketch: HurtfulSketch, name: str) -> Recipe:
    """Transposed convolutions, with elements that are added at one end of one axis, too."""
    return _transposed(sketch, name, 1)


@row("aten.conv_transpose2d.input")
def _transposed_channel_by_channel(sketch: HurtfulSketch, name: str) -> Recipe:
    """Likewise, for each channel by itself."""
    return _transposed(sketch, name, 4)


@row(
    *(f"aten.{kind}_pool{rank}d.default" for kind in ("avg", "max") for rank in (2, 3)),
    *(f"aten.max_pool{rank}d_with_indices.default" for rank in (2, 3)),
)
def _pools(sketch: HurtfulSketch, name: str) -> Recipe:
    """Pools whose window, step, padding or distance of taps is another along one axis, with overhang and without."""
    rank, largest = _rank(name), "max" in name
    settings = ("kernel", "stride", "padding", "dilation")[: 4 if largest else 3]
    made = []
    for form in _forms(rank, *settings):
        for overhangs in (False, True) if form["stride"] != [1] * rank else (False,):
            values: Values = ("distinct",) if largest else ("uniform", 0.5, 1.5)
            x = sketch.tensor((1, 2, *(7, 6, 9)[-rank:]), values=values, layouts=False)
            more: list[Any] = [form["dilation"]] if largest else []
            found = sketch.call(name, x, form["kernel"], form["stride"], form["padding"], *more, overhangs)
            made += [Ref(found.name, 0), Ref(found.name, 1)] if "_with_indices" in name else [found]
    return sketch.recipe(*made, reduction_length=1 if largest else 3**rank, exact=largest)


@row(
    *(f"aten.adaptive_{kind}_pool{rank}d.default" for kind in ("avg", "max") for rank in (2, 3)),
    *(f"aten._adaptive_avg_pool{rank}d.default" for rank in (2, 3)),
)
def _adaptive_pools(sketch: HurtfulSketch, name: str) -> Recipe:
    """As many windows along all axes but one, of which there are 1, the axis' own, a divisor of that, or others."""
    rank, largest = _rank(name), "max" in name
    made = []
    for usual, other in ((3, 1), (2, 6), (1, 3), (3, 4), (6, 2)):
        for sizes in _ends(rank, usual, other):
            values: Values = ("distinct",) if largest else ("uniform", 0.5, 1.5)
            found = sketch.call(name, sketch.tensor((1, 2, *[6] * rank), values=values, layouts=False), sizes)
            made += [Ref(found.name, 0), Ref(found.name, 1)] if largest else [found]
    return sketch.recipe(*made, reduction_length=1 if largest else 6**rank, exact=largest)


#: Factors of an axis and sizes, of which the factor is the ratio of the sizes after and before, or is not. Of nearest
#: neighbours, all places are exact in binary, or never nearly whole.
_RATIO = (2.0, 4)
_NO_RATIO: Mapping[str, tuple[tuple[float, int], ...]] = {
    "nearest": ((3.125, 3), (0.25, 19)),
    "linear": ((1.5, 5), (0.75, 7)),
}


@row(
    *(
        f"aten.{name}.{overload}"
        for name in (
            *("upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_bilinear2d_aa"),
            *(f"upsample_nearest{rank}d" for rank in (2, 3)),
            *(f"_upsample_nearest_exact{rank}d" for rank in (2, 3)),
        )
        for overload in ("vec", "default")
    )
)
def _factors(sketch: HurtfulSketch, name: str) -> Recipe:
    """Factors that are the ratio of the sizes along all axes but one, where pixels lie at other places."""
    rank, nearest = _rank(name), "nearest" in name
    made = []
    for other in _NO_RATIO["nearest" if nearest else "linear"]:
        for axes in _ends(rank, _RATIO, other):
            factors, sizes = [factor for factor, _ in axes], [size for _, size in axes]
            outputs = [math.floor(factor * size) for factor, size in axes]
            for corners in [[]] if nearest else [[False], [True]]:
                x = sketch.tensor((1, 2, *sizes), values=("uniform", 0.5, 1.5), layouts=False)
                if name.endswith(".vec"):
                    made.append(sketch.call(name, x, None, *corners, factors))
                else:
                    made.append(sketch.call(name, x, outputs, *corners, *factors))
    if nearest:
        return sketch.recipe(*made, exact=True)
    length = 36 if "_aa" in name else 16 if "cubic" in name else 2**rank
    return sketch.recipe(*made, reduction_length=length, depth=4)
