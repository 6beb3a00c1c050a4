"""Models that select: each would be blamed in float16 if indices and masks were compared one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

#: Enough for some numbers to be close.
ROWS: Final = 1500


class Selecting(nn.Module):
    """Scores of rows through tanh, a selection by them, and what it selects through exp."""

    def __init__(self, select: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.score, self.select = nn.Linear(16, 24), nn.Linear(24, 1), select

    def forward(self, x: torch.Tensor) -> Any:
        rows = torch.tanh(self.layer(x))
        return self.select(rows, self.score(rows).squeeze(-1))


def _best(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    best = rows.argmax(-1, keepdim=True)
    return torch.exp(rows.roll(1, -1).gather(1, best) * scores.unsqueeze(-1)), best


def _extremes(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    (most, where), (least, other) = rows.max(-1), rows.min(-1)
    return torch.exp(scores.index_select(0, where) + most - least), other


def _top(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    values, places = scores.topk(len(scores) // 2)
    return torch.exp(rows.index_select(0, places)) * values.unsqueeze(-1)


def _sorted(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    values, places = scores.sort(descending=True)
    weights = torch.linspace(1, 2, len(scores)).unsqueeze(-1)
    return torch.exp(rows.gather(0, places.unsqueeze(-1).expand(-1, 24)) * weights), values


def _stable(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    # Whole numbers, of which most are equal for sure, and real ones.
    bins = torch.arange(len(scores)).remainder(7).to(torch.float32)
    return bins.sort(stable=True).indices, torch.exp(rows.index_select(0, scores.sort(stable=True).indices))


def _order(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    return torch.exp(rows.index_select(0, scores.argsort(descending=True)[: len(scores) // 2]))


def _looked_up(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    table = torch.linspace(-1, 1, 24 * 4).reshape(24, 4).sin() * 3
    return torch.exp(nn.functional.embedding(rows.argmax(-1), table))


def _masked(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    high = rows > 0.25
    kept = torch.where(high & (rows < 0.75), rows, torch.full_like(rows, -2.0))
    return torch.exp(kept), high.to(torch.float32).sum(-1)


def _filled(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    return torch.exp(rows.masked_fill(rows.ge(scores.unsqueeze(-1)), 1.5))


def _binned(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    bins = (rows * 20).floor()
    return torch.exp(bins / 10), ((rows + 1) * 30).to(torch.int64)


def _suppressed(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    """Boxes, the best of which suppress those that they overlap."""
    values, places = scores.topk(8)
    low = rows[:, :2].index_select(0, places)
    high = low + torch.exp(rows[:, 2:4].index_select(0, places))
    inside = torch.minimum(high.unsqueeze(0), high.unsqueeze(1)) - torch.maximum(low.unsqueeze(0), low.unsqueeze(1))
    common, area = inside.clamp(min=0).prod(-1), (high - low).prod(-1)
    overlap = common / (area.unsqueeze(0) + area.unsqueeze(1) - common)
    keep = torch.ones_like(values)
    for place in range(7):
        beaten = (overlap[place] > 0.4) & (torch.arange(8) > place) & (keep[place] > 0.5)
        keep = torch.where(beaten, torch.zeros_like(keep), keep)
    return torch.cat([low, high], -1) * keep.unsqueeze(-1), values * keep


def _looped(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    """The best rows one after another, each of which takes away from the scores of those like it."""
    from torch._higher_order_ops.while_loop import while_loop

    def step(i: torch.Tensor, left: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, ...]:
        best = left.argmax(0, keepdim=True)
        row = rows.index_select(0, best)
        like = (rows - row).abs().sum(-1)
        left = torch.where(like > 4.0, left, left - 2.0)
        return i + 1, left, seen * 0.5 + torch.exp(row)

    start = (torch.tensor(0), torch.tanh(rows.amax(-1) * 2), torch.zeros_like(rows[:1]))
    return while_loop(lambda i, left, seen: i < 5, step, start)[1:]


def _branched(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    def best(rows: torch.Tensor) -> torch.Tensor:
        return torch.exp(rows.roll(1, -1).gather(1, rows.argmax(-1, keepdim=True)))

    return torch.cond(scores.abs().sum() > 0, best, lambda rows: rows[:, :1].clone(), (rows,))


def _mapped(rows: torch.Tensor, scores: torch.Tensor) -> Any:
    """Parts of the rows, one after another."""
    from torch._higher_order_ops.map import map as over

    def best(part: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.sin(scores * 9).index_select(0, part.argmax(-1)))

    return over(best, rows.reshape(4, -1, 24), scores)


SELECTING: Final[Mapping[str, Callable[[torch.Tensor, torch.Tensor], Any]]] = {
    "argmax": _best,
    "extremes": _extremes,
    "topk": _top,
    "sort": _sorted,
    "stable sort": _stable,
    "argsort": _order,
    "embedding": _looked_up,
    "masks": _masked,
    "masked fill": _filled,
    "whole numbers": _binned,
    "suppression": _suppressed,
    "loop": _looped,
    "branch": _branched,
    "map": _mapped,
}


def selecting(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model of the table, and its inputs."""
    return Selecting(SELECTING[name]).eval(), (torch.randn(ROWS, 16, generator=torch.Generator().manual_seed(3)),)
