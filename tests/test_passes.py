"""Passes before partitioning: examples, fusion by example, what passes must not do, and where they come from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # the operators of quantized programs
from function_module import Function
from torch import Tensor, nn
from torch.nn import functional

import delegatekit
from delegatekit.edge import build_edge
from delegatekit.passes import OwnedPass, apply_passes
from delegatekit_api import LoweringError, PluginError
from delegatekit_api.nodes import describe_node
from delegatekit_toolkit.fusion import Fusion
from delegatekit_toolkit.passes import Change, Pass, PassResult, Repeat
from delegatekit_toolkit.rewriting import EditableProgram, fixed_sizes, without

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from passes import LAYER_NORM, SILU, MergeQuantize, SinkPermutes

aten = torch.ops.aten


def operators(model: nn.Module, inputs: tuple[Any, ...], passes: Any, **more: Any) -> list[str]:
    explanation = delegatekit.explain(
        model, inputs, backends=more.pop("backends", ["reference"]), passes=passes, **more
    )
    return [row.operator.removesuffix(".default").removeprefix("aten.") for row in explanation.rows]


def same_as_eager(model: nn.Module, inputs: tuple[Any, ...], passes: Any, **more: Any) -> None:
    program = delegatekit.lower(model, inputs, backends=["reference"], passes=passes, **more)
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](*inputs), model(*inputs))


# -- the examples ----------------------------------------------------------------------------------------------------


def test_permutations_meet_and_vanish() -> None:
    def channels_last(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return function(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def chain(x: Tensor, y: Tensor) -> Tensor:
        first = channels_last(torch.relu, channels_last(torch.sigmoid, x))
        return first + channels_last(torch.tanh, y)

    model, inputs = Function(chain), (torch.randn(1, 3, 4, 5), torch.randn(1, 3, 4, 5))
    assert operators(model, inputs, None).count("permute_copy") == 4
    assert operators(model, inputs, [SinkPermutes()]) == ["sigmoid", "relu", "tanh", "add.Tensor"]
    same_as_eager(model, inputs, [SinkPermutes()])


def test_a_permutation_that_something_else_reads_stays() -> None:
    def fork(x: Tensor) -> tuple[Tensor, Tensor]:
        moved = x.permute(1, 0)
        return torch.relu(moved), moved + 1

    assert operators(Function(fork), (torch.randn(2, 3),), [SinkPermutes()]).count("permute_copy") == 1


def test_a_dequantize_and_its_quantize_are_merged() -> None:
    scheme, q = (0.1, 3, -128, 127, torch.int8), torch.ops.quantized_decomposed

    def twice(x: Tensor) -> Tensor:
        first = q.dequantize_per_tensor(q.quantize_per_tensor(x, *scheme), *scheme)
        same = q.dequantize_per_tensor(q.quantize_per_tensor(first, *scheme), *scheme)
        return q.dequantize_per_tensor(q.quantize_per_tensor(same, 0.2, *scheme[1:]), 0.2, *scheme[1:])

    model, inputs = Function(twice), (torch.randn(5),)
    kinds = [item.split(".")[1] for item in operators(model, inputs, [MergeQuantize()], backends=["xnnpack"])]
    assert kinds == ["quantize_per_tensor", "dequantize_per_tensor"] * 2
    same_as_eager(model, inputs, [MergeQuantize()])


def norm(x: Tensor, eps: float, weight: Tensor, bias: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return bias + weight * ((x - mean) / torch.sqrt(variance + eps))


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return norm(norm(x, 1e-5, self.weight, self.bias), 0.5, self.weight, self.bias)


def test_a_norm_in_parts_becomes_one_whatever_its_epsilon_and_the_order_of_operands() -> None:
    model, inputs = Norms().eval(), (torch.randn(2, 5, 6),)
    found = delegatekit.explain(model, inputs, backends=["reference"], passes=[LAYER_NORM])
    norms = [row for row in found.rows if "layer_norm" in row.operator]
    assert len(norms) == 2 and not [row for row in found.rows if "sqrt" in row.operator]
    assert all("test_passes.py" in row.source and "norm(norm(x" in row.source for row in norms)
    assert len(found.changes) == 2 and str(found).startswith("changed by layer norm: aten.add.Tensor")
    same_as_eager(model, inputs, [LAYER_NORM])


# -- fusion by example -----------------------------------------------------------------------------------------------


def silu_parts(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * x


def test_fused_operators_keep_module_line_and_debug_handle() -> None:
    class Gate(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return silu_parts(x)

    model = nn.Sequential(nn.Linear(3, 4), Gate(), nn.Linear(4, 4), Gate()).eval()
    inputs = (torch.randn(2, 3),)
    rows = delegatekit.explain(model, inputs, backends=["xnnpack"], passes=[SILU]).rows
    assert [(row.operator, row.module) for row in rows if "linear" not in row.operator] == [
        ("aten.silu.default", "1"),
        ("aten.silu.default", "3"),
    ]
    assert all("return silu_parts(x)" in row.source for row in rows if "silu" in row.operator)
    program = delegatekit.lower(model, inputs, backends=["xnnpack"], passes=[SILU])
    nodes = program.debug_map()["forward"]["nodes"]
    assert {"1", "3"} == {entry["module"] for entry in nodes.values() if entry["operators"] == ["aten.silu.default"]}
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](*inputs), model(*inputs))


def test_a_value_that_is_read_outside_is_in_the_way() -> None:
    def leaks(x: Tensor) -> tuple[Tensor, Tensor]:
        gate = torch.sigmoid(x)
        return x * gate, gate

    assert "silu" not in operators(Function(leaks), (torch.randn(3),), [SILU], backends=["xnnpack"])


def test_several_results_and_a_condition() -> None:
    def before(x: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        inner = torch.exp(x)
        return torch.tanh(inner * scale), inner

    def after(x: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        inner = torch.pow(torch.e, x)
        return torch.tanh(inner * scale), inner

    def model(x: Tensor) -> Tensor:
        first, inner = before(x, 3.0)
        return first + inner + before(x - 1, 5.0)[0]

    inputs = (torch.randn(4),)
    rule = Fusion(before, after, (torch.ones(1), 2.0))
    assert operators(Function(model), inputs, [rule]).count("exp") == 0
    same_as_eager(Function(model), inputs, [rule])
    some = Fusion(
        before, after, (torch.ones(1), 2.0), where=lambda found: found["scale"] > 4 and found["x"].constant is None
    )
    assert operators(Function(model), inputs, [some]).count("exp") == 1


def test_sizes_may_change_and_are_those_of_the_place() -> None:
    def before(x: Tensor) -> Tensor:
        return torch.relu(x.reshape(x.shape[0] * x.shape[1], x.shape[2]))

    def after(x: Tensor) -> Tensor:
        return x.clamp(min=0).reshape(x.shape[0] * x.shape[1], x.shape[2])

    rule = Fusion(before, after, (torch.ones(2, 3, 4),))
    model, inputs = Function(lambda x: before(x) + 1), (torch.randn(5, 2, 7),)
    assert "relu" not in operators(model, inputs, [rule])

    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return before(x) + 1

    sizes = {"x": {0: torch.export.Dim("n", min=2, max=9)}}
    assert "relu" not in operators(One(), inputs, [rule], dynamic_shapes=sizes)
    same_as_eager(One(), inputs, [rule], dynamic_shapes=sizes)
    # The same operators with sizes of another meaning are something else.
    other = Function(lambda x: torch.relu(x.reshape(x.shape[0], x.shape[1] * x.shape[2])))
    assert "relu" in operators(other, inputs, [rule])


@dataclass(frozen=True)
class Turned(Pass[EditableProgram]):
    """A function of a matrix with its axes exchanged, by one of PyTorch's operators."""

    by: Any

    def __call__(self, program: EditableProgram) -> PassResult[EditableProgram]:
        (call,) = program.calls("aten.relu.default")
        x = call["self"]
        flat = program.reshape(call, x, [x.shape[0] * x.shape[1], x.shape[2]])
        turned = program.call(call, aten.relu.default, program.call(call, self.by, flat, [1, 0]))
        made = program.reshape(call, program.call(call, self.by, turned, [1, 0]), x.shape)
        return PassResult(program, (program.replace(call, made, "turned"),))


