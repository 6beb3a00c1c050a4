"""Layers with one obvious form: softmax, convolution, padding, adaptive pooling to one size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..builder import EdgeBuilder, Value
from ..draft import Draft
from ..sizes import is_static, same_shape
from .table import Family
from .writing import convert, per_dim, slice_dim

aten = torch.ops.aten

LAYERS = Family("layers")


@LAYERS.rule(aten.softmax.int, aten._softmax.default)
def _softmax(b: EdgeBuilder, call: Draft) -> Value:
    return _softmax_like(b, aten._softmax.default, call)


@LAYERS.rule(aten.log_softmax.int, aten._log_softmax.default)
def _log_softmax(b: EdgeBuilder, call: Draft) -> Value:
    return _softmax_like(b, aten._log_softmax.default, call)


def _softmax_like(b: EdgeBuilder, target: OpOverload, call: Draft) -> Value:
    x, dim = call["self", "dim"]
    dtype = call.get("dtype")
    if dtype is not None:
        x = convert(b, x, dtype)
    return b.emit(target, (x, dim, False), {}, b.fake(b.shape(x), b.dtype(x)))


# -- convolution -----------------------------------------------------------------------------------------------------


@LAYERS.rule(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
def _convolution(b: EdgeBuilder, call: Draft) -> Value:
    return _emit_convolution(b, call, transposed=False, output_padding=0)


@LAYERS.rule(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def _transposed_convolution(b: EdgeBuilder, call: Draft) -> Value:
    return _emit_convolution(b, call, transposed=True, output_padding=call["output_padding"])


@LAYERS.rule(aten.convolution.default)
def _whole_convolution(b: EdgeBuilder, call: Draft) -> Value:
    # A list of one number applies to all dimensions; kernels and backends get one number for each.
    spatial = len(b.shape(call["weight"])) - 2
    given = call["stride", "padding", "dilation", "output_padding"]
    full = tuple(per_dim(setting, spatial) for setting in given)
    if full == given:
        return NotImplemented
    stride, padding, dilation, output_padding = full
    return b.call(
        aten.convolution.default,
        *call["input", "weight", "bias"],
        *(stride, padding, dilation, call["transposed"], output_padding, call["groups"]),
        value=call.value,
    )


def _emit_convolution(b: EdgeBuilder, call: Draft, *, transposed: bool, output_padding: Any) -> Value:
    x, weight, bias = call["input", "weight", "bias"]
    spatial = len(b.shape(weight)) - 2
    if len(b.shape(x)) != spatial + 2:
        return NotImplemented  # no batch dimension: the decomposition adds and removes one
    settings = [per_dim(setting, spatial) for setting in call["stride", "padding", "dilation"]]
    full = (x, weight, bias, *settings, transposed, per_dim(output_padding, spatial), call["groups"])
    return b.call(aten.convolution.default, *full, value=call.value)


# -- padding ---------------------------------------------------------------------------------------------------------


@LAYERS.rule(aten.pad.default)
def _pad(b: EdgeBuilder, call: Draft) -> Value:
    x, padding, mode, fill = call["self", "pad", "mode", "value"]
    return _padded(b, x, padding, 0.0 if fill is None else fill, call.value) if mode == "constant" else NotImplemented


@LAYERS.rule(aten.constant_pad_nd.default)
def _constant_pad(b: EdgeBuilder, call: Draft) -> Value:
    x, padding, fill = call["self", "pad", "value"]
    return _padded(b, x, padding, fill, call.value)


def _padded(b: EdgeBuilder, x: Node, padding: Sequence[Any], fill: Any, value: Any) -> Node:
    whole = x
    for number, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True), 1):
        # A negative padding crops: written as a slice.
        size = b.shape(x)[-number]
        if not is_static((before, after)):
            return b.emit(aten.constant_pad_nd.default, (whole, padding, fill), {}, value)
        x = slice_dim(b, x, -number, max(0, -before), size - max(0, -after))
    added = [max(0, amount) for amount in padding]
    return b.emit(aten.constant_pad_nd.default, (x, added, fill), {}, value) if any(added) else x


# -- pooling to one size ---------------------------------------------------------------------------------------------


@LAYERS.rule(aten.adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d.default)
def _adaptive_average(b: EdgeBuilder, call: Draft) -> Value:
    x, size = call["self"], list(call["output_size"])
    if same_shape(size, b.shape(x)[-2:]):
        return x
    if size == [1, 1]:
        return b.emit(aten.mean.dim, (x, [-1, -2], True), {}, call.value)
    return b.emit(aten._adaptive_avg_pool2d.default, (x, size), {}, call.value)
