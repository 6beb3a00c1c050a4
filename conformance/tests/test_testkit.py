"""The kit for backends' tests: equal results pass on both engines, and others fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.export import Dim

from delegatekit_conformance import testkit
from delegatekit_reference import plugin
from delegatekit_reference.options import ReferenceOptions


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(x)
        return y * 2, y.argmax(-1)


@pytest.fixture(scope="module")
def lowered() -> Iterator[testkit.Lowered]:
    torch.manual_seed(0)
    dim = Dim("n", max=8)
    yield testkit.lower(Scaled(), torch.randn(3, 4), backend="reference", dynamic_shapes=({0: dim},))


def test_equal_results_pass_at_every_size(lowered: testkit.Lowered) -> None:
    testkit.compare(lowered)
    calls = [(torch.randn(size, 4),) for size in (1, 8)]
    testkit.compare(lowered, *calls, engines=[testkit.ENGINE])
    testkit.compare(lowered, *calls, tolerance=1e-5, engines=[testkit.ENGINE])


def test_the_file_is_at_hand(lowered: testkit.Lowered) -> None:
    assert lowered.delegate.identifier == "ReferenceBackend"
    assert lowered.engines == (testkit.ENGINE,)
    assert lowered.delegate.blob.startswith(b"DKREFBLB")
    assert len(lowered.delegate.named_data) >= 2
    assert isinstance(lowered.delegate.compile_specs, dict)


def test_other_results_do_not_pass(lowered: testkit.Lowered) -> None:
    other = testkit.Lowered(Scaled().eval(), lowered.inputs, lowered.program, lowered.buffer)
    for tolerance in (None, 1e-3):
        with pytest.raises(AssertionError):
            testkit.compare(other, tolerance=tolerance, engines=[testkit.ENGINE])


def test_a_comparison_with_next_to_nothing_is_refused() -> None:
    lowered = testkit.lower(lambda x: x * 1e-9, torch.full((3,), 2.0), backend="reference")
    testkit.compare(lowered, tolerance=1e-10)
    with pytest.raises(AssertionError, match="largest result is 2e-09: within the tolerance of 0"):
        testkit.compare(lowered, tolerance=1e-6)


def test_what_is_left_outside_is_shown() -> None:
    options = {"leave_out": ["relu"]}
    with pytest.raises(AssertionError, match=r"not all of it is in one delegate:(.|\n)*relu"):
        testkit.lower(lambda x: x.relu() + 1, torch.ones(2), backend="reference", options=options)
    found = testkit.lower(lambda x: x.relu() + 1, torch.ones(2), backend="reference", options=options, whole=False)
    testkit.compare(found, engines=[testkit.ENGINE])


def test_the_stock_runtime_is_an_engine_where_it_is_installed() -> None:
    pytest.importorskip("executorch.extension.pybindings._C")
    # Without a delegate: the stock runtime does not know the reference backend.
    lowered = testkit.lower(torch.add, torch.ones(2), torch.ones(2), backend="reference",
                            options={"leave_out": ["add"]}, whole=False)  # fmt: skip
    assert lowered.engines == (testkit.ENGINE, testkit.STOCK)
    testkit.compare(lowered)


def test_refusals_are_told_in_order() -> None:
    partitioner: Any = plugin.create_partitioner(ReferenceOptions(leave_out=frozenset({"sin", "mul"})))
    assert (
        testkit.refusals(partitioner, lambda x: (x.sin() + 1) * x, torch.ones(2))
        == ["left out by the option leave_out"] * 2
    )
    assert testkit.refusals(partitioner, torch.relu, torch.ones(2)) == []
