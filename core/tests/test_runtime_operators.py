"""Plugins that bring runtime operators instead of delegates: from hook to file, and from file to kernels."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from operator_library import ADD, GOOD, MUL, library
from torch import nn

import delegatekit
from delegatekit import pte
from delegatekit.plugins import discovery
from delegatekit.pte.manifest import MANIFEST_KEY
from delegatekit.reading import open_program
from delegatekit_api import (
    DelegateKitError,
    FormatError,
    LoweringError,
    PluginError,
    RuntimeUnavailableError,
    UnsupportedError,
)

Install = Callable[..., Path]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin((x + self.weight).view(4, 3) * self.weight.view(4, 3)) + 1.5


X = torch.randn(3, 4)


def lowered(net: nn.Module, *inputs: torch.Tensor) -> delegatekit.LoweredProgram:
    return delegatekit.lower(net.eval(), inputs or (X,), backends=["acme"])


def test_a_partition_becomes_calls_of_the_plugins_operators_and_no_delegate(install_plugin: Install) -> None:
    install_plugin("acme", library())
    net = Net()
    program = lowered(net)
    method = open_program(program.buffer).methods["forward"]
    assert method.delegates == ()
    # The view within the partition has the memory of the sum.
    names = [item.calls for item in method.instructions]
    assert names[:2] == ["acme::add.out", "acme::mul.out"] and names[2:] == ["aten::sin.out", "aten::add.Scalar_out"]
    first = method.instructions[0]
    # What the call may use as it likes, it writes, as far as anybody else is concerned.
    assert [str(method.values[index]) for index in first.writes] == ["float32[3, 4]", "uint8[40]"]
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](X), net(X))


def test_the_program_knows_its_maker_and_its_source(install_plugin: Install) -> None:
    install_plugin("acme", library())
    program = lowered(Net())
    manifest = json.loads(bytes(pte.read(program.buffer).named_data[MANIFEST_KEY]))
    assert manifest["libraries"] == {"acme": {"distribution": "delegatekit-acme", "version": "1.2", "api": "2.4"}}
    found = program.debug_map()["forward"]
    assert found["delegates"] == []
    for instruction in found["instructions"]:
        assert instruction["handles"], instruction
    names = [found["nodes"][str(handle)]["operators"] for handle in found["instructions"][1]["handles"]]
    assert names == [["aten.mul.Tensor"]]
    method = delegatekit.load(program.buffer)["forward"]
    assert method.owners == {0: "delegatekit-acme 1.2", 1: "delegatekit-acme 1.2"}


def test_reading_needs_no_plugin_and_running_names_it(install_plugin: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = install_plugin("acme", library())
    data = lowered(Net()).buffer
    monkeypatch.setattr("sys.path", [item for item in sys.path if item != str(folder)])
    discovery.refresh()
    assert open_program(data).methods["forward"].instructions[1].calls == "acme::mul.out"
    with pytest.raises(RuntimeUnavailableError, match=r"operator acme::add.out: no installed backend") as caught:
        delegatekit.load(data)["forward"]
    assert caught.value.hint == "pip install delegatekit-acme (the file was made with delegatekit-acme 1.2)"


def test_kernels_that_are_not_available_are_told_before_anything_runs(install_plugin: Install) -> None:
    install_plugin("acme", library(available=False))
    program = delegatekit.load(lowered(Net()).buffer)
    with pytest.raises(RuntimeUnavailableError, match="its library is not here"):
        program["forward"]


def test_control_flow_has_them_in_its_graphs(install_plugin: Install) -> None:
    install_plugin("acme", library())

    class Loop(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def body(count: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                return count - 1, value + (value * value)

            found: tuple[torch.Tensor, torch.Tensor] = torch.while_loop(  # type: ignore[no-untyped-call]
                lambda count, value: count > 0, body, (torch.tensor(3), x)
            )
            return found[1]

    program = lowered(Loop(), X / 4)
    names = [item.calls for item in open_program(program.buffer).methods["forward"].instructions]
    assert names.count("acme::add.out") == names.count("acme::mul.out") == 1
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](X / 4), Loop()(X / 4))


def test_files_of_other_writers_find_the_plugin_by_the_namespace(install_plugin: Install) -> None:
    install_plugin("acme", library())
    program = lowered(Net())
    image = program.image
    bare = pte.PteImage(plans=image.plans, constants=image.constants)
    expected = delegatekit.load(program.buffer)["forward"](X)
    torch.testing.assert_close(delegatekit.load(pte.to_bytes(bare))["forward"](X), expected)


def test_an_operator_that_the_library_lacks_is_named(install_plugin: Install) -> None:
    install_plugin("acme", library().replace('if operator == "acme::mul.out":', "if False:"))
    program = delegatekit.load(lowered(Net()).buffer)
    with pytest.raises(FormatError, match=r"acme has no acme::mul.out"):
        program["forward"]


def test_such_a_backend_makes_no_lowered_module(install_plugin: Install) -> None:
    install_plugin("acme", library())

    class Sum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x * x

    with pytest.raises(UnsupportedError, match="runtime operators"):
        delegatekit.to_backend(Sum(), (X,), backend="acme")


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("OperatorProgram(inputs, (), tuple(made[node] for node in view.outputs))", "outputs are not distinct results"),
        ("OperatorProgram((), tuple(calls), tuple(made[node] for node in view.outputs))", "inputs are \\[\\]"),
        (f"{GOOD.replace('tuple(calls)', '(*calls, calls[0])')}", "writes a tensor that has its elements already"),
        (f"{GOOD.replace('tuple(calls)', 'tuple(reversed(calls))')}", "which nothing has computed"),
        ("7", "is 7, not an OperatorProgram"),
    ],
)
def test_answers_that_the_api_does_not_allow_are_refused(install_plugin: Install, program: str, fault: str) -> None:
    install_plugin("acme", library(program))
    with pytest.raises(PluginError, match=fault):
        lowered(Net())


@pytest.mark.parametrize(
    ("schemas", "fault"),
    [
        ((MUL,), r"acme::add.out\) is neither in runtime_operators nor an operator of the runtime"),
        ((ADD.replace("float factor", "bool factor"), MUL), "argument 2 is 1.0, not Bool"),
        ((ADD.replace("Tensor? nothing, ", ""), MUL), "has 7 arguments and results, not 6"),
        ((ADD.replace("int[] numbers", "Tensor[] numbers"), MUL), r"argument 3 is \(1, 2\), not TensorList"),
        ((ADD.replace("acme::", "other::"), MUL), "other::add.out, which is not in acme::"),
        (("what is this?", MUL), "runtime_operators has no schema"),
    ],
)
def test_calls_keep_to_their_schemas(install_plugin: Install, schemas: tuple[str, ...], fault: str) -> None:
    install_plugin("acme", library(schemas=schemas))
    with pytest.raises(PluginError, match=fault):
        lowered(Net())


def test_a_plugin_that_fails_is_named_with_the_partition(install_plugin: Install) -> None:
    install_plugin("acme", library("1 / 0"))
    with pytest.raises(LoweringError, match="ZeroDivisionError") as caught:
        lowered(Net())
    assert isinstance(caught.value, DelegateKitError)
    assert caught.value.where == "partition 0 of method forward for backend acme"
