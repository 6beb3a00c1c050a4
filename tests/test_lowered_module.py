"""Lowered modules at their borders: inputs, lifetime, and programs that contain them."""

from __future__ import annotations

import copy
import gc
import io
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from referee import StockProgram, same
from torch import nn
from torch.export import Dim

import delegatekit
from delegatekit.edge import precompiled
from delegatekit.pte import read
from delegatekit_api import DelegateKitError, ExecutionError, LoweringError, UnsupportedError

X = torch.randn(3, 8)


class Around(nn.Module):
    """Calls a module, with a given function of it and the input."""

    def __init__(self, inner: nn.Module, call: Any = lambda inner, x: inner(x)) -> None:
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, x: torch.Tensor) -> Any:
        return self.call(self.inner, x)


class Mixed(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y + y


def check(plain: nn.Module, lowered: nn.Module, calls: list[torch.Tensor], **export: Any) -> Any:
    """Compare eager, the lowered module in eager, our engine and the stock runtime; returns the lowered program."""
    with torch.no_grad():
        exported = torch.export.export(lowered.eval(), (calls[0],), strict=False, **export)
    program = delegatekit.lower(exported, backends=["xnnpack"])
    buffer = program.buffer
    engine, stock = delegatekit.load(buffer)["forward"], StockProgram(buffer).method()
    for x in calls:
        with torch.no_grad():
            want = plain.eval()(x)
            same(lowered(x), want)
        same(engine(x), want)
        same(stock((x,)), want)
    return program


@pytest.fixture(scope="module")
def linear() -> tuple[nn.Module, delegatekit.LoweredModule]:
    torch.manual_seed(0)
    module = nn.Linear(8, 8).eval()
    return module, delegatekit.to_backend(module, (X,), backend="xnnpack")


# -- what it takes ---------------------------------------------------------------------------------------------------


def test_equal_blobs_for_other_shapes_are_other_delegates(demo: str) -> None:
    """The example's blobs have no shapes."""
    first = delegatekit.to_backend(Mixed(), (X, X.clone()), backend=demo)
    second = delegatekit.to_backend(Mixed(), (torch.randn(2), torch.randn(2)), backend=demo)
    for lowered, x in ((first, X), (second, torch.randn(2))):
        same(lowered(x, x), x * x + x)
        buffer = delegatekit.lower(Around(lowered, lambda inner, x: inner(x, x).sin()), (x,), backends=[]).buffer
        same(delegatekit.load(buffer)["forward"](x), (x * x + x).sin())


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.randn(3, 8).double(), r"input 0 .*has dtype torch\.float64, not torch\.float32"),
        (torch.randn(8), r"has shape \(8,\), not \(3, 8\)"),
        (torch.randn(4, 8), r"has shape \(4, 8\), not \(3, 8\)"),
    ],
)
def test_inputs_that_it_was_not_compiled_for_are_refused(linear: Any, x: torch.Tensor, message: str) -> None:
    """In a call, and when it is exported as a part of something else."""
    with pytest.raises(ExecutionError, match=message):
        linear[1](x)
    with pytest.raises(ExecutionError, match=message):
        torch.export.export(Around(linear[1]), (x,), strict=False)


class Numbers(nn.Module):
    def forward(self, x: torch.Tensor, factor: float, name: str, *, sub: int = 0) -> dict[str, Any]:
        return {"result": x * factor - sub, "x": x, "name": name, "factor": factor}


def test_numbers_and_texts_are_those_of_the_export() -> None:
    lowered = delegatekit.to_backend(Numbers(), (X, 2.5, "n"), kwargs={"sub": 3}, backend="xnnpack")
    found = lowered(X, 2.5, "n", sub=3)
    same(found, Numbers()(X, 2.5, "n", sub=3))
    assert found["x"] is X  # as eager: an input that is returned is the same tensor
    for arguments, sub in (((X, 2.0, "n"), 3), ((X, 2.5, "m"), 3), ((X, 2.5, "n"), 4), ((X, 2.5, "n"), 3.0)):
        with pytest.raises(ExecutionError, match="was lowered for the value"):
            lowered(*arguments, sub=sub)


