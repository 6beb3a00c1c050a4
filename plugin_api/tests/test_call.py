"""Calls and operands: arguments by name, facts about tensors, and quantization; on both kinds of graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from torch.export import Dim
from torch.fx import Graph
from torch.nn import functional

from delegatekit_api import Call, Operand, ProgramView
from delegatekit_api.schemes import Quantization

aten = torch.ops.aten
decomposed = torch.ops.quantized_decomposed


class Apply(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def exported(model: Any, *inputs: torch.Tensor, dynamic_shapes: Any = None) -> ProgramView:
    module = (model if isinstance(model, torch.nn.Module) else Apply(model)).eval()
    return ProgramView.of(torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes, strict=False))


def edge(model: Any, *inputs: torch.Tensor, dynamic_shapes: Any = None) -> ProgramView:
    core = pytest.importorskip("delegatekit.edge", reason="the core is not installed")
    module = (model if isinstance(model, torch.nn.Module) else Apply(model)).eval()
    program = torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes, strict=False)
    return core.build_edge(program, keep={"aten.linear.default"}).view  # type: ignore[no-any-return]


#: An exported program, and the core's edge program.
VIEWS = pytest.mark.parametrize("view_of", [exported, edge])
X = torch.ones(2, 3)


def calls(view: ProgramView) -> dict[str, Call]:
    """The last call of each operator."""
    return {call.operator: call for call in view.calls()}


@VIEWS
def test_arguments_have_names_and_defaults(view_of: Callable[..., ProgramView]) -> None:
    (call,) = view_of(torch.add, X, X).calls()
    assert call.operator == "aten.add.Tensor"
    assert [type(call[name]) for name in ("self", "other")] == [Operand, Operand]
    assert call["alpha"] == 1
    assert list(call.arguments) == ["self", "other", "alpha"]
    assert call.arguments["self"] == call["self"] == call.operands[0]
    (call,) = view_of(lambda x, y: torch.add(x, y, alpha=2), X, X).calls()
    assert call["alpha"] == 2


@VIEWS
def test_unknown_arguments_are_an_error_and_can_be_asked_about(view_of: Callable[..., ProgramView]) -> None:
    (call,) = view_of(torch.relu, X).calls()
    with pytest.raises(KeyError, match=r"aten\.relu\.default has no argument 'dim'"):
        call["dim"]
    assert not call.has("dim")
    assert call.has("self")
    assert call.get("dim") is None
    assert call.get("dim", 3) == 3
    assert call.get("self") == call["self"]


@VIEWS
def test_lists_are_tuples_and_what_is_left_out_is_none(view_of: Callable[..., ProgramView]) -> None:
    index = torch.tensor([0, 1])
    view = view_of(lambda x: torch.cat([x, x + 1], 1)[:, index], X)
    found = calls(view)
    cat = found["aten.cat.default"]
    assert cat["tensors"] == (view.operand(view.inputs[0]), cat.operands[1])
    assert cat["dim"] == 1
    indices = found["aten.index.Tensor"]["indices"]
    assert indices[0] is None and isinstance(indices[1], Operand)
    (linear,) = view_of(torch.nn.Linear(3, 2, bias=False), X).calls()
    assert linear["bias"] is None
    (total,) = view_of(lambda x: x.sum((0, -1)), X).calls()
    assert total["dim"] == (0, -1)
    assert total["dtype"] is None and total["keepdim"] is False


@VIEWS
def test_sizes_that_the_program_computes_are_symints(view_of: Callable[..., ProgramView]) -> None:
    shapes = (({0: Dim("n", max=9)},),)
    view = view_of(lambda x: x.reshape(x.shape[0] * 3).relu(), X, dynamic_shapes=shapes)
    found = calls(view)
    assert "mul" not in found and not any("sym_size" in name for name in found)
    reshape = next(call for call in view.calls() if call.sizes)
    (size,) = reshape["size"] if reshape.has("size") else reshape["shape"]
    assert isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None
    assert reshape.operands == (view.operand(view.inputs[0]),)
    assert reshape.is_dynamic and reshape.result.is_dynamic
    relu = found["aten.relu.default"]
    assert relu.sizes == () and relu.is_dynamic


def test_a_number_out_of_a_tensor_is_a_call_without_results() -> None:
    view = exported(lambda x: x * x.sum().item(), X)
    call = calls(view)["aten.item.default"]
    assert call.results == () and call.operands[0].producer == calls(view)["aten.sum.default"]
    assert calls(view)["aten.mul.Tensor"].sizes == (call.node,)


@VIEWS
def test_several_results_are_told_apart(view_of: Callable[..., ProgramView]) -> None:
    view = view_of(lambda x: x.max(1), X)
    (call,) = view.calls()
    values, indices = call.results
    assert (values.dtype, indices.dtype) == (torch.float32, torch.int64)
    assert (values.index, indices.index) == (0, 1)
    assert values != indices and values == call.results[0] == Operand(call.node, view, 0)
    assert len({values, indices, call.results[0]}) == 2
    assert call.tensors == (*call.operands, values, indices)
    with pytest.raises(ValueError, match="too many values"):
        call.result  # noqa: B018
    assert [user.operator for user in call.users] == ["getitem", "getitem"]


@VIEWS
def test_what_is_known_of_a_tensor(view_of: Callable[..., ProgramView]) -> None:
    view = view_of(torch.nn.Linear(3, 2), X)
    (call,) = view.calls()
    weight, result = call["weight"], call.result
    assert (weight.shape, weight.rank, weight.dtype, weight.dtype_name) == ((2, 3), 2, torch.float32, "float32")
    assert weight.is_constant and weight.is_known and weight.constant is not None
    assert weight.constant.shape == (2, 3)
    assert weight.producer is None and weight.users == (call,)
    assert not call["input"].is_constant and call["input"].constant is None and not call["input"].is_known
    assert result.producer == call and result.users == ()
    assert result.shape == (2, 2) and not result.is_dynamic
    assert repr(result) == f"{result.name}: float32[2, 2]"
    assert weight.description.startswith("placeholder (")
    assert result.description == call.description


@VIEWS
def test_a_tensor_used_twice_is_one_operand(view_of: Callable[..., ProgramView]) -> None:
    (call,) = view_of(lambda x: x * x, X).calls()
    assert len(call.operands) == 1 and call["self"] == call["other"]
    assert {call["self"]: 1}[call["other"]] == 1


def test_calls_are_equal_if_they_are_the_same_node() -> None:
    view = exported(lambda x: x.relu().relu(), X)
    first, second = view.calls()
    assert first != second
    assert first == Call(first.node, view) and hash(first) == hash(Call(first.node, view))
    assert first.users == (second,) and second["self"].producer == first
    assert first != first.node and view.operand(first.node) != first


def test_calls_know_their_place() -> None:
    view = exported(lambda x: x.relu(), X)
    (call,) = view.calls()
    assert call.debug_handle is None
    call.node.meta["debug_handle"] = 7
    assert Call(call.node, view).debug_handle == 7
    assert call.source_line is not None and "test_call.py" in call.source_line
    assert call.description.startswith("aten.relu.default (relu)") and call.source_line in call.description
    assert repr(call) == call.description


def test_python_functions_have_no_arguments_by_name() -> None:
    view = exported(lambda x: x.max(1)[0], X)
    item = next(node for node in view.graph.nodes if node.name.startswith("getitem"))
    call = Call(item, view)
    assert call.operator == "getitem" and call.arguments == {}
    with pytest.raises(KeyError, match="getitem has no argument 'self'"):
        call["self"]


def test_positional_keyword_and_default_arguments_are_read_alike() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    program = ProgramView(graph, {}, (x,), ())
    nodes = [
        graph.call_function(aten.avg_pool2d.default, (x, [3, 3], [2, 2], [1, 1], True)),
        graph.call_function(aten.avg_pool2d.default, (x, [3, 3], [2, 2]), {"padding": [1, 1], "ceil_mode": True}),
    ]
    for node in nodes:
        call = Call(node, program)
        assert (call["kernel_size"], call["stride"], call["padding"]) == ((3, 3), (2, 2), (1, 1))
        assert (call["ceil_mode"], call["count_include_pad"], call["divisor_override"]) == (True, True, None)
    bad = Call(graph.call_function(aten.avg_pool2d.default, (x,)), program)
    assert bad["stride"] == ()  # the default
    with pytest.raises(KeyError, match="needs kernel_size"):
        bad["kernel_size"]


def test_operands_are_looked_up_once() -> None:
    (call,) = exported(torch.add, X, X).calls()
    assert call.operands is call.operands and call.results is call.results
    assert call.operands[0].shape is call.operands[0].shape


# -- quantization --------------------------------------------------------------------------------------------------


def quantize(x: torch.Tensor, scale: float = 0.5, zero: int = 3) -> torch.Tensor:
    return decomposed.quantize_per_tensor.default(x, scale, zero, -128, 127, torch.int8)  # type: ignore[no-any-return]


def dequantize(x: torch.Tensor, scale: float = 0.5, zero: int = 3) -> torch.Tensor:
    return decomposed.dequantize_per_tensor.default(x, scale, zero, -128, 127, torch.int8)  # type: ignore[no-any-return]


QUANTIZED = Quantization(torch.int8, -128, 127, 0.5, 3)
WEIGHT = torch.ones(4, 3, dtype=torch.int8)


def test_operands_and_results_say_how_they_are_quantized() -> None:
    view = exported(lambda x: quantize(functional.relu(dequantize(quantize(x)))), X)
    relu = calls(view)["aten.relu.default"]
    operand = relu["self"]
    assert operand.quantization == relu.result.quantization == QUANTIZED
    assert operand.integers is not None and operand.integers.dtype is torch.int8
    assert operand.integers.quantization is None  # integers, not numbers
    assert relu.result.integers is None
    assert relu.quantization is None
    assert operand.producer is not None and operand.producer.quantization == QUANTIZED
    # The program's input is quantized by the one that reads it.
    assert view.operand(view.inputs[0]).quantization == QUANTIZED


def test_a_result_that_others_read_too_is_not_quantized() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.relu()
        return quantize(y), y + 1

    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.relu()
        return quantize(y), quantize(y, 0.25)

    def same(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.relu()
        return quantize(y), quantize(y) + 1

    for function, wanted in ((both, None), (two, None), (same, QUANTIZED)):
        assert calls(exported(function, X))["aten.relu.default"].result.quantization == wanted


def test_constant_integers_after_a_dequantize_are_known() -> None:
    scales, zeros = torch.tensor([0.5, 1.0, 2.0, 4.0]), torch.zeros(4, dtype=torch.int64)

    def per_channel(x: torch.Tensor) -> torch.Tensor:
        weight = decomposed.dequantize_per_channel.default(WEIGHT, scales, zeros, 0, -127, 127, torch.int8)
        return functional.linear(x, weight)

    weight = calls(exported(per_channel, X))["aten.linear.default"]["weight"]
    assert weight.is_known and not weight.is_constant
    assert weight.integers is not None and weight.integers.is_constant
    found = weight.quantization
    assert found is not None and found.axis == 0 and not found.is_per_tensor and found.is_symmetric
    assert isinstance(found.scale, torch.Tensor) and torch.equal(found.scale, scales)

    plain = calls(exported(lambda x: functional.linear(x, dequantize(WEIGHT)), X))["aten.linear.default"]["weight"]
    assert plain.is_known and plain.quantization == QUANTIZED
    computed = calls(exported(lambda x, w: functional.linear(x, dequantize(w)), X, WEIGHT))["aten.linear.default"]
    assert not computed["weight"].is_known and computed["weight"].quantization == QUANTIZED


def test_scales_that_are_computed_are_not_known() -> None:
    def changing(x: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(4, dtype=torch.int64)
        weight = decomposed.dequantize_per_channel.default(WEIGHT, scales, zeros, 0, -127, 127, torch.int8)
        return functional.linear(x, weight)

    weight = calls(exported(changing, X, torch.ones(4)))["aten.linear.default"]["weight"]
    assert weight.quantization is None and not weight.is_known and weight.integers is not None


def test_quantizations_are_compared_by_what_they_mean() -> None:
    scale = torch.tensor([0.5, 1.0])
    left = Quantization(torch.int8, -128, 127, scale, torch.zeros(2), axis=0)
    assert left == Quantization(torch.int8, -128, 127, scale.clone(), torch.zeros(2), axis=0)
    assert left != Quantization(torch.int8, -128, 127, scale + 1, torch.zeros(2), axis=0)
    assert left not in (QUANTIZED, 3)
    assert QUANTIZED.is_per_tensor and not QUANTIZED.is_symmetric
    assert hash(left) == hash(Quantization(torch.int8, -128, 127, scale.clone(), torch.zeros(2), axis=0))