def test_a_pass_may_not_take_a_size_that_changes_for_that_of_the_example() -> None:
    model, inputs = nn.ReLU(), (torch.randn(5, 4, 7),)
    sizes = {"input": {0: torch.export.Dim("n", max=9), 1: torch.export.Dim("m", max=9)}}
    # PyTorch's fake of the copying operator looks at the sizes.
    with pytest.raises(LoweringError, match=r"permute_copy.default cannot be called so: .*Guard"):
        operators(model, inputs, [Turned(aten.permute_copy.default)], dynamic_shapes=sizes)
    passes = [Turned(aten.permute.default)]
    program = delegatekit.lower(model, inputs, backends=["reference"], passes=passes, dynamic_shapes=sizes)
    method = delegatekit.load(program.buffer)["forward"]
    for x in (torch.randn(5, 4, 7), torch.randn(9, 8, 7), torch.randn(2, 3, 7)):
        torch.testing.assert_close(method(x), model(x))


def test_branches_of_control_flow_are_changed_too() -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, silu_parts, torch.neg, (x,))

    found = delegatekit.explain(Branches(), (torch.randn(3),), backends=["xnnpack"], passes=[SILU])
    assert "aten.silu.default" in [row.operator for row in found.rows]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Fusion(lambda x: x, torch.relu, (torch.ones(1),)), "returns something that no operator computes"),
        (Fusion(lambda x, n: torch.relu(x) * (n * 2), torch.add, (torch.ones(1), 3.0)), "is not an argument"),
        (Fusion(lambda x: (torch.relu(x), torch.neg(x)), torch.relu, (torch.ones(1),)), "does not depend on neg"),
        (Fusion(lambda x: x * torch.ones(1), torch.relu, (torch.ones(1),)), None),
        (Fusion(torch.relu, lambda x: (x, x), (torch.ones(1),)), "`after` returns 2 values, and `before` 1"),
        (Fusion(torch.relu, lambda x: x.reshape(7, 7), (torch.ones(1),)), "cannot be traced"),
        (Fusion(torch.relu, lambda x: x.relu_(), (torch.ones(1),)), "writes in place: aten.relu_.default"),
        (Fusion(torch.relu, lambda x: x.sum(), (torch.ones(1),)), r"output 0 was float32\[3\], and is float32\[\]"),
    ],
)
def test_examples_that_cannot_be_are_refused(rule: Fusion, message: str | None) -> None:
    model = Function(torch.relu)
    if message is None:
        assert operators(model, (torch.randn(3),), [rule]) == ["relu"]
        return
    with pytest.raises(LoweringError, match=message) as error:
        delegatekit.lower(model, (torch.randn(3),), backends=["reference"], passes=[rule])
    assert str(error.value).startswith("pass Fusion(")