class Named(nn.Module):
    def forward(self, *, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first * 2 + second


def test_keyword_arguments_may_come_in_any_order() -> None:
    y = torch.randn(3, 8)
    lowered = delegatekit.to_backend(Named(), (), kwargs={"first": X, "second": y}, backend="xnnpack")
    same(lowered(second=y, first=X), X * 2 + y)
    with pytest.raises(ExecutionError, match="inputs of structure"):
        lowered(first=X)


def test_one_tensor_as_the_example_of_two_inputs_stands_for_two() -> None:
    """torch.export would take the inputs for one, and the first of them for unused."""
    lowered, other = delegatekit.to_backend(Mixed(), (X, X), backend="xnnpack"), torch.randn(3, 8)
    same(lowered(X, other), X * other + other)
    named = delegatekit.lower(Named(), (), kwargs={"first": X, "second": X}, backends=[]).buffer
    same(delegatekit.load(named)["forward"](first=other, second=X), other * 2 + X)


class Unused(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return z.sin(), x * 2


def test_inputs_that_nobody_uses_do_not_reach_the_delegate() -> None:
    lowered = delegatekit.to_backend(Unused(), (X, torch.randn(5), X.clone()), backend="xnnpack")
    y, z = torch.randn(5), torch.randn(3, 8)
    same(lowered(X, y, z), Unused()(X, y, z))


# -- sizes that change -----------------------------------------------------------------------------------------------


class Ranged(nn.Module):
    """Sizes of one input that follow from those of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x).sigmoid(), torch.cat([y, y], 0)


def ranged(largest: int = 6) -> tuple[nn.Module, delegatekit.LoweredModule]:
    torch.manual_seed(1)
    module, rows = Ranged().eval(), Dim("rows", min=1, max=largest)
    shapes = ({0: rows}, {0: 2 * rows})
    example = (torch.randn(3, 8), torch.randn(6, 2))
    return module, delegatekit.to_backend(module, example, backend="xnnpack", dynamic_shapes=shapes)


def test_changing_sizes_are_computed_and_checked() -> None:
    module, lowered = ranged()
    for rows in (3, 6, 1):
        x, y = torch.randn(rows, 8), torch.randn(2 * rows, 2)
        with torch.no_grad():
            same(lowered(x, y), module(x, y))
    for rows, others in ((7, 14), (3, 5), (3, 3)):
        with pytest.raises(ExecutionError, match=r"has (shape|a size of)"):
            lowered(torch.randn(rows, 8), torch.randn(others, 2))


def doubled(inner: Any, x: torch.Tensor) -> Any:
    one, two = inner(x, torch.cat([x, x], 0)[:, :2])
    return one.cumsum(0), two.exp()


def test_changing_sizes_go_through_a_bigger_program() -> None:
    module, lowered = ranged()
    calls = [torch.randn(rows, 8) for rows in (3, 5, 1)]
    shapes = {"x": {0: Dim("rows", min=1, max=5)}}
    check(Around(module, doubled), Around(lowered, doubled), calls, dynamic_shapes=shapes)


@pytest.mark.parametrize("static", [True, False])
def test_a_program_may_not_want_more_sizes_than_the_module_takes(linear: Any, static: bool) -> None:
    lowered = linear[1] if static else ranged()[1]
    outer = Around(lowered) if static else Around(lowered, doubled)
    with pytest.raises(Exception, match="rows"):  # PyTorch tells which dimension, and the range that it may have
        torch.export.export(outer, (X,), dynamic_shapes={"x": {0: Dim("rows", max=9)}}, strict=False)


# -- what it becomes part of -----------------------------------------------------------------------------------------


def test_the_same_tensor_twice_and_a_weight_may_be_its_inputs() -> None:
    weight = torch.randn(3, 8)

    def call(inner: Any, x: torch.Tensor) -> torch.Tensor:
        return inner(x, x).sin() + inner(x, weight) + inner(weight, x)

    lowered = delegatekit.to_backend(Mixed(), (X, X.clone()), backend="xnnpack")
    check(Around(Mixed(), call), Around(lowered, call), [X, -X])


class Pair(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x.sin(), x.cos(), x.sin()]


def test_results_that_nobody_uses_are_computed_all_the_same() -> None:
    lowered = delegatekit.to_backend(Pair(), (X,), backend="xnnpack")

    def call(inner: Any, x: torch.Tensor) -> torch.Tensor:
        return inner(x)[1].cumsum(0)

    check(Around(Pair(), call), Around(lowered, call), [X, -X])
    check(Around(Pair()), Around(lowered), [X, -X])


def test_it_may_stand_in_branches(linear: Any) -> None:
    def call(inner: Any, x: torch.Tensor) -> torch.Tensor:
        taken = torch.cond(x.sum() > 0, lambda x: inner(x) + 1, lambda x: inner(x.sin()), (x,))
        return inner(taken).cumsum(1)

    check(Around(linear[0], call), Around(linear[1], call), [X, X - 5, X + 5])


class Remembering(nn.Module):
    """State around a lowered module, updated in place, which PyTorch must functionalize first."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("total", torch.zeros(3, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.total.clone()
        self.total.view(-1).add_(self.inner(x).view(-1))
        return self.inner(self.total).sin() + before


def test_state_may_be_around_it(linear: Any) -> None:
    check(Remembering(linear[0]), Remembering(linear[1]), [X, -X, X * 2])


def test_lowered_modules_nest_in_modules_of_modules(linear: Any) -> None:
    def build(inner: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Sequential(inner, nn.Tanh()), nn.ModuleDict({"again": inner})["again"], nn.Softmax(1))

    program = check(build(linear[0]), build(linear[1]), [X])
    (plan,) = read(program.buffer).program.execution_plan or ()
    first, second = [d for d in plan.delegates or () if d.processed == (plan.delegates or [])[0].processed][:2]
    assert first is not second  # two calls of one blob


def test_neither_selections_nor_partition_functions_touch_it(linear: Any) -> None:
    outer = Around(linear[1], lambda inner, x: inner(x.sin()).cos())
    program = delegatekit.lower(outer, (X,), backends=["xnnpack"], only=["sin"])
    assert [d.nodes for d in delegatekit.report(program).methods[0].delegates] == [1, 1]
    program = delegatekit.lower(outer, (X,), backends=["xnnpack"], partition=lambda program, ask: [])
    assert [d.nodes for d in delegatekit.report(program).methods[0].delegates] == [1]
    with pytest.raises(LoweringError, match="selects no operator"):
        delegatekit.lower(outer, (X,), backends=["xnnpack"], skip=["call_delegate"])

    def greedy(program: Any, ask: Any) -> Any:
        return [("xnnpack", [node]) for node in program.graph.nodes if "call_delegate" in str(node.target)]

    with pytest.raises(LoweringError, match="lowered modules are not for backends"):
        delegatekit.lower(outer, (X,), backends=["xnnpack"], partition=greedy)


def test_the_debug_map_leads_into_the_lowered_module() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    lowered = delegatekit.to_backend(module, (X,), backend="xnnpack")
    outer = Around(lowered, lambda inner, x: inner(x).cumsum(0))
    found = delegatekit.lower(outer, (X,), backends=["xnnpack"]).debug_map()["forward"]
    (delegate,) = found["delegates"]
    (handle,) = {handle for handles in delegate["operators"].values() for handle in handles}
    assert found["nodes"][str(handle)]["operators"] == ["delegatekit.call_delegate.default"]
    inner = delegate["lowered_module"]
    own = lowered.program().debug_map()["forward"]
    assert inner == {"nodes": own["nodes"], "operators": own["delegates"][0]["operators"]}
    assert {node["module"] for node in inner["nodes"].values()} == {"0", "1"}


# -- how long it lives -----------------------------------------------------------------------------------------------

COUNTING = """
import json
import torch
from delegatekit_api import *

events = []

class Takes:
    def keep_operators(self): return ()
    def check(self, call):
        return Verdict.yes() if call.operator == "aten.sin.default" else Verdict.no("not a sine")
    def propose(self, program): return None

class Runtime:
    def is_available(self): return Availability(True)
    def init(self, payload):
        events.append("init")
        return len(events)
    def execute(self, handle, inputs, outputs):
        events.append(("execute", handle))
        outputs[0].copy_(inputs[0].sin())
    def destroy(self, handle): events.append(("destroy", handle))

@hookimpl
def describe_backend():
    return BackendDescription("counting", "CountingBackend", "delegatekit-counting", "1.2", "a test backend")
@hookimpl
def create_partitioner(options): return Takes()
@hookimpl
def preprocess(partition, options): return PreprocessResult(json.dumps(partition.index).encode())
@hookimpl
def create_runtime(): return Runtime()
"""


class Sine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)


@pytest.fixture
def events(install_plugin: Any) -> list[Any]:
    """Events of the runtime of the backend "counting", in order."""
    install_plugin("counting", COUNTING)
    delegatekit.to_backend(Sine(), (X,), backend="counting")
    found: list[Any] = sys.modules["delegatekit_counting_plugin"].events
    return found


def test_a_delegate_is_made_at_the_first_call_and_released_with_the_last_user(events: list[Any]) -> None:
    lowered = delegatekit.to_backend(Sine(), (X,), backend="counting")
    again = copy.deepcopy(lowered)
    exported = torch.export.export(Around(lowered), (X,), strict=False)
    assert events == []
    for module in (lowered, again, exported.module()):
        same(module(X), X.sin())
    assert events == ["init"] + [("execute", 1)] * 3
    key = lowered._key
    del lowered, again, module
    gc.collect()
    buffer = delegatekit.lower(exported, backends=[]).buffer  # the program keeps it
    same(exported.module()(X), X.sin())
    assert "init" not in events[1:] and ("destroy", 1) not in events
    del exported
    gc.collect()
    assert events[-1] == ("destroy", 1)
    with pytest.raises(LoweringError, match=f"{key} is not known in this process"):
        torch.ops.delegatekit.call_delegate([X], key)
    same(delegatekit.load(buffer)["forward"](X), X.sin())


@pytest.mark.parametrize("backends", [["counting", "xnnpack"], ["xnnpack", "counting"], ["counting"], []])
def test_a_third_backend_takes_what_is_around_two_lowered_modules(
    events: list[Any], demo: str, linear: Any, backends: list[str]
) -> None:
    """The stock runtime has neither of the test backends: only our engine can run this."""
    mixed = delegatekit.to_backend(Mixed(), (X, X.clone()), backend=demo)

    def build(linear: nn.Module, mixed: nn.Module) -> nn.Module:
        return Around(nn.ModuleList([linear, mixed]), lambda two, x: two[1](two[0](x.sin()), two[0](x)).sin().cumsum(1))

    outer = build(linear[1], mixed).eval()
    with torch.no_grad():
        want = build(linear[0], Mixed())(X)
        same(outer(X), want)
    program = delegatekit.lower(outer, (X,), backends=backends)
    taken = [delegate.backend for delegate in delegatekit.report(program).methods[0].delegates]
    assert sorted(taken) == sorted(["demo", "xnnpack", "xnnpack", *backends[:1] * 2])  # both sines to the first
    same(delegatekit.load(program.buffer)["forward"](X), want)
    found = {d.id: d.distribution for d in delegatekit.inspect(program.buffer).methods[0].delegates}
    assert found["DemoBackend"] == "delegatekit-demo" and found["XnnpackBackend"] == "delegatekit-xnnpack"


def test_modules_of_other_sizes_have_handles_of_their_own(events: list[Any]) -> None:
    first = delegatekit.to_backend(Sine(), (X,), backend="counting")
    second = delegatekit.to_backend(Sine(), (torch.randn(2),), backend="counting")
    first(X), second(torch.randn(2)), first(X)
    assert events == ["init", ("execute", 1), "init", ("execute", 3), ("execute", 1)]


def test_calls_from_several_threads_wait_for_each_other(linear: Any) -> None:
    inputs = [torch.randn(3, 8) for _ in range(4)]
    with torch.no_grad():
        wanted = [linear[0](x) for x in inputs]
    failed: list[Any] = []

    def work(number: int) -> None:
        for _ in range(100):
            try:
                same(linear[1](inputs[number]), wanted[number])
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_copy_is_the_same_module(linear: Any) -> None:
    outer = copy.deepcopy(Around(linear[1], lambda inner, x: inner(x).cumsum(0)).eval())
    assert list(outer.state_dict()) == [] and outer.inner.training is linear[1].training
    check(Around(linear[0], lambda inner, x: inner(x).cumsum(0)), outer, [X])
    with pytest.raises(DelegateKitError, match=r"(?s)cannot be pickled.*\.pte"):
        torch.save(outer.inner, io.BytesIO())


def test_it_has_no_gradients(linear: Any) -> None:
    x = X.clone().requires_grad_()
    found = linear[1](x)
    same(found, linear[0](X))
    with pytest.raises(RuntimeError, match="call_delegate"):
        found.sum().backward()


# -- other processes and refusals ------------------------------------------------------------------------------------


def test_the_command_line_tells_who_must_make_the_module(linear: Any, tmp_path: Path) -> None:
    program = torch.export.export(Around(linear[1]), (X,), strict=False)
    torch.export.save(program, tmp_path / "outer.pt2")
    command = [sys.executable, "-c", "from delegatekit.cli import main; main()", "lower", str(tmp_path / "outer.pt2")]
    done = subprocess.run(
        [*command, "-b", "xnnpack", "-o", str(tmp_path / "x.pte")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1 and not (tmp_path / "x.pte").exists()
    assert "is not known in this process" in done.stderr and "to_backend" in done.stderr


def test_a_program_that_was_saved_runs_where_the_module_is(linear: Any) -> None:
    file = io.BytesIO()
    torch.export.save(torch.export.export(Around(linear[1]), (X,), strict=False), file)
    file.seek(0)
    program = torch.export.load(file)
    with torch.no_grad():
        want = linear[0](X)
    same(program.module()(X), want)
    same(delegatekit.load(delegatekit.lower(program, backends=[]).buffer)["forward"](X), want)


def test_what_nobody_could_run_is_told_before_anything_is_compiled(install_plugin: Any) -> None:
    source = COUNTING.replace("def preprocess(partition, options): ", "def preprocess(partition, options): 1 / 0; ")
    install_plugin("counting", source)

    class Unknown(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.qr(torch.sin(x))[0]

    with pytest.raises(UnsupportedError, match=r"(?s)leaves 1 operator: aten\.linalg_qr.*test_lowered_mod.*not a sine"):
        delegatekit.to_backend(Unknown(), (X,), backend="counting")

    class Many(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(8):
                x = torch.cos(x)
            return torch.sin(x)

    with pytest.raises(UnsupportedError, match=r"(?s)leaves 8 operators: .*\(and 3 more\)") as error:
        delegatekit.to_backend(Many(), (X,), backend="counting")
    assert str(error.value).count("aten.cos.default") == 5


def test_a_lowered_module_is_not_lowered_again(linear: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"call_delegate.*it is a delegate already"):
        delegatekit.to_backend(Around(linear[1]), (X,), backend="xnnpack")


def test_a_program_of_several_methods_is_no_module(linear: Any) -> None:
    program = torch.export.export(linear[0], (X,), strict=False)
    with pytest.raises(UnsupportedError, match="has 2 methods"):
        delegatekit.LoweredModule(delegatekit.lower({"one": program, "two": program}, backends=["xnnpack"]))


def test_the_operator_of_lowered_modules_keeps_pytorchs_rules(linear: Any) -> None:
    """PyTorch's own check of a custom operator: schema, fake results, no aliases, under autograd."""
    torch.library.opcheck(
        precompiled.CALL,
        ([X], linear[1]._key),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"),
    )
