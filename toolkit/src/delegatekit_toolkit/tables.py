"""Weights as places in tables of numbers: which number of its table stands for each of them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Numbers that get their places at a time.
_AT_ONCE = 1 << 20


def operator_module() -> str:
    """The name of torchao's module that registers `quant.dequantize_codebook`, which looks numbers up in tables.

    It is one of torchao's prototypes, and found by its file. Raises ImportError if torchao has none, or is missing.
    """
    parent = "torchao.prototype.quantization"
    spec = find_spec(parent)
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    for folder in folders:
        for path in Path(folder).glob("codebook_*/codebook_ops.py"):
            return f"{parent}.{path.parent.name}"
    raise ImportError("torchao has no codebook_ops")


def places(values: torch.Tensor, tables: torch.Tensor, *, balance: bool = True) -> torch.Tensor:
    """The places of numbers (C, K) in ascending tables, (C, N) or one (1, N) for all rows, as int32: the nearest, or,
    with `balance`, those of `balanced`.

    >>> import torch
    >>> places(torch.tensor([[0.1, 0.9], [2.0, -3.0]]), torch.tensor([[0.0, 1.0], [-2.0, 2.0]])).tolist()
    [[0, 1], [1, 0]]
    """
    import torch

    count, width = values.shape
    found = torch.empty(values.shape, dtype=torch.int32)
    step = max(1, _AT_ONCE // max(1, width))
    for start in range(0, count, step):
        rows = values[start : start + step].float()
        own = tables.float().expand(count, -1)[start : start + step].contiguous()
        nearest = torch.searchsorted((own[:, 1:] + own[:, :-1]) / 2, rows)
        found[start : start + step] = balanced(rows, nearest, own) if balance else nearest
    return found


def balanced(values: torch.Tensor, found: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
    """Places in the rows of ascending tables (C, N) for values (C, K), close to those `found`, but such that the errors
    of a row add up to nearly nothing: a row is a channel, and what its inputs have in common (after a ReLU they are
    positive) would add up, too. Those places move to their neighbor where it costs least.

    >>> import torch
    >>> balanced(torch.tensor([[0.4, 0.4, 0.3]]), torch.tensor([[0, 0, 0]]), torch.tensor([[0.0, 1.0]]))
    tensor([[1, 0, 0]])
    """
    import torch

    entries = tables.gather(1, found)
    errors = entries - values
    total = errors.sum(1, keepdim=True)
    # At the ends of a table there is no neighbor: no gap.
    moved = (found - total.sign().to(found.dtype)).clamp(0, tables.shape[1] - 1)
    gaps = (entries - tables.gather(1, moved)).abs()
    helps = (errors * total > 0) & (gaps > 0)
    # By how much the squared error grows, for each unit that the sum comes nearer to nothing.
    order = torch.where(helps, gaps - 2 * errors.abs(), torch.inf).argsort(stable=True, dim=1)
    steps = torch.where(helps, gaps, torch.inf).gather(1, order)
    is_moved = torch.zeros_like(helps).scatter(1, order, steps.cumsum(1) - steps / 2 <= total.abs())
    return torch.where(is_moved, moved, found)
