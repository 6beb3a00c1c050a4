"""Digests of programs: equal for equal ones, whichever process exports them, and different for others."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import export

from delegatekit_tools.digest import program_digest, values_digest


class Net(nn.Module):
    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(4, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: self.layer(y).relu(), lambda y: self.layer(y) * 2, (x,))


def made(size: int = 3, seed: int = 0, rows: int = 2) -> dict[str, torch.export.ExportedProgram]:
    torch.manual_seed(seed)
    return {"forward": export(Net(size).eval(), (torch.randn(rows, 4),), strict=False)}


def test_programs_that_are_exported_alike_have_one_digest() -> None:
    assert program_digest(made()) == program_digest(made())
    assert len({program_digest(item) for item in (made(), made(seed=1), made(size=5), made(rows=3))}) == 4
    assert program_digest({"other": made()["forward"]}) != program_digest(made())


def test_without_values_weights_do_not_count_but_shapes_do() -> None:
    def digest(**given: int) -> str:
        return program_digest(made(**given), values=False)

    assert digest() == digest(seed=1)
    assert len({digest(), digest(size=5), digest(rows=3)}) == 3


def test_numbers_that_code_inside_control_flow_makes_tensors_of_count_as_values() -> None:
    class Scaled(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda y: y * torch.tensor(self.factor), lambda y: y + 1, (x,))

    def digest(factor: float, **given: bool) -> str:
        return program_digest({"forward": export(Scaled(factor), (torch.ones(3),), strict=False)}, **given)

    assert digest(2.0) == digest(2.0) != digest(3.0)
    assert digest(2.0, values=False) == digest(3.0, values=False)


def test_values_are_told_apart_by_type_shape_and_content() -> None:
    one = torch.zeros(4)
    values = [[one], [one + 1], [one.reshape(2, 2)], [one.int()], [0], [0.0], ["0"], [one, one]]
    assert len(set(map(values_digest, values))) == len(values)
    assert values_digest([(torch.zeros(4),)]) == values_digest([one])
