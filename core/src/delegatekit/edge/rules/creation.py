"""Tensors that depend on no input: all are `full`."""

from __future__ import annotations

import torch
from torch.fx import Node

from ..builder import EdgeBuilder, Rule, Value
from ..draft import Draft
from .table import Family

aten = torch.ops.aten

CREATION = Family("creation")


def _filled(fill: float | None) -> Rule:
    """The rule of *_like and new_*: only shape and dtype of the operand matter. None: the call gives the fill value."""

    def apply(b: EdgeBuilder, call: Draft) -> Value:
        value = call.value
        if value is None:
            return NotImplemented
        number = call["fill_value"] if fill is None else fill
        if isinstance(number, Node):
            return NotImplemented
        return b.emit(aten.full.default, (list(value.shape), number), {"dtype": value.dtype}, b.fake_like(value))

    return apply


CREATION.rule(
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.zeros.default,
    # The content of new memory is undefined. Folded as it is, it would differ in each file, and leak the process' old
    # data.
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.empty_permuted.default,
    aten.empty_strided.default,
    aten.new_empty_strided.default,
)(_filled(0))
CREATION.rule(aten.ones_like.default, aten.new_ones.default, aten.ones.default)(_filled(1))
CREATION.rule(aten.full_like.default, aten.new_full.default)(_filled(None))


@CREATION.rule(aten.arange.start)
def _range(b: EdgeBuilder, call: Draft) -> Value:
    # The runtime has a kernel for the form with a step. Known bounds are folded in either form.
    start, end, value = call["start"], call["end"], call.value
    if value is None:
        return NotImplemented
    value = b.fake_like(value)
    return b.emit(aten.arange.start_step, (start, end, 1), {"dtype": value.dtype}, value)