# -- memory -----------------------------------------------------------------------------------------------------------


def test_weights_that_a_pass_does_not_read_are_not_computed() -> None:
    def work(program: EditableProgram) -> PassResult[EditableProgram]:
        lying.extend(node.name for node, _ in method.constants.known() if not method.constants.is_held(node))
        call = program.calls("aten.relu.default")[0]
        new = program.call(call, aten.clamp.default, call["self"], 0.0)
        return PassResult(program, (program.replace(call, new, ""),))

    lying: list[str] = []
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.ReLU()).eval()
    method = build_edge(torch.export.export(model, (torch.randn(1, 3, 16, 16),), strict=False))
    folded = {node.name for node in method.constants if not method.constants.is_held(node)}
    assert folded
    changed, changes = apply_passes(method, [OwnedPass(Does(work))], ())
    assert changes and not lying
    assert {node.name for node in changed.constants if not changed.constants.is_held(node)} == folded


# -- passes that misbehave -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Does(Pass[EditableProgram]):
    """Applies a function."""

    work: Callable[[EditableProgram], Any]
    name: str = "the worst"

    def __call__(self, program: EditableProgram) -> Any:
        return self.work(program)


def told(program: EditableProgram, *nodes: Any) -> PassResult[EditableProgram]:
    return PassResult(program, tuple(Change("here", "because") for _ in nodes or [0]))


