"""Supported and refused operators, with the reasons."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import nn

import delegatekit
from delegatekit.edge import build_edge
from delegatekit_api import Call, OptionError, QuantizationError
from delegatekit_api.nodes import operator_name
from delegatekit_api.schemes import DEQUANTIZE, QUANTIZE
from delegatekit_ethosu.options import EthosUOptions
from delegatekit_ethosu.support import TABLE, EthosUPartitioner
from delegatekit_ethosu.targets import TARGETS
from delegatekit_toolkit.tosa.lowering.operators.convolution import convolution_obstacle, transposed_obstacle
from delegatekit_toolkit.tosa.lowering.operators.functions import lower_function
from delegatekit_toolkit.tosa.lowering.operators.resize import resize_obstacle
from delegatekit_toolkit.tosa.lowering.support import unit_rules


def verdicts(module: Any, *inputs: torch.Tensor, **options: Any) -> dict[str, str]:
    """Operator -> the reason for refusing it, "" if it is supported."""
    partitioner = EthosUPartitioner(EthosUOptions(**options))
    edge = build_edge(torch.export.export(module, inputs, strict=False), keep=partitioner.keep_operators())
    found: dict[str, str] = {}
    for node in edge.graph.nodes:
        if node.op == "call_function":
            found.setdefault(operator_name(node), partitioner.check(Call(node, edge.view)).reason)
    return found


def quantized(module: nn.Module, *inputs: torch.Tensor, **more: Any) -> Any:
    return delegatekit.quantize(module.eval(), [inputs], backend="ethosu", **more)


def test_every_operator_of_the_table_has_a_lowering() -> None:
    rules = unit_rules(TARGETS["ethos-u55-128"])
    tabled = {name for name, row in TABLE.items() if row.lower is lower_function}
    assert tabled <= rules.pointwise and not tabled & rules.anchors
    assert TABLE.keys() == tabled | rules.anchors | QUANTIZE | DEQUANTIZE
    assert all(TABLE[name].constraints for name in tabled)
    assert rules.clamps <= tabled and rules.truths <= rules.anchors and rules.pairs.keys() <= rules.anchors


def test_floating_programs_are_told_to_be_quantized() -> None:
    found = verdicts(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.randn(1, 3, 8, 8))
    assert all("quantize the model" in reason for reason in found.values()) and len(found) == 2


def test_a_weight_that_is_a_vector_stays_outside() -> None:
    class Dot(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x.relu(), self.weight)

    module = quantized(Dot(), torch.randn(4, 6))
    (layer,) = module.quantization.kept
    assert layer.operator == "linear" and "vector" in layer.reason


def differing_steps(module: Any, got: torch.Tensor, want: torch.Tensor) -> int:
    """The largest difference in steps of the last quantized value."""
    scales = [node.args[1] for node in module.graph.nodes if "dequantize_per_tensor" in str(node.target)]
    return int(((got - want) / scales[-1]).abs().round().max())


def test_what_is_computed_of_a_constant_alone_stays_outside() -> None:
    class Constants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("numbers", torch.rand(4) + 1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            numbers: Any = self.numbers
            return numbers / numbers, x.relu() + numbers

    x = torch.randn(3, 4)
    module = quantized(Constants(), x)
    program = delegatekit.lower(module, (x,), backends=["ethosu"])
    for got, want in zip(delegatekit.load(program.buffer)["forward"](x), module(x), strict=True):
        assert differing_steps(module, got, want) <= 1


def test_computed_slopes_stay_outside() -> None:
    class Sloped(nn.Module):
        def forward(self, x: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
            return torch.prelu(x.sigmoid(), slopes)

    inputs = torch.randn(1, 4, 5, 5), torch.rand(4)
    module = quantized(Sloped(), *inputs)
    (layer,) = module.quantization.kept
    assert layer.operator == "prelu" and "slopes is computed" in layer.reason
    assert delegatekit.report(delegatekit.lower(module, inputs, backends=["ethosu"])).methods[0].delegates


def test_plain_integers_are_no_quantized_numbers() -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    found = verdicts(Sum(), torch.ones(3, 4, dtype=torch.int32))
    assert found == {"aten.add.Tensor": found["aten.add.Tensor"]}
    assert "computes on int32 without scale" in found["aten.add.Tensor"]


@pytest.mark.parametrize("scale", [math.inf, math.nan, 0.0])
def test_scales_that_stand_for_no_numbers_are_refused(scale: float) -> None:
    quantized_decomposed = torch.ops.quantized_decomposed

    class Clamp(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = quantized_decomposed.dequantize_per_tensor.default(x, scale, 0, -128, 127, torch.int8)
            return quantized_decomposed.quantize_per_tensor.default(y.relu(), 0.5, 0, -128, 127, torch.int8)

    found = verdicts(Clamp(), torch.ones(3, 4, dtype=torch.int8))
    assert f"of scale {scale}" in found["aten.relu.default"]


def test_the_programs_numbers_become_integers_outside() -> None:
    module, x = nn.Conv2d(3, 4, 3), torch.randn(1, 3, 8, 8)
    found = verdicts(quantized(module, x), x)
    assert found["aten.convolution.default"] == ""
    assert "outside" in found["quantized_decomposed.quantize_per_tensor.default"]


def test_what_stays_in_float_does_not_keep_its_neighbors_off() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            return self.last(torch.relu(y) + y.cumsum(-1))

    x = torch.randn(2, 8)
    module = quantized(Model(), x)
    (layer,) = module.quantization.kept
    assert "no rule for cumsum" in layer.reason
    program = delegatekit.lower(module, (x,), backends=["ethosu"])
    (method,) = delegatekit.report(program).methods
    # One before the sums, which gives integers to them as well as to the next, and one after them.
    assert len(method.delegates) == 2
    got = delegatekit.load(program.buffer)["forward"](x)
    # One more for the sums, whose integers may be the next ones, too.
    assert differing_steps(module, got, module(x)) <= 2


def test_operators_that_the_user_leaves_out_stay_outside() -> None:
    module, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)), torch.randn(1, 3, 8, 8)
    found = verdicts(quantized(module, x), x, leave_out=frozenset({"max_pool2d"}))
    assert found["aten.max_pool2d.default"] == "left out by the option leave_out"
    assert found["aten.convolution.default"] == ""
    with pytest.raises(OptionError, match="not an operator that the backend takes"):
        EthosUPartitioner(EthosUOptions(leave_out=frozenset({"conv9d"})))


def test_integers_of_other_types_are_refused() -> None:
    class Unsigned(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = torch.ops.quantized_decomposed
            x = q.dequantize_per_tensor(x, 0.05, 3, 0, 255, torch.uint8)
            return q.quantize_per_tensor(x.relu(), 0.03, 20, 0, 255, torch.uint8)

    import torch.ao.quantization.fx._decomposed  # registers the operators

    found = verdicts(Unsigned(), torch.randint(0, 255, (4,), dtype=torch.uint8))
    assert "uint8, 0 to 255: the NPU needs int8" in found["quantized_decomposed.quantize_per_tensor.default"]


@pytest.mark.parametrize(
    ("narrow", "zero_point", "reason"),
    [
        (True, 0, "operands and result are int16 and int8: the NPU needs one type"),
        (False, 5, "int16 with the zero point 5: the NPU needs 0"),
        (False, 0, ""),
    ],
)
def test_operands_and_result_are_of_one_type(narrow: bool, zero_point: int, reason: str) -> None:
    class Negative(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = torch.ops.quantized_decomposed
            x = q.dequantize_per_tensor(x, 0.05, zero_point, -32768, 32767, torch.int16)
            if narrow:
                return q.quantize_per_tensor(x.neg(), 0.05, 3, -128, 127, torch.int8)
            return q.quantize_per_tensor(x.neg(), 0.05, zero_point, -32768, 32767, torch.int16)

    import torch.ao.quantization.fx._decomposed  # registers the operators

    found = verdicts(Negative(), torch.randint(-9, 9, (4,), dtype=torch.int16))
    assert found["quantized_decomposed.quantize_per_tensor.default"] == reason


def test_sizes_that_change_stay_in_float() -> None:
    module, x = nn.Linear(8, 4).eval(), torch.randn(3, 8)
    shapes = ({0: torch.export.Dim("rows", min=2, max=16)},)
    with pytest.raises(QuantizationError, match="change from call to call"):
        delegatekit.quantize(module, [(x,)], backend="ethosu", dynamic_shapes=shapes)


REFUSED: dict[str, tuple[Any, tuple[int, ...], str]] = {
    "kernel": (nn.Conv2d(1, 1, (65, 1)), (1, 1, 80, 4), "65x1"),
    "dilated kernel": (nn.Conv2d(1, 1, (33, 1), dilation=(2, 1)), (1, 1, 80, 4), "65x1"),
    "uneven padding": (nn.Conv2d(1, 1, 4, padding="same"), (1, 1, 8, 8), "its operand constant_pad_nd"),
    "transposed, stride": (nn.ConvTranspose2d(1, 1, 3, (1, 17)), (1, 1, 8, 8), r"stride \(1, 17\): 16 is the maximum"),
    "transposed, dilation": (nn.ConvTranspose2d(1, 1, 3, dilation=2), (1, 1, 8, 8), "dilation"),
    "dilated maximum": (nn.MaxPool2d(2, dilation=2), (1, 1, 8, 8), "dilation"),
    "half as large again": (nn.Upsample(scale_factor=1.5), (1, 1, 8, 8), "nearest resizing but by whole factors"),
    "three times as large": (nn.Upsample(scale_factor=3, mode="bilinear"), (1, 1, 8, 8), "but by 2, 4 or 8"),
    "scaled unevenly": (nn.Upsample(scale_factor=1.3), (1, 1, 8, 8), "are not the ratio of the sizes"),
    "rounded sizes": (nn.Upsample((82, 8)), (1, 1, 2, 8), "PyTorch's rounding selects other pixels"),
    "uneven windows": (nn.AdaptiveAvgPool2d(3), (1, 1, 8, 8), "not a multiple"),
    "many axes": (nn.ReLU(), (1, 1, 1, 1, 1, 1, 2), "7 axes"),
    "one element": (nn.Softmax(-1), (3, 1), "constant"),
    "long axis": (nn.ReLU(), (65537,), "65536"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_npu_cannot_do_is_not_quantized(name: str) -> None:
    module, shape, reason = REFUSED[name]
    with pytest.raises(QuantizationError, match=reason):
        quantized(module, torch.randn(shape))


def test_limits_are_inclusive() -> None:
    one, three = (1, 1), (1, 1, 1)
    assert convolution_obstacle((1, 1, 64, 64), (1, 1, 64, 64), (1, 1, 1, 1), one, one, (0, 0)) is None
    assert "64x65" in str(convolution_obstacle((1, 1, 64, 65), (1, 1, 64, 65), (1, 1, 1, 1), one, one, (0, 0)))
    assert "3 axes" in str(convolution_obstacle((1, 1, 3, 3, 3), (1, 1, 3, 3, 3), (1, 1, *three), three, three, three))
    behind = convolution_obstacle((1, 1, 1, 4), (1, 1, 1, 1), (1, 1, 4, 4), (2, 1), one, (3, 0))
    assert "nothing but padding" in str(behind)
    assert transposed_obstacle((1, 1, 3), (16,), (1,)) is None
    assert resize_obstacle((1, 1, 4, 4), (1, 1, 32, 32), "bilinear", False, None) is None
    assert "corners" in str(resize_obstacle((1, 1, 4, 4), (1, 1, 8, 8), "bilinear", True, None))
    most, mode = (1, 1, 1021, 16), "bilinear"
    assert resize_obstacle(most, (1, 1, 1024, 2), mode, False, None, None) is None
    assert "1024th" in str(resize_obstacle(most, (1, 1, 1025, 2), mode, False, None, None))
    assert "16th" in str(resize_obstacle(most, (1, 1, 1024, 1), mode, False, None, None))
    assert "corners" in str(resize_obstacle((1, 1, 4, 1), (1, 1, 8, 8), mode, True, None, None))


class Selected(nn.Module):
    """A softmax of quantized numbers from -12.8 to 12.7, or of `fill`."""

    def __init__(self, fill: float, mask: torch.Tensor | None = None, reads: Any = torch.softmax) -> None:
        super().__init__()
        self.register_buffer("mask", mask)
        self.register_buffer("fill", torch.tensor(fill))
        self.reads = reads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        operators = torch.ops.quantized_decomposed
        settings = (0.1, 0, -128, 127, torch.int8)
        x = operators.dequantize_per_tensor(operators.quantize_per_tensor(x, *settings), *settings)
        x = self.reads(torch.where(x > 0 if self.mask is None else self.mask, self.fill, x), -1)
        return operators.dequantize_per_tensor(operators.quantize_per_tensor(x, *settings), *settings)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Selected(-math.inf, torch.eye(4) > 0), ""),
        (Selected(-25.0, torch.eye(4) > 0), ""),
        (Selected(-24.0, torch.eye(4) > 0), "-24.0 is not small enough: a softmax would not ignore it"),
        (Selected(math.nan, torch.eye(4) > 0), "nan is not small enough: a softmax would not ignore it"),
        (Selected(-math.inf), "the ethos-u55-128 has no softmax whose mask is computed; an Ethos-U85 has"),
        (
            Selected(-1.0, torch.eye(4) > 0, lambda x, dim: x),
            "the ethos-u55-128 has no choice between two numbers, but in front of a softmax; an Ethos-U85 has",
        ),
        (Selected(-1e9, torch.ones(2, 1, 4) > 0), "its mask changes the shape of the scores from (4, 4) to (2, 4, 4)"),
    ],
)
def test_numbers_are_selected_for_a_softmax_only(module: nn.Module, reason: str) -> None:
    assert verdicts(module, torch.randn(4, 4))["aten.where.self"] == reason


def test_a_log_softmax_of_scores_too_far_apart_stays_outside() -> None:
    class Far(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (1e4 * x).log_softmax(-1)

    x = torch.randn(4, 6)
    assert "8192 is the maximum" in verdicts(quantized(Far(), x), x)["aten._log_softmax.default"]


@pytest.mark.parametrize("scheme", ["int8", "int16"])
def test_what_stays_of_a_quantized_model_is_its_border(scheme: str) -> None:
    module = quantized(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), torch.randn(1, 3, 8, 8), scheme=scheme)
    explained = delegatekit.explain(module, (torch.randn(1, 3, 8, 8),), backends=["ethosu"])
    found = [(row.operator.split(".")[1], row.reasons["ethosu"]) for row in explained.rows if row.backend is None]
    into, out = (
        "the program's border: its numbers are quantized outside the delegate",
        "the program's border: integers are dequantized outside the delegate",
    )
    assert [reason for _, reason in found] == sorted((reason for _, reason in found), key=[into, out].index)
    assert [name for name, reason in found if reason == into][:2] == ["mul", "round"]
    assert [name for name, reason in found if reason == out][-1] == "mul"
    assert "_to_copy" in {name for name, reason in found if reason == out}


def test_arithmetic_at_the_border_that_is_the_users_is_told_to_be_quantized() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x * 0.5).mul(3.0).round()

    module = quantized(Scaled(), torch.randn(2, 4), keep_float=["mul", "round"])
    explained = delegatekit.explain(module, (torch.randn(2, 4),), backends=["ethosu"])
    reasons = [row.reasons["ethosu"] for row in explained.rows if row.backend is None]
    assert sum("quantize the model" in reason for reason in reasons) == 3
