"""Integer inputs and outputs: what the program computes stays the same, and the numbers of its border are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit.quantization import IntegerArgument, IntegerPrograms, integer_io
from delegatekit.reading import open_program
from delegatekit_api import QuantizationError

pytest.importorskip("torchao", reason="torchao is not installed")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)))


class Beside(nn.Module):
    """Another operator reads the input, and makes an output."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.net(x), torch.atan(x)


X = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
Made = tuple[str, torch.export.ExportedProgram, IntegerPrograms]


def exported(model: nn.Module, backend: str) -> torch.export.ExportedProgram:
    return torch.export.export(dk.quantize(model.eval(), [X], backend=backend), (X,))


def integers(value: torch.Tensor, argument: IntegerArgument) -> torch.Tensor:
    """The caller's part: what the program no longer does."""
    scaled = torch.round(value / argument.scale) + argument.zero_point
    return scaled.clamp(argument.lowest, argument.highest).to(getattr(torch, argument.dtype))


@pytest.fixture(scope="module", params=["xnnpack", "ethosu"])
def made(request: pytest.FixtureRequest) -> Made:
    program = exported(Net(), request.param)
    return request.param, program, integer_io(program)


def test_integers_in_give_the_integers_of_the_float_program(made: Made) -> None:
    backend, program, found = made
    taken, given = found.arguments
    assert (taken.kind, given.kind, found.left) == ("input", "output", ())
    lowered, float_one = (dk.lower(each, backends=[backend]) for each in (found.programs, program))
    result = dk.load(lowered.buffer)["forward"](integers(X, taken))
    assert result.dtype == torch.int8
    assert torch.equal(result, integers(dk.load(float_one.buffer)["forward"](X), given))
    # On Ethos-U the border of the float program is eight operators of the runtime.
    assert [item.calls for item in open_program(lowered.buffer).methods["forward"].instructions] == ["delegate 0"]


def test_the_stock_runtime_takes_and_returns_integers_and_tells_their_numbers(made: Made) -> None:
    binding: Any = pytest.importorskip("executorch.extension.pybindings._C")
    backend, _, found = made
    if backend != "xnnpack":
        pytest.skip("the stock runtime of this machine has no such delegate")
    taken, given = found.arguments
    data = dk.lower(found.programs, backends=[backend]).buffer
    program = binding._load_program_from_buffer(data)
    (result,) = program.load_method("forward")((integers(X, taken),))
    assert torch.equal(result, dk.load(data)["forward"](integers(X, taken)))
    told = {name: program.load_method(name)(())[0] for name in found.programs if name != "forward"}
    assert told["forward_input0_scale"] == taken.scale and told["forward_output0_zp"] == given.zero_point
    assert (told["forward_input0_quant_min"], told["forward_output0_quant_max"]) == (taken.lowest, given.highest)
    assert told["forward_input0_dtype"] == 1  # ExecuTorch's number of int8


def test_methods_have_the_names_of_executorchs_passes(made: Made) -> None:
    passes: Any = pytest.importorskip("executorch.exir.passes.quantize_io_pass")
    expected = {
        passes.get_config_method_name("forward", kind, 0, key)
        for kind in ("input", "output")
        for key in ("scale", "zp", "quant_min", "quant_max", "dtype")
    }
    assert set(made[2].programs) == {"forward"} | expected


def test_a_program_that_is_not_quantized_is_refused() -> None:
    with pytest.raises(QuantizationError, match=r"no input is quantized first"):
        integer_io(torch.export.export(Net().eval(), (X,)))


def test_what_else_reads_an_input_keeps_it_in_float_and_is_told() -> None:
    found = integer_io(exported(Beside(), "xnnpack"))
    assert [(item.kind, item.index) for item in found.arguments] == [("output", 0)]
    assert "input 0 is read by" in found.left[0] and "aten.atan.default" in found.left[0]
    assert found.left[1] == "forward, output 1 is made by aten.atan.default"
    results = dk.load(dk.lower(found.programs, backends=["xnnpack"]).buffer)["forward"](X)
    assert [result.dtype for result in results] == [torch.int8, torch.float32]


MODELS = """
import torch

def image():
    torch.manual_seed(0)
    return torch.nn.Conv2d(3, 2, 1).eval(), (torch.ones(1, 3, 4, 6),)
"""


def test_the_command_tells_the_numbers(command_with: Callable[..., Any]) -> None:
    call = command_with(MODELS)
    call("quantize", "models:image", "-b", "xnnpack", "--random", "2", "-o", "image.pt2")
    text = call("lower", "image.pt2", "-b", "xnnpack", "--integer-io", "-o", "image.pte").out
    assert "forward, input 0: int8, scale 0.0" in text and "forward, output 0: int8, scale " in text
    assert "type int8" in call("run", "image.pte").out
    refused = call("lower", "models:image", "-b", "xnnpack", "--integer-io", code=1).err
    assert "no input is quantized first" in refused


class Best(nn.Module):
    """The greatest elements and their places, and numbers of places as an input."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: torch.Tensor, offset: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best, index = self.net(x).flatten(1).topk(2)
        return best, index + offset


def test_what_made_a_float_is_named_and_whole_numbers_are_integers_anyway() -> None:
    module = dk.quantize(Best().eval(), [(X, torch.tensor(3))], backend="xnnpack", progress=False)
    found = integer_io(torch.export.export(module, (X, torch.tensor(3)), strict=False))
    assert [(item.kind, item.index) for item in found.arguments] == [("input", 0)]
    assert found.left == ("forward, output 0 is made by aten.topk.default",)
