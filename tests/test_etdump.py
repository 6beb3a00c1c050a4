"""The stock runtime's ETDump of our files is shown as a profile, and linked to the lines of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit_api import DelegateKitError

_C: Any = pytest.importorskip(
    "executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed"
)


class Net(nn.Module):
    """Control flow and views between operators; with XNNPACK, two delegates."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.atan(self.stem(x))
        return self.head(hidden).reshape(4, 2).cumsum(0)


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos() + 1, (x,))


def told(program: bytes, path: Path, calls: dict[str, list[torch.Tensor]]) -> Path:
    """The ETDump of calls in the stock runtime."""
    loaded = _C._load_for_executorch_from_buffer(program, enable_etdump=True)
    for method, inputs in calls.items():
        for x in inputs:
            loaded.run_method(method, (x,))
    loaded.write_etdump_result_to_file(str(path))
    return path


@pytest.mark.parametrize("backends", [[], ["xnnpack"]])
def test_every_instruction_has_its_time_and_its_line(backends: list[str], tmp_path: Path) -> None:
    lowered = dk.lower(Net().eval(), (torch.randn(2, 8),), backends=backends)
    path = told(lowered.buffer, tmp_path / "net.etdump", {"forward": [torch.randn(2, 8)] * 3})
    found = dk.read_etdump(path, lowered.buffer, debug_map=lowered.debug_map(), warm_up=1)
    method = dk.load(lowered.buffer)["forward"]
    assert tuple(item.calls for item in found.instructions) == method.instructions
    for item in found.instructions:
        assert len(item.times.wall) == 2 and min(item.times.wall) > 0
        assert any("test_etdump.py" in source for source in item.origin.sources)
    assert sum(item.times.median for item in found.instructions) < 1.5 * found.total.median
    inside = [operator.name for item in found.instructions for operator in item.operators]
    assert any("Fully Connected" in name for name in inside) is bool(backends)
    assert found.load.wall


def test_methods_and_branches_are_told_apart(tmp_path: Path) -> None:
    x = torch.ones(3)
    programs = {"branch": torch.export.export(Branch(), (x,)), "forward": torch.export.export(nn.Tanh(), (x,))}
    lowered = dk.lower(programs, backends=[])
    path = told(lowered.buffer, tmp_path / "x.etdump", {"forward": [x], "branch": [x, -x, -x]})
    found = dk.read_etdump(path, lowered.buffer, method="branch", debug_map=lowered.debug_map())
    times = {item.calls: item.times.wall for item in found.instructions}
    assert [seconds > 0 for seconds in times["aten::sin.out"]] == [True, False, False]
    assert [seconds > 0 for seconds in times["aten::cos.out"]] == [False, True, True]
    assert len(dk.read_etdump(path, lowered.buffer).total.wall) == 1


def test_the_dump_of_another_program_is_refused(tmp_path: Path) -> None:
    lowered, other = (dk.lower(Net().eval(), (torch.randn(2, 8),), backends=names) for names in ([], ["xnnpack"]))
    path = told(lowered.buffer, tmp_path / "net.etdump", {"forward": [torch.randn(2, 8)]})
    with pytest.raises(DelegateKitError, match="no dump of method forward of this program"):
        dk.read_etdump(path, other.buffer)
