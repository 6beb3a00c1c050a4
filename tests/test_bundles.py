"""Bundled programs: the stock runtime verifies ours, and we verify those of the stock writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit as dk

_C: Any = pytest.importorskip(
    "executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed"
)
TOLERANCES = (1e-3, 1e-5)


class Net(nn.Module):
    """Two delegates around an operator that stays with the runtime."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.atan(self.first(x)))


class Kinds(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor, count: int, twice: bool, shift: float) -> Any:
        return x[index] * count * (2 if twice else 1) + shift, index + 1, x > 0


KINDS = (torch.randn(4, 3), torch.tensor([2, 0]), 3, True, 0.5)


def stock_outputs(data: bytes, method: str, case: int) -> list[torch.Tensor]:
    """The outputs of the stock runtime for a case; raises RuntimeError if they are not as expected."""
    bundle = _C._load_bundled_program_from_buffer(data, 1 << 20)
    found: list[torch.Tensor] = bundle.verify_result_with_bundled_expected_output(method, case, *TOLERANCES)
    return found


@pytest.fixture(scope="module")
def net() -> tuple[nn.Module, bytes]:
    torch.manual_seed(0)
    module = Net().eval()
    return module, dk.lower(module, (torch.randn(2, 8),), backends=["xnnpack"]).buffer


def test_the_stock_runtime_verifies_our_cases(net: tuple[nn.Module, bytes]) -> None:
    module, program = net
    calls = [torch.randn(2, 8) for _ in range(3)]
    data = dk.bundle(program, {"forward": [dk.Case((x,), {}, module(x).detach()) for x in calls]}).buffer
    for number, x in enumerate(calls):
        (got,) = stock_outputs(data, "forward", number)
        torch.testing.assert_close(got, module(x), rtol=1e-4, atol=1e-5)
    assert dk.verify(data).passes


def test_the_stock_runtime_and_we_tell_the_same_differences(net: tuple[nn.Module, bytes]) -> None:
    module, program = net
    x = torch.randn(2, 8)
    want = module(x).detach()
    for offset, passes in ((0.0, True), (2e-6, True), (1e-2, False)):
        data = dk.bundle(program, {"forward": [dk.Case((x,), {}, want + offset)]}).buffer
        assert dk.verify(data).passes is passes
        if passes:
            stock_outputs(data, "forward", 0)
        else:
            with pytest.raises(RuntimeError, match="Result verification failed"):
                stock_outputs(data, "forward", 0)


def test_the_stock_runtime_takes_all_kinds_of_inputs() -> None:
    program = dk.lower(Kinds(), KINDS, backends=[]).buffer
    data = dk.bundle(program, {"forward": [dk.Case(KINDS)]}).buffer
    got = stock_outputs(data, "forward", 0)
    for mine, want in zip(got, Kinds()(*KINDS), strict=True):
        torch.testing.assert_close(mine, want)


def test_the_stock_runtime_takes_channels_last_inputs_and_several_methods() -> None:
    x = torch.randn(1, 3, 4, 5).to(memory_format=torch.channels_last)
    y = torch.randn(3)
    programs = {"second": torch.export.export(nn.ReLU(), (x,)), "first": torch.export.export(nn.Tanh(), (y,))}
    program = dk.lower(programs, backends=["xnnpack"]).buffer
    data = dk.bundle(program, {"second": [dk.Case((x,), {}, x.relu())], "first": [dk.Case((y,), {}, y.tanh())]}).buffer
    torch.testing.assert_close(stock_outputs(data, "second", 0)[0], x.relu().contiguous())
    torch.testing.assert_close(stock_outputs(data, "first", 0)[0], y.tanh())


def test_the_stock_reader_finds_what_we_wrote() -> None:
    serialize = pytest.importorskip("executorch.devtools.bundled_program.serialize")
    program = dk.lower(Kinds(), KINDS, backends=[]).buffer
    data = dk.bundle(program, {"forward": [dk.Case(KINDS, {}, Kinds()(*KINDS)), dk.Case(KINDS, {}, ())]}).buffer
    found = serialize.deserialize_from_flatbuffer_to_bundled_program(data)
    assert found.version == 2 and bytes(found.program) == program
    ((suite),) = found.method_test_suites
    assert suite.method_name == "forward" and len(suite.test_cases) == 2
    values = [value.val for value in suite.test_cases[0].inputs]
    assert bytes(values[0].data) == KINDS[0].numpy().tobytes() and list(values[0].sizes) == [4, 3]
    assert [values[2].int_val, values[3].bool_val, values[4].double_val] == [3, True, 0.5]
    assert [len(case.expected_outputs) for case in suite.test_cases] == [3, 0]


def test_we_verify_what_the_stock_writer_made(net: tuple[nn.Module, bytes], tmp_path: Path) -> None:
    core = pytest.importorskip("executorch.devtools.bundled_program.core")
    config = pytest.importorskip("executorch.devtools.bundled_program.config")
    serialize = pytest.importorskip("executorch.devtools.bundled_program.serialize")
    module, program = net
    (tmp_path / "net.pte").write_bytes(program)
    x = torch.randn(2, 8)
    cases = [
        config.MethodTestCase(inputs=(x,), expected_outputs=(module(x).detach() + offset,)) for offset in (0.0, 0.1)
    ]
    suites = [config.MethodTestSuite("forward", [*cases, config.MethodTestCase(inputs=(x,))])]
    bundle = core.BundledProgram(None, suites, pte_file_path=str(tmp_path / "net.pte"))
    data = serialize.serialize_from_bundled_program_to_flatbuffer(bundle)
    found = dk.verify(data).results
    assert [item.passes for item in found] == [True, False, True]
    assert [item.expects for item in found] == [True, True, False]
    torch.testing.assert_close(dk.load(data)["forward"](x), module(x), rtol=1e-4, atol=1e-5)
