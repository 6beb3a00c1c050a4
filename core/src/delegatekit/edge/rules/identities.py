"""Operators that are removed: copies, dropout, assertions, and conversions to the same dtype."""

from __future__ import annotations

import torch

from ..builder import EdgeBuilder, Value
from ..draft import Draft
from .table import Family

aten = torch.ops.aten

IDENTITIES = Family("identities")


@IDENTITIES.rule(
    aten.alias.default,
    aten.alias_copy.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.detach_copy.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.lift.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
)
def _identity(b: EdgeBuilder, call: Draft) -> Value:
    # Every value is dense and contiguous, and nothing mutates: a copy is the value itself.
    return call["self"]


@IDENTITIES.rule(
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)
def _dropout(b: EdgeBuilder, call: Draft) -> Value:
    if call["train"] and call["p"] > 0:
        b.refuse("dropout in training mode is random", hint="call model.eval() before torch.export")
    return call["input"]


@IDENTITIES.rule(
    aten._assert_tensor_metadata.default,
    aten._assert_async.msg,
    aten._assert_async.default,
    aten._assert_scalar.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
)
def _assertion(b: EdgeBuilder, call: Draft) -> Value:
    return None


@IDENTITIES.rule(
    aten.to.dtype,
    aten.to.dtype_layout,
    aten.to.device,
    aten.to.other,
    aten._to_copy.default,
    aten.type_as.default,
)
def _convert(b: EdgeBuilder, call: Draft) -> Value:
    x, value = call["self"], call.value
    if value is None:
        return NotImplemented
    if value.device.type not in ("cpu", "meta"):
        b.refuse(f"moves a tensor to device {value.device}", hint="export the model on the CPU")
    if b.dtype(x) == value.dtype:
        return x
    return b.emit(aten._to_copy.default, (x,), {"dtype": value.dtype}, value)


@IDENTITIES.rule(aten.item.default)
def _item(b: EdgeBuilder, call: Draft) -> Value:
    return b.emit(aten._local_scalar_dense.default, (call["self"],), {}, call.value)
