"""Inputs and outputs as a bundle's tables, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from delegatekit.errors import as_ours
from delegatekit.pte import scalar_type, torch_dtype
from delegatekit_api import FormatError, UnsupportedError

from . import schema as tables


def to_value(item: Any, order: Sequence[int] | None, where: str) -> tables.Value:
    """An input or output as a table; `order` is the dim order in which a tensor's content is written.

    Raises FormatError for values that a bundle cannot hold: strings, and tensors that are not dense.
    """
    if item is None:
        return tables.Value(None)
    if isinstance(item, bool):
        return tables.Value(tables.Bool(item))
    if isinstance(item, int):
        if not -(1 << 63) <= item < 1 << 63:
            raise FormatError(f"is {item}, which has more than 64 bits", where=where)
        return tables.Value(tables.Int(item))
    if isinstance(item, float):
        return tables.Value(tables.Double(item))
    if not isinstance(item, torch.Tensor):
        raise FormatError(f"is a {type(item).__name__}, which a bundle has no value for", where=where)
    dims = list(order) if order is not None and len(order) == item.dim() else list(range(item.dim()))
    dense = item.detach().cpu().permute(dims).contiguous()
    content = dense.reshape(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    return tables.Value(tables.Tensor(int(scalar_type(item.dtype)), list(item.shape), content, bytes(dims)))


def from_value(value: tables.Value, where: str) -> Any:
    """The value of a table. Tensors are copies. Raises FormatError for element types that PyTorch lacks."""
    found = value.val
    if not isinstance(found, tables.Tensor):
        return None if found is None else next(iter(vars(found).values()))
    try:
        dtype = torch_dtype(found.scalar_type)
    except UnsupportedError as error:
        raise FormatError(error.what, where=where) from None
    sizes, order = found.sizes or [], list(found.dim_order or b"")
    stored = [sizes[dim] for dim in order]
    if not found.nbytes:
        with as_ours(lambda fault: FormatError(fault, where=where)):  # sizes beside a zero may be of any size
            return torch.empty(sizes, dtype=dtype)
    dense = torch.frombuffer(bytearray(found.data or b""), dtype=dtype).reshape(stored)
    return dense.permute([order.index(dim) for dim in range(len(order))]).contiguous()
