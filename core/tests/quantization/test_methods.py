"""Several methods are quantized together: each by its own inputs, and what they share stays one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.export import Dim, ExportedProgram

import delegatekit
from delegatekit.edge import shared_buffers
from delegatekit.quantization import load_quantized_methods, quantize_methods, save_methods
from delegatekit_api import FormatError, QuantizationError

pytest.importorskip("torchao")

MODEL = """
import torch

class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 8)
        self.register_buffer("kept", torch.zeros(1, 8))

class Write(Memory):
    def forward(self, x):
        y = torch.relu(self.layer(x))
        self.kept.copy_(y.mean(0, keepdim=True))
        return y

class Read(torch.nn.Module):
    def __init__(self, memory):
        super().__init__()
        self.layer, self.kept = memory.layer, memory.kept

    def forward(self, x):
        y = torch.relu(self.layer(x)) + self.kept
        self.kept.mul_(0.5)
        return y

def memory():
    write = Write().eval()
    read = Read(write).eval()
    sizes = ({0: torch.export.Dim("n", min=2, max=16)},)
    return {
        "write": torch.export.export(write, (torch.randn(4, 8),), dynamic_shapes=sizes),
        "read": torch.export.export(read, (torch.randn(1, 8),)),
    }
"""


@pytest.fixture
def programs() -> dict[str, ExportedProgram]:
    space: dict[str, object] = {}
    exec(MODEL, space)
    return space["memory"]()  # type: ignore[operator, no-any-return]


def samples(programs: dict[str, ExportedProgram]) -> dict[str, list[tuple[torch.Tensor, ...]]]:
    torch.manual_seed(1)
    sizes = {"write": 4, "read": 1}
    return {name: [(torch.randn(sizes[name], 8),) for _ in range(4)] for name in programs}


def lowered(programs: object) -> delegatekit.LoweredProgram:
    return delegatekit.lower(programs, backends=["xnnpack"])  # type: ignore[arg-type]


def steps(program: ExportedProgram) -> dict[str, float]:
    """The scale of each value that a program quantizes, by its name."""
    calls = [node for node in program.graph.nodes if ".quantize_per_tensor" in str(node.target)]
    return {str(node.args[0]): float(node.args[1]) for node in calls}


def test_buffers_of_several_methods_stay_one(programs: dict[str, ExportedProgram], tmp_path: Path) -> None:
    found = quantize_methods(programs, samples(programs), backend="xnnpack", progress=False)
    layers = {name: {layer.operator for layer in report.quantized} for name, report in found.reports.items()}
    assert layers == {"write": {"linear + relu", "mean"}, "read": {"linear + relu", "add"}}
    write, read = (steps(found.programs[name]) for name in ("write", "read"))
    # Both results and the state in them are rounded by half a step each, the mean by half a step.
    bound = read["add"] + read["b_kept"] + write["mean"] / 2
    assert bound < 0.05
    with (tmp_path / "both.pt2").open("wb") as file:
        save_methods(found.programs, file)
    for given in (found.programs, load_quantized_methods(tmp_path / "both.pt2")):
        program = lowered(given)
        assert shared_buffers(method.edge for method in program.methods.values()) == {"kept"}
        methods = delegatekit.load(program.buffer)
        (x,) = samples(programs)["write"][-1]  # the state that it leaves is in the range that was calibrated
        written = methods["write"](x)
        empty = torch.zeros(1, 8)
        first, second = methods["read"](empty), methods["read"](empty)
        torch.testing.assert_close(first - second, written.mean(0, keepdim=True) / 2, atol=bound, rtol=0)


def test_what_is_not_shared_stays_apart() -> None:
    class Count(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)  # type: ignore[operator]
            return self.layer(x) * self.count  # type: ignore[no-any-return]

    each = {name: torch.export.export(Count().eval(), (torch.randn(1, 8),)) for name in ("a", "b")}
    given = {name: [(torch.randn(1, 8),)] for name in each}
    found = quantize_methods(each, given, backend="xnnpack", progress=False)
    assert not shared_buffers(method.edge for method in lowered(found.programs).methods.values())


def test_inputs_are_those_of_the_methods(programs: dict[str, ExportedProgram]) -> None:
    given = samples(programs)
    del given["read"]
    with pytest.raises(QuantizationError, match="for the methods write, the model has write, read"):
        quantize_methods(programs, given, backend="xnnpack", progress=False)


def test_methods_by_command(command_with, tmp_path: Path, programs) -> None:  # type: ignore[no-untyped-def]
    cli = command_with(MODEL)
    told = cli("quantize", "models:memory", "-b", "xnnpack", "--random", "2", "-o", "q.pt2").out
    assert "method write: " in told and "method read: " in told
    cli("lower", "q.pt2", "-b", "xnnpack", "-o", "q.pte")
    assert set(delegatekit.load(tmp_path / "q.pte")) == {"write", "read"}
    with pytest.raises(FormatError, match="holds the methods write, read"):
        delegatekit.load_quantized(tmp_path / "q.pt2")

    torch.save(samples(programs), tmp_path / "samples.pt")
    cli("quantize", "models:memory", "-b", "xnnpack", "--calibration", "samples.pt", "-o", "q.pt2")
    torch.save(samples(programs)["write"], tmp_path / "samples.pt")
    wrong = cli("quantize", "models:memory", "-b", "xnnpack", "--calibration", "samples.pt", "-o", "q.pt2", code=1).err
    assert "samples.pt: holds no dict by method" in wrong and "write, read" in wrong


def test_sizes_that_change_keep_their_ends() -> None:
    sizes = ({0: Dim("n", min=2, max=16)},)
    program = torch.export.export(torch.nn.Linear(8, 8).eval(), (torch.randn(4, 8),), dynamic_shapes=sizes)
    found = quantize_methods({"forward": program}, {"forward": [(torch.randn(4, 8),)]}, backend="xnnpack")
    assert lowered(found.programs).methods
    (range_,) = found.programs["forward"].range_constraints.values()
    assert (range_.lower, range_.upper) == (2, 16)
