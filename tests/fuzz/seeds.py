"""Real files to damage: ours (static, delegated, control flow, sizes that change, state, two methods) and stock's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import delegatekit as dk


@dataclass(frozen=True)
class Seed:
    """A program, its data files and the inputs of its method "forward"."""

    name: str
    program: bytes
    data: tuple[bytes, ...]
    inputs: tuple[Any, ...]


class Static(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.conv(x)).mean((2, 3))
        left, right = torch.split(torch.cat([y, self.head(y)], 1), [4, 5], 1)
        return torch.topk(right, 2)[0], torch.where(left > 0, left, 0.0).to(torch.int64)


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.exp() + 1, lambda a: a * 2, (x,))


class Dynamic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.layer(x), x.flip(0)]).reshape(2, -1, 4)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.full((3,), 100.0))
        self.register_buffer("table", torch.zeros(4, 3))

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        self.table.index_copy_(0, index, self.count.unsqueeze(0))
        return self.table.sum(0) + self.count


class Delegated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.cumsum(torch.relu(self.first(x)), 1))


def _lowered(module: nn.Module, inputs: tuple[Any, ...], **more: Any) -> dk.LoweredProgram:
    shapes = more.pop("shapes", None)
    exported = torch.export.export(module.eval(), inputs, dynamic_shapes=shapes)
    return dk.lower(exported, backends=more.pop("backends", []), **more)


X = torch.linspace(-1, 1, 12)
_MAKERS: dict[str, tuple[Callable[[], dk.LoweredProgram], tuple[Any, ...]]] = {
    "static": (lambda: _lowered(Static(), (torch.ones(1, 3, 6, 6),)), (torch.ones(1, 3, 6, 6),)),
    "branch": (lambda: _lowered(Branch(), (X[:3],)), (X[:3],)),
    "dynamic": (
        lambda: _lowered(Dynamic(), (X.reshape(3, 4),), shapes=({0: torch.export.Dim("rows", min=2, max=16)},)),
        (X.reshape(3, 4),),
    ),
    "state": (lambda: _lowered(Counter(), (X[:3], torch.tensor([2]))), (X[:3], torch.tensor([2]))),
    "outside": (lambda: _lowered(Static(), (torch.ones(1, 3, 6, 6),), external=True), (torch.ones(1, 3, 6, 6),)),
    "delegated": (lambda: _lowered(Delegated(), (X[:4][None],), backends=["xnnpack"]), (X[:4][None],)),
    "delegated-outside": (
        lambda: _lowered(Delegated(), (X[:4][None],), backends=["xnnpack"], external=True),
        (X[:4][None],),
    ),
}


def make(stock: Path | None = None) -> dict[str, Seed]:
    """All seeds by name; with those of stock if `stock` is a folder that `stock_external.py` filled."""
    torch.manual_seed(0)
    found = {}
    for name, (maker, inputs) in _MAKERS.items():
        program = maker()
        found[name] = Seed(name, program.buffer, tuple(program.data_files.values()), inputs)
    if stock is not None:
        inputs = (torch.load(stock / "expected.pt")[0],)
        for name, files in (("inside", ()), ("one", ("one",)), ("two", ("first", "second")), ("xnnpack", ("xnnpack",))):
            data = tuple((stock / f"{file}.ptd").read_bytes() for file in files)
            found[f"stock-{name}"] = Seed(f"stock-{name}", (stock / f"{name}.pte").read_bytes(), data, inputs)
    return found
