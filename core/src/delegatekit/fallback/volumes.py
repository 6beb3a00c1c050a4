"""Convolution in three dimensions as a sum of convolutions in two, one for each place along the kernel's depth.

The stock runtime has no kernel for it, and neither have many backends: this lets them run it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ..edge.builder import EdgeBuilder, Value
from ..edge.draft import Draft
from ..edge.rules.writing import permute, slice_dim, view
from ..edge.sizes import is_static

aten = torch.ops.aten


def convolution_3d(b: EdgeBuilder, call: Draft) -> Value:
    """`aten.convolution` of (N, C, D, H, W) by convolutions of the N * D planes; NotImplemented for other ranks."""
    x, weight, bias, value = call["input"], call["weight"], call["bias"], call.value
    stride, padding, dilation, output_padding = call["stride", "padding", "dilation", "output_padding"]
    transposed, groups = call["transposed", "groups"]
    if len(b.shape(weight)) != 5 or not is_static(b.shape(x)) or not value.dtype.is_floating_point:
        return NotImplemented
    result: Node | None = None
    planes = (stride[1:], padding[1:], dilation[1:], transposed, output_padding[1:], groups)
    deep = permute(b, x, (0, 2, 1, 3, 4))
    if transposed:
        result = _transposed(b, deep, weight, planes, value.shape[2], (stride[0], padding[0], dilation[0]))
        if result is None:
            return NotImplemented
        if bias is not None:
            result = b.call(aten.add.Tensor, result, view(b, bias, (b.shape(bias)[0], 1, 1)))
    else:
        pads = [0] * 6 + [padding[0]] * 2
        deep = b.call(aten.constant_pad_nd.default, deep, pads, 0.0) if padding[0] else deep
        last = (value.shape[2] - 1) * stride[0] + 1
        for place in range(b.shape(weight)[2]):
            first = place * dilation[0]
            chosen = slice_dim(b, deep, 1, first, first + last, step=stride[0])
            part = _planes(b, chosen, weight, place, bias if place == 0 else None, planes)
            result = part if result is None else b.call(aten.add.Tensor, result, part)
    assert result is not None  # a kernel has at least one plane
    return permute(b, result, (0, 2, 1, 3, 4))


def _planes(b: EdgeBuilder, x: Node, weight: Node, place: int, bias: Node | None, settings: tuple[Any, ...]) -> Node:
    """x (N, D, C, H, W), each plane convolved with the kernel's plane at `place`."""
    batch, depth, *plane = b.shape(x)
    kernel = b.call(aten.select.int, weight, 2, place)
    images = b.call(aten.convolution.default, view(b, x, (batch * depth, *plane)), kernel, bias, *settings)
    return view(b, images, (batch, depth, *b.shape(images)[1:]))


def _transposed(
    b: EdgeBuilder, x: Node, weight: Node, planes: tuple[Any, ...], depth: int, along: tuple[int, int, int]
) -> Node | None:
    """The sum without bias, of `depth` planes; None if none of the kernel's planes reaches into it."""
    stride, padding, dilation = along
    result: Node | None = None
    for place in range(b.shape(weight)[2]):
        part = _planes(b, x, weight, place, None, planes)
        batch, count, *plane = b.shape(part)
        if stride > 1:
            # Planes of zeros in between.
            apart = b.call(
                aten.constant_pad_nd.default, b.call(aten.unsqueeze.default, part, 2), [0] * 7 + [stride - 1]
            )
            part = slice_dim(b, view(b, apart, (batch, count * stride, *plane)), 1, 0, (count - 1) * stride + 1)
        before = place * dilation - padding
        after = depth - before - b.shape(part)[1]
        if min(before, 0) + min(after, 0) <= -b.shape(part)[1]:
            continue
        placed = b.call(aten.constant_pad_nd.default, part, [0] * 6 + [before, after], 0.0)
        result = placed if result is None else b.call(aten.add.Tensor, result, placed)
    return result
