"""The hooks: what the core sees of the backend."""

from __future__ import annotations

import pytest
import torch

import delegatekit
from delegatekit_api import LoweringError
from delegatekit_conformance import testkit
from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_mlx.options import MLXOptions
from delegatekit_mlx.support import MLXPartitioner


class TestPlugin(PluginTests):
    backend, delegate_id = "mlx", "MLXBackend"
    heavy = PluginTests.heavy | {"mlx"}
    wrong_options = ({"leave_out": "nothing"}, {"whole_graph": "perhaps"})


def test_double_precision_is_refused_with_the_reason() -> None:
    (reason, *_) = testkit.refusals(MLXPartitioner(MLXOptions()), torch.exp, torch.ones(2, dtype=torch.float64))
    assert reason.endswith("is float64, which MLX does not have on Apple's GPUs")


def test_reductions_along_no_axes_are_refused() -> None:
    found = testkit.refusals(MLXPartitioner(MLXOptions()), lambda x: torch.any(x, dim=()), torch.ones(2))
    assert found == ["dim is empty"]


def test_bits_beyond_those_of_the_elements_are_refused() -> None:
    partitioner, n = MLXPartitioner(MLXOptions()), torch.ones(2, dtype=torch.int32)
    assert testkit.refusals(partitioner, lambda x: x & 0xFFFFFFFF, n) == [
        "other = 4294967295: int32 has no such number"
    ]
    assert not testkit.refusals(partitioner, lambda x: x.long() & 0xFFFFFFFF, n)


def test_a_whole_graph_is_asked_for() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cos(x.double()).float()

    with pytest.raises(LoweringError, match="whole_graph is set"):
        delegatekit.lower(Model(), (torch.ones(2),), backends=["mlx"], options={"mlx": {"whole_graph": True}})
