"""Weights as places in tables: the tables that a scheme's function finds, and torchao's operator that looks them up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from delegatekit_api import QuantizationError
from delegatekit_api.schemes import TensorQuantization
from delegatekit_toolkit.tables import operator_module, places

from . import torchao


def load_operator() -> None:
    """Register torchao's operator that looks numbers up in tables. Raises QuantizationError if torchao is missing."""
    torchao.load("prototype.quantization")
    torchao.load(operator_module().removeprefix("torchao."))


def find_tables(values: torch.Tensor, given: TensorQuantization, blocks: Sequence[int]) -> torch.Tensor:
    """The tables of a weight in torchao's form: (blocks along each dimension, entries, 1), in float32.

    Only the first dimension, that of the output channels, may have several blocks. The numbers ascend, and are rounded
    to the type that the file has. Raises QuantizationError if the scheme's function gives something else.
    """
    assert given.table is not None
    entries, held = given.range[1] + 1, getattr(torch, given.scale_dtype)
    found = []
    for part in torch.split(values, blocks[0]):
        table = given.table(part, entries)
        if not isinstance(table, torch.Tensor) or table.shape != (entries,) or not table.isfinite().all():
            raise QuantizationError(f"the scheme is wrong: its function for tables gave no {entries} finite numbers")
        most = torch.finfo(held).max
        found.append(table.float().clamp(-most, most).to(held).float().sort().values)
    return torch.stack(found).reshape(len(found), *[1] * (values.dim() - 1), entries, 1)


@torch.library.custom_op(
    "delegatekit::places_in_tables", mutates_args=(), schema="(Tensor values, Tensor tables) -> Tensor"
)
def places_in_tables(values: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
    """The places of a weight's numbers in its tables, as int32: the type that PyTorch looks up with."""
    rows = tables.reshape(tables.shape[0], -1)
    parts = torch.split(values.reshape(values.shape[0], -1), values.shape[0] // len(rows))
    found = [places(part, row[None]) for part, row in zip(parts, rows, strict=True)]
    return torch.cat(found).reshape(values.shape)


@places_in_tables.register_fake
def _(values: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
    return torch.empty(values.shape, dtype=torch.int32)


def look_up(call: Any, codes: Any, blocks: Sequence[int], tables: Any, given: TensorQuantization) -> Any:
    """Write the operator that looks numbers up."""
    bits = int(math.log2(given.range[1] + 1))
    return call(torch.ops.quant.dequantize_codebook.default, (codes, tables, bits, list(blocks), torch.float32))