def widen(program: EditableProgram) -> Any:
    call = program.calls("aten.relu.default")[0]
    return PassResult(
        program,
        (program.replace(call, program.call(call, aten._to_copy.default, call["self"], dtype=torch.float64), ""),),
    )


def grow(program: EditableProgram) -> Any:
    call = program.calls("aten.relu.default")[0]
    return PassResult(program, (program.replace(call, program.call(call, aten.cat.default, [call["self"]] * 2), ""),))


def endless(program: EditableProgram) -> Any:
    for node in program.graph.nodes:
        if node.target is aten.relu.default:
            with program.graph.inserting_after(node):
                program.graph.call_function(aten.relu.default, (node,))
    return told(program)


def late(program: EditableProgram) -> Any:
    first, last = program.calls("aten.neg.default", "aten.relu.default")
    first.node.args = (last.node,)
    return told(program)


def drop_input(program: EditableProgram) -> Any:
    node = program.inputs[0]
    node.replace_all_uses_with(program.constant(torch.ones(3)))
    program.graph.erase_node(node)
    return told(program)


def stranger(program: EditableProgram) -> Any:
    call = program.calls()[0]
    program.replace(call, program.graph.placeholder("more"), "")
    return told(program)


def in_place(program: EditableProgram) -> Any:
    call = program.calls()[0]
    return PassResult(program, (program.replace(call, program.call(call, aten.relu_.default, call["self"]), ""),))


def python(program: EditableProgram) -> Any:
    call = program.calls()[0]
    with program.graph.inserting_before(call.node):
        node = program.graph.call_function(print, (call["self"].node,))
    return PassResult(program, (program.replace(call, node, ""),))


def quiet_change(program: EditableProgram) -> Any:
    widen(program)
    return PassResult(program)


def wrong_call(program: EditableProgram) -> Any:
    call = program.calls()[0]
    program.call(call, aten.mm.default, call["self"], call["self"])


def leave(program: EditableProgram) -> Any:
    sys.exit(3)


MISBEHAVIOUR = [
    (widen, r"output 0 was float32\[3\], and is float64\[3\] after it"),
    (grow, r"output 0 was float32\[3\], and is float32\[6\] after it"),
    (endless, "wrote more than 10.* nodes into a graph of 3"),
    (late, "reads relu_default before it is computed"),
    (drop_input, "the input .* was removed"),
    (stranger, "more is a new placeholder without a value"),
    (in_place, "calls aten.relu_.default, which writes in place"),
    (python, "calls print, which is not an operator"),
    (quiet_change, "changed the program at .* without reporting it"),
    (told, "reports a change, but made none"),
    (wrong_call, "aten.mm.default cannot be called so: "),
    (leave, "raised SystemExit"),
    (lambda program: 1 / 0, r"\(.*test_passes.py:\d+\): raised ZeroDivisionError: division by zero"),
    (lambda program: [program], "returned .*, not its result"),
    (lambda program: program.graph, "returned .*, not its result"),
]


