"""Lowering with compilers that fail: named or sought, the operator is taken out, and the rest is what it was."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import export

import delegatekit
from delegatekit import Compiling
from delegatekit_api import LoweringError, PluginError

#: A backend that takes unary operators and linear layers, and whose compiler runs `BODY` with the nodes' names.
_SOURCE = """
from delegatekit_api import *
import os, time, pathlib

TAKEN = {taken}

class Takes:
    def keep_operators(self): return ()
    def check(self, call):
        return Verdict.yes() if call.operator in TAKEN else Verdict.no("not mine")
    def propose(self, program): return None

@hookimpl
def describe_backend():
    return BackendDescription("{name}", "{name}Backend", "delegatekit-{name}", "1.2", "compiles")

@hookimpl
def create_partitioner(options): return Takes()

def compiled(partition):
    called = [node for node in partition.view.graph.nodes if node.op == "call_function"]
    nodes = {{node.name: Call(node, partition.view) for node in called}}
    operators = [call.operator.split(".")[1] for call in nodes.values()]
    with open({log!r}, "a") as file:
        print(" ".join(operators), file=file)
    {body}
    return PreprocessResult(" ".join(nodes).encode())

{hook}
"""
_ALONE = "@hookimpl\ndef preprocess(partition, options): return compiled(partition)"
_TOGETHER = """@hookimpl
def preprocess(partition, options): raise AssertionError("together")
@hookimpl
def preprocess_methods(methods, options):
    return {name: [compiled(item) for item in of_method] for name, of_method in methods.items()}"""

_TAKEN = ("sin", "cos", "tan", "sinh", "relu", "exp", "linear")

Make = Callable[..., Callable[[], list[list[str]]]]


@pytest.fixture
def make(install_plugin: Any, tmp_path: Path) -> Make:
    """Installs a backend; returns a reader of the operators of each compilation."""

    def install(body: str = "pass", name: str = "maker", taken: Any = _TAKEN, hook: str = _ALONE) -> Any:
        log = tmp_path / f"{name}.log"
        operators = tuple(f"aten.{item}.default" for item in taken)
        install_plugin(name, _SOURCE.format(name=name, taken=operators, log=str(log), body=body, hook=hook))
        return lambda: [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    return install


class Chain(nn.Module):
    """One partition of the backend: sin, cos, a linear layer, tan, sinh, relu, exp."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(torch.cos(torch.sin(x)))
        return torch.exp(torch.relu(torch.sinh(torch.tan(x))))


class Short(nn.Module):
    """One partition of few operators: each compilation in a process costs seconds."""

    def __init__(self, *operators: Any) -> None:
        super().__init__()
        self.operators = operators

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for operator in self.operators:
            x = operator(x)
        return x


X = torch.linspace(0, 1, 8).reshape(2, 4)
_RAISES = "if 'tan' in operators: raise ValueError('no tangents today')"


def mended(model: Any = None, *, backends: Any = ("maker",), **more: Any) -> Any:
    return delegatekit.repartition((model or Chain()).eval(), (X,), backends=list(backends), **more)


def split(program: Any) -> list[str]:
    """The operators of each delegate, as its compiler saw them."""
    return [b"".join(map(bytes, item.blob)).decode() for item in program.methods["forward"].delegates]


def test_without_a_fault_the_file_is_that_of_lower(make: Make) -> None:
    calls = make()
    model = Chain().eval()
    found = mended(model)
    assert found.taken_out == () and len(calls()) == 1
    assert found.program.buffer == delegatekit.lower(model, (X,), backends=["maker"]).buffer


@pytest.mark.parametrize(
    "body",
    [
        "\n".join(
            [
                "for call in nodes.values():",
                "        if 'tan.' in call.operator: raise LoweringError('no tangents', where=call.description)",
            ]
        ),
        "if 'tan' in operators: raise RuntimeError('error in node tan_default: code 7')",
    ],
)
def test_the_operator_that_an_error_names_is_taken_out(body: str, make: Make) -> None:
    calls = make(body)
    found = mended()
    (taken,) = found.taken_out
    assert (taken.backend, taken.method, taken.named) == ("maker", "forward", True)
    assert taken.operator.startswith("aten.tan.default (tan_default) in the top module at ")
    assert "torch.tan(x)" in taken.operator
    assert split(found.program) == ["sin_default cos_default linear_default", "sinh_default relu_default exp_default"]
    # The whole, and each of the two parts once: nothing is compiled for the search that is not in the file.
    assert [len(call) for call in calls()] == [7, 3, 3]


@pytest.mark.parametrize("operator", ["sin", "linear", "tan", "exp"])
def test_an_operator_that_no_error_names_is_found(operator: str, make: Make) -> None:
    calls = make(f"if {operator!r} in operators: raise ValueError('internal error 4')")
    found = mended()
    (taken,) = found.taken_out
    assert taken.operator.startswith(f"aten.{operator}.default") and not taken.named and not taken.beside
    assert taken.reason == "taken out: its compiler fails at it: ValueError: internal error 4"
    assert " ".join(split(found.program)).count("default") == 6
    assert len(calls()) < 12


def test_all_of_several_are_found(make: Make) -> None:
    make("if {'cos', 'relu'} & set(operators): raise ValueError('internal error')")
    found = mended()
    assert sorted(item.operator.split(" ")[0] for item in found.taken_out) == ["aten.cos.default", "aten.relu.default"]
    assert split(found.program) == ["sin_default", "linear_default tan_default sinh_default", "exp_default"]


def test_a_compiler_that_crashes_is_searched_in_processes(make: Make) -> None:
    make("if 'tan' in operators: os.kill(os.getpid(), 11)")
    found = mended(Short(torch.sin, torch.tan), compiling=Compiling(isolate=True))
    (taken,) = found.taken_out
    assert taken.operator.startswith("aten.tan.default") and "its process crashed (SIGSEGV)" in taken.error
    assert split(found.program) == ["sin_default"]


