"""Weights of layers: as they are, or as integers with their scales, which OpenVINO unpacks while it computes."""

from __future__ import annotations

from delegatekit_api import Call

from ..ir.builder import ModelBuilder, Value


def weight_of(b: ModelBuilder, call: Call) -> Value:
    """The value of a layer's weight."""
    return b.value(call["weight"])