@pytest.mark.parametrize(("work", "message"), MISBEHAVIOUR, ids=lambda item: getattr(item, "__name__", ""))
@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
def test_a_pass_that_misbehaves_is_named(work: Any, message: str, debug: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    (monkeypatch.setenv if debug else lambda name, _: monkeypatch.delenv(name, raising=False))(
        "DELEGATEKIT_VERIFY", "1"
    )
    model, inputs = Function(lambda x: torch.relu(torch.neg(x))), (torch.randn(3),)
    with pytest.raises(LoweringError, match=message) as error:
        delegatekit.lower(model, inputs, backends=["reference"], passes=[Does(work)])
    assert "pass the worst" in str(error.value).splitlines()[0]


def test_what_is_no_pass_is_refused_before_any_work() -> None:
    class Loose(Pass[EditableProgram]):
        def __call__(self, program: EditableProgram) -> PassResult[EditableProgram]:
            return PassResult(program)

    given: list[tuple[Any, str]] = [
        (SILU, "is not a list"),
        ("silu", r"passes\[0\] is 's', which is not a pass"),
        ([SinkPermutes], r"passes\[0\] is the class SinkPermutes\n  -> make one: SinkPermutes\(\)"),
        ([SILU, 7], r"passes\[1\] is 7, which is not a pass"),
        ([Loose()], r"passes\[0\] is a Loose, which is no frozen dataclass"),
    ]
    for passes, message in given:
        with pytest.raises(LoweringError, match=message):
            delegatekit.lower(Function(torch.relu), (torch.randn(3),), backends=["reference"], passes=passes)


@dataclass(frozen=True)
class Swap(Pass[EditableProgram]):
    """One operator replaced by another, without end."""

    old: str
    new: Any
    requires: ClassVar = (fixed_sizes(),)

    def __call__(self, program: EditableProgram) -> PassResult[EditableProgram]:
        return PassResult(
            program,
            tuple(
                program.replace(call, program.call(call, self.new, call["self"]), "as asked")
                for call in program.calls(self.old)
            ),
        )


def test_passes_that_undo_each_other_come_to_an_end() -> None:
    swaps = (Swap("aten.relu.default", aten.neg.default), Swap("aten.neg.default", aten.relu.default))
    with pytest.raises(LoweringError, match=r"pass Repeat.*still changed something in round 20"):
        delegatekit.lower(Function(torch.relu), (torch.ones(3),), backends=["reference"], passes=[Repeat(swaps)])


def test_requirements_and_promises_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Promises(Swap):
        ensures: ClassVar = (without("aten.relu.default"),)

    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x)

    sizes = {"x": {0: torch.export.Dim("n", min=2, max=9)}}
    with pytest.raises(LoweringError, match=r"requires a graph that has fixed sizes: a size of aten.relu.default"):
        operators(One(), (torch.ones(3),), [Swap("aten.relu.default", aten.neg.default)], dynamic_shapes=sizes)
    monkeypatch.setenv("DELEGATEKIT_VERIFY", "1")
    model = Function(lambda x: torch.neg(torch.relu(x)))
    with pytest.raises(LoweringError, match=r"ensures a graph that has no aten.relu.default: there is aten.relu"):
        operators(model, (torch.ones(3),), [Promises("aten.neg.default", aten.relu.default)])


def test_a_pass_may_use_the_graph_itself() -> None:
    def by_hand(program: EditableProgram) -> PassResult[EditableProgram]:
        node = program.calls("aten.relu.default")[0].node
        with program.graph.inserting_before(node):
            new = program.graph.call_function(aten.hardtanh.default, (node.args[0], 0.0, 6.0))
        where = describe_node(node)
        node.replace_all_uses_with(new)
        program.graph.erase_node(node)
        return PassResult(program, (Change(where, "bounded"),))

    found = delegatekit.explain(Function(torch.relu), (torch.ones(3),), backends=["reference"], passes=[by_hand])
    assert [(row.operator, "test_passes" in row.source or bool(row.source)) for row in found.rows] == [
        ("aten.hardtanh.default", True)
    ]
    assert str(found.changes[0]).startswith("by_hand: aten.relu.default")


def test_a_buffer_keeps_its_place() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.seen.add_(silu_parts(x))
            return self.seen * 2

    model, x = Counts(), torch.randn(3)
    program = delegatekit.lower(model, (x,), backends=["reference"], passes=[SILU])
    method = delegatekit.load(program.buffer)["forward"]
    for count in (1, 2):
        torch.testing.assert_close(method(x), 2 * count * functional.silu(x))