def test_what_a_compiler_printed_before_it_ended_is_told_and_may_name_the_operator(make: Make) -> None:
    make("if 'tan' in operators: print('bad opcode in tan_default', flush=True); os._exit(3)")
    (taken,) = mended(Short(torch.tan), compiling=Compiling(isolate=True)).taken_out
    assert "bad opcode in tan_default" in taken.error and taken.named


def test_a_compiler_that_hangs_is_ended(make: Make) -> None:
    make("if 'tan' in operators: time.sleep(1000)")
    found = mended(Short(torch.tan), compiling=Compiling(isolate=True, seconds=10.0))
    (taken,) = found.taken_out
    assert taken.operator.startswith("aten.tan.default") and "10" in taken.error
    assert split(found.program) == []


def test_of_two_that_fail_only_together_the_lighter_one_goes(make: Make) -> None:
    make("if {'linear', 'sinh'} <= set(operators): raise ValueError('registers')")
    (taken,) = mended().taken_out
    assert taken.operator.startswith("aten.sinh.default") and taken.beside.startswith("aten.linear.default")
    assert "fails at it together with aten.linear.default (linear_default) in layer" in taken.reason


def test_of_two_equal_ones_the_later_goes(make: Make) -> None:
    make("if {'cos', 'exp'} <= set(operators): raise ValueError('registers')")
    found = mended()
    (taken,) = found.taken_out
    assert taken.operator.startswith("aten.exp.default") and taken.beside.startswith("aten.cos.default")
    assert len(split(found.program)) == 1


def test_an_error_that_names_the_wrong_operator_does_not_mislead(make: Make) -> None:
    make("if 'tan' in operators: raise ValueError('after sin_default: unsupported')")
    (taken,) = mended().taken_out
    assert taken.operator.startswith("aten.tan.default") and not taken.named


def test_the_next_backend_gets_what_is_taken_out(make: Make) -> None:
    make(_RAISES)
    make(name="other")
    found = mended(backends=["maker", "other"])
    assert [item.chosen.backend.name for item in found.program.methods["forward"].delegates] == [
        "maker",
        "other",
        "maker",
    ]
    assert found.program.shares.runtime.operators == 0
    # Both fail: each is told.
    make(_RAISES, name="third")
    found = mended(backends=["maker", "third"])
    assert [item.backend for item in found.taken_out] == ["maker", "third"]


def test_reports_have_the_reason(make: Make) -> None:
    make(_RAISES)
    program = mended().program
    reason = "taken out: its compiler fails at it: ValueError: no tangents today"
    (left,) = program.shares.left_out
    assert (left.operator, left.reasons) == ("aten.tan.default", {"maker": reason})
    assert reason in str(delegatekit.report(program))
    assert reason in delegatekit.html(program)


def test_what_the_user_selects_stays(make: Make) -> None:
    make(_RAISES)
    found = mended(skip=["aten.exp"])
    assert "exp" not in "".join(split(found.program))
    assert {item.operator: item.reasons["maker"] for item in found.program.shares.left_out}["aten.exp.default"] == (
        "left out by skip='aten.exp'"
    )
    assert "exp" not in "".join(split(mended(skip={"maker": ["aten.exp"]}).program))
    assert split(mended(only=["aten.tan", "aten.sinh"]).program) == ["sinh_default"]


def test_what_compiles_together_is_searched_together(make: Make) -> None:
    make("if 'tan' in operators: raise ValueError('no')", hook=_TOGETHER)

    class Two(nn.Module):
        """Two partitions."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(torch.tan(torch.atan(torch.exp(torch.cos(x)))))

    (taken,) = mended(Two()).taken_out
    assert taken.operator.startswith("aten.tan.default")


def test_methods_and_control_flow_are_searched(make: Make) -> None:
    make(_RAISES)

    class Choice(nn.Module):
        def yes(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tan(torch.sin(x))

        def no(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cos(torch.sin(x))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, self.yes, self.no, (torch.exp(x),))

    class Plain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.exp(x))

    programs = {"forward": export(Choice(), (X,)), "plain": export(Plain(), (X,))}
    found = delegatekit.repartition(programs, backends=["maker"])
    (taken,) = found.taken_out
    assert taken.method == "forward" and taken.operator.startswith("aten.tan.default")
    assert [len(method.delegates) for method in found.program.methods.values()] == [3, 1]


def test_the_limit_is_an_error_that_tells_what_was_tried(make: Make) -> None:
    calls = make("raise ValueError('no license')")
    with pytest.raises(LoweringError, match="no license") as caught:
        mended(limit=5)
    told = str(caught.value)
    assert "5 compilations of parts did not find all operators that the compiler fails at" in told
    assert re.search(r"taken out before: aten\.\w+\.default .* is not on maker: taken out: its compiler fails", told)
    assert "raise the limit" in told
    assert len(calls()) <= 5 + 7


def test_other_errors_are_those_of_lower(make: Make) -> None:
    make()
    with pytest.raises(PluginError, match="absent"):
        mended(backends=["absent"])
    with pytest.raises(LoweringError, match="selects no operator"):
        mended(skip=["aten.gelu"])
    with pytest.raises(LoweringError, match="is no share"):
        mended(min_delegated="all")


def test_what_is_taken_out_counts_against_the_least_share(make: Make) -> None:
    make(_RAISES)
    assert len(mended(min_delegated="80%").taken_out) == 1
    with pytest.raises(LoweringError, match=r"85\.7 % of the operators") as caught:
        mended(min_delegated="90%")
    assert "taken out: its compiler fails at it: ValueError: no tangents today" in str(caught.value)
