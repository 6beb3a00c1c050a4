"""Refused calls, with the wording of the reasons."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from delegatekit_api import OptionError, UnsupportedError
from delegatekit_conformance.testkit import lower, refusals
from delegatekit_coreml.options import CoreMLOptions
from delegatekit_coreml.support import CoreMLPartitioner
from delegatekit_toolkit.accuracy import ROUNDOFF

REFUSED: list[tuple[Any, tuple[torch.Tensor, ...], str]] = [
    (lambda x: x + 1, (torch.randn(2, dtype=torch.float64),), "is float64: Core ML computes in 32 bits"),
    (lambda x: x + x, (torch.ones(2, dtype=torch.int8),), "is int8"),
    (lambda x: x.exp(), (torch.randn(1, 2, 1, 2, 1, 2),), "has 6 axes: 5 is the maximum"),
    (lambda x: x + (1 << 40), (torch.ones(2, dtype=torch.int64),), "the device computes in 32 bits"),
    (lambda x: x / 2.0**17, (torch.ones(2).half(),), "the device computes in float16"),
    (lambda x: F.leaky_relu(x, 1e5), (torch.ones(2).half(),), "the device computes in float16"),
    (lambda x: x * x, (torch.ones(2, dtype=torch.int64),), "may leave the 32 bits"),
    (lambda x: x.sum(), (torch.ones(2, dtype=torch.int32),), "may leave the 32 bits"),
    (lambda x: x // 3.0, (torch.ones(2),), "a power of two is taken"),
    (lambda x: F.max_pool2d(x, 2, dilation=2), (torch.randn(1, 1, 8, 8),), "MIL's windows have no gaps"),
    (
        lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
        (torch.randn(1, 1, 8, 8),),
        "its average has another divisor",
    ),
    (F.conv2d, (torch.randn(1, 1, 8, 8), torch.randn(1, 1, 3, 3)), "weight is computed"),
]


@pytest.mark.parametrize(("model", "inputs", "reason"), REFUSED)
def test_what_cannot_be_computed_is_refused_with_a_reason(
    model: Any, inputs: tuple[torch.Tensor, ...], reason: str
) -> None:
    found = refusals(CoreMLPartitioner(CoreMLOptions()), model, *inputs)
    assert any(reason in text for text in found), found


def test_the_target_decides() -> None:
    def reasons(target: str) -> list[str]:
        partitioner = CoreMLPartitioner(CoreMLOptions(target=target))
        return refusals(partitioner, lambda x: F.pixel_unshuffle(x, 2), torch.randn(1, 1, 4, 4))

    assert reasons("ios15") == ["aten.pixel_unshuffle.default needs ios16: the target is ios15"]
    assert reasons("macos13") == []


def test_an_operator_can_be_left_out() -> None:
    partitioner = CoreMLPartitioner(CoreMLOptions(leave_out=frozenset({"exp"})))
    assert refusals(partitioner, torch.exp, torch.randn(3)) == ["left out by the option leave_out"]


def test_a_program_that_is_not_one_delegate_is_refused_on_demand() -> None:
    def lowered(model: Any, *inputs: torch.Tensor) -> Any:
        return lower(model, *inputs, backend="coreml", options={"whole_graph": True, "leave_out": {"exp"}})

    assert lowered(torch.sin, torch.randn(3)).delegate
    with pytest.raises(UnsupportedError, match=r"1 operator: aten\.exp\.default .*left out by the option leave_out"):
        lowered(lambda x: x.sin().exp(), torch.randn(3))
    with pytest.raises(UnsupportedError, match="would be 0 delegates"):
        lowered(lambda x: x, torch.randn(3))


class Scaled(torch.nn.Module):
    """In the middle its numbers are beyond float16's range."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=False) for _ in range(2)))
        for layer, value in zip(self.inner, (3e4, 1e-5), strict=True):
            torch.nn.init.constant_(layer.weight, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(x).sigmoid()
        return found


@pytest.mark.parametrize(
    ("modules", "is_right"),
    [(set(), False), ({"inner.0"}, False), ({"inner"}, True), ({"inner.0", "inner.1"}, True), ({"inn*.?"}, True)],
)
def test_modules_are_computed_in_float32(modules: set[str], is_right: bool) -> None:
    lowered = lower(Scaled(), torch.ones(2, 4), backend="coreml", options={"float32_modules": modules})
    # The sigmoid and its input are rounded to float16.
    limit = 2 * ROUNDOFF["float16"]
    assert torch.allclose(lowered.run()[0], lowered.eager()[0].detach(), atol=limit) is is_right


def test_a_module_that_is_not_there_is_refused() -> None:
    with pytest.raises(OptionError, match="float32_modules names 'third'"):
        lower(Scaled(), torch.ones(2, 4), backend="coreml", options={"float32_modules": {"third"}})