# -- where passes come from ------------------------------------------------------------------------------------------


def test_a_whole_module_is_compiled_after_passes() -> None:
    model, inputs = Function(silu_parts), (torch.randn(3),)
    module = delegatekit.to_backend(model, inputs, backend="xnnpack", passes=[SILU])
    torch.testing.assert_close(module(*inputs), model(*inputs))


def test_a_plugin_brings_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    from delegatekit.plugins.backend import LoadedBackend

    monkeypatch.setattr(LoadedBackend, "passes", lambda self, options: (SILU,))
    assert operators(Function(silu_parts), (torch.randn(3),), None, backends=["xnnpack"]) == ["silu"]
    monkeypatch.setattr(LoadedBackend, "passes", lambda self, options: (Does(lambda program: 1 / 0),))
    with pytest.raises(LoweringError, match=r"pass the worst of backend xnnpack \(delegatekit-xnnpack .*ZeroDivision"):
        operators(Function(silu_parts), (torch.randn(3),), None, backends=["xnnpack"])


def test_the_hook_of_a_plugin_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from delegatekit.plugins import get_backend
    from delegatekit_api import hookimpl

    backend = get_backend("xnnpack")
    extra: Any = type("Extra", (), {"passes": hookimpl(lambda self, options: [SILU])})()
    backend._manager.register(extra)
    try:
        assert operators(Function(silu_parts), (torch.randn(3),), None, backends=["xnnpack"]) == ["silu"]
        backend._manager.unregister(extra)
        extra = type("Extra", (), {"passes": hookimpl(lambda self, options: [SILU, 3])})()
        backend._manager.register(extra)
        with pytest.raises(PluginError, match=r"passes\[1\] is 3, not a function"):
            operators(Function(silu_parts), (torch.randn(3),), None, backends=["xnnpack"])
    finally:
        backend._manager.unregister(extra)


MODELS = """
import torch
from dataclasses import dataclass
from delegatekit_toolkit.fusion import Fusion

class Net(torch.nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)

def make():
    return Net(), (torch.ones(3),)

def parts(x):
    return x * torch.sigmoid(x)

@dataclass(frozen=True)
class Silu(Fusion):
    before: object = parts
    after: object = torch.nn.functional.silu
    example: tuple = (torch.ones(2),)

FUSE = [Silu()]
NUMBER = 7
"""


def test_the_command_line_takes_passes_by_name(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from delegatekit.cli import application

    (tmp_path / "pass_models.py").write_text(MODELS)
    place = f"{tmp_path}/pass_models.py"
    explain = ["explain", f"{place}:make", "-b", "xnnpack", "--all"]
    app = application()
    for name in ("FUSE", "Silu"):
        result = CliRunner().invoke(app, [*explain, "--pass", f"{place}:{name}"])
        assert result.exit_code == 0 and "aten.silu.default (silu_default): xnnpack" in result.output, result.output
    lower = ["lower", f"{place}:make", "-b", "xnnpack", "-o", f"{tmp_path}/net.pte", "--pass"]
    assert "1 of 1 operators" in CliRunner().invoke(app, [*lower, f"{place}:FUSE"]).output
    for name, message in {
        f"{place}:NUMBER": "pass_models.py:NUMBER is 7, which is not a pass",
        f"{place}:Missing": "has no 'Missing'",
        f"{place}": "is not of the form MODULE:NAME",
        "no_such_module_anywhere:P": "No module named 'no_such_module_anywhere'",
    }.items():
        result = CliRunner().invoke(app, [*lower, name])
        text = " ".join(f"{result.output} {result.exception}".split())
        assert result.exit_code != 0 and message in text, text


@pytest.mark.parametrize("number", [0, 1])
def test_the_page_shows_passes_that_work(number: int, tmp_path: Path) -> None:
    import re

    page = (Path(__file__).parents[1] / "docs" / "passes.md").read_text()
    block = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[number]
    script = tmp_path / "shown.py"
    script.write_text(block)
    exec(compile(block, str(script), "exec"), {"__name__": "shown"})
