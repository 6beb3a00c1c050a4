"""A second judge: files on Vulkan, through Arm's emulation layer, where a driver has the features that this needs."""

from __future__ import annotations

from pathlib import Path

import emulated
import numpy as np
import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_conformance import testkit
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import DType, Graph
from delegatekit_vgf.blob.container import unpack
from delegatekit_vgf.blob.spirv import read_graph
from delegatekit_vgf.compiler import convert


@pytest.fixture(scope="module")
def _vulkan(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where nothing runs: without packages, and where one operator does not."""
    if (reason := emulated.missing()) is not None:
        pytest.skip(reason)
    graph = Graph("probe")
    x = graph.input("x", (1, 8), DType.FP32)
    graph.output(graph.add(tosa.Abs(), [x], x.shape, x.dtype, "y"))
    given = np.full((1, 8), -1, np.float32)
    found, said = emulated.run(
        convert(tosa.write(graph)), [given], graph.inputs, graph.outputs, tmp_path_factory.mktemp("probe")
    )
    if found is None:
        pytest.skip(f"no Vulkan driver here runs the emulation layer: {said.strip().splitlines()[-1:]}")
    np.testing.assert_array_equal(found[0], -given)


@pytest.mark.slow
@pytest.mark.usefixtures("_vulkan")
@pytest.mark.parametrize("quantized", [False, True])
def test_a_network_computes_the_same_on_vulkan(quantized: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(32, 10), nn.Softmax(-1)),
    ).eval()
    x = torch.randn(1, 3, 12, 12)
    module = delegatekit.quantize(module, [(x,)] * 2, backend="vgf") if quantized else module
    lowered = testkit.lower(module, x, backend="vgf")
    blob = bytes(lowered.delegate.blob)
    graph = read_graph(unpack(blob))
    found, said = emulated.run(blob, [x.numpy()], graph.inputs, graph.outputs, tmp_path)
    assert found is not None, said
    (wanted,) = lowered.run()
    # Float operators of a driver and of the reference model round differently, integers do not.
    np.testing.assert_allclose(found[0], wanted.numpy(), rtol=0, atol=0 if quantized else 1e-5)
