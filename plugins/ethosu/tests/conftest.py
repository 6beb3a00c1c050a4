"""What the tests share: a small TOSA program, and what stock ExecuTorch makes of a small network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))  # the tests' helper modules, which lie beside this file

import numpy as np
import pytest

from delegatekit_ethosu import tosa
from delegatekit_ethosu.targets import TARGETS
from delegatekit_ethosu.tosa import DType
from delegatekit_ethosu.tosa.numerics import multipliers_and_shifts


def _small_graph() -> tosa.Graph:
    """Convolution, depthwise convolution, a sum, the average of each channel; 1 x 8 x 8 x 16 of int8 in."""
    random = np.random.default_rng(0)
    graph = tosa.Graph("small")
    int8, int32 = DType.INT8, DType.INT32

    def scaled(x: tosa.Tensor, scales: list[float], name: str, dtype: DType = int8, zero: int = 0) -> tosa.Tensor:
        multipliers, shifts = multipliers_and_shifts(scales)
        operands = [
            x,
            graph.constant(multipliers, int32),
            graph.constant(shifts, int8),
            graph.constant([0], x.dtype),
            graph.constant([zero], dtype),
        ]
        return graph.add(tosa.Rescale(per_channel=len(scales) > 1), operands, x.shape, dtype, name)

    x = graph.input("x", (1, 8, 8, 16), int8)
    zero = graph.constant([0], int8)
    weight = graph.constant(random.integers(-127, 128, (16, 3, 3, 16)), int8, "conv_weight")
    bias = graph.constant(random.integers(-500, 500, 16), int32, "conv_bias")
    sums = graph.add(tosa.Conv2d((1, 1, 1, 1)), [x, weight, bias, zero, zero], x.shape, int32, "conv_sums")
    conv = scaled(sums, [2e-4 * (1 + i / 16) for i in range(16)], "conv", zero=-3)
    weight = graph.constant(random.integers(-127, 128, (3, 3, 16, 1)), int8, "depthwise_weight")
    minus = graph.constant([-3], int8)
    sums = graph.add(
        tosa.DepthwiseConv2d((1, 1, 1, 1)), [conv, weight, bias, minus, zero], x.shape, int32, "depthwise_sums"
    )
    depthwise = scaled(sums, [1e-3], "depthwise")
    left, right = scaled(x, [0.5 * 2**20], "left", int32), scaled(depthwise, [0.4 * 2**20], "right", int32)
    total = scaled(graph.add(tosa.Add(), [left, right], x.shape, int32, "total"), [2.0**-20], "sum")
    pooled = graph.add(tosa.AvgPool2d((8, 8)), [total, zero, zero], (1, 1, 1, 16), int8, "mean")
    graph.output(graph.add(tosa.Reshape(), [pooled, graph.constant([1, 16], DType.SHAPE)], (1, 16), int8, "flat"))
    graph.verify()
    return graph


@pytest.fixture
def small_graph() -> tosa.Graph:
    """A small network of int8; its tensors' names are those of its layers."""
    return _small_graph()


@pytest.fixture(scope="session")
def small_program() -> bytes:
    """The file of `small_graph`."""
    return tosa.write(_small_graph())


@pytest.fixture
def command_line(tmp_path: Path) -> Callable[..., Path]:
    """command_line(program, target, *flags): runs Vela's command line on a TOSA file; the folder of what it writes."""
    from ethosu.vela import vela

    def run(program: bytes, target: str, *flags: str) -> Path:
        (tmp_path / "x.tosa").write_bytes(program)
        chosen = TARGETS[target]
        arguments = [f"--accelerator-config={target}", "--config=Arm/vela.ini", "--output-format=raw"]
        arguments += [f"--system-config={chosen.system_config}", f"--memory-mode={chosen.memory_mode}"]
        assert vela.main([*arguments, f"--output-dir={tmp_path}", *flags, str(tmp_path / "x.tosa")]) == 0
        return tmp_path

    return run


@pytest.fixture(scope="session")
def stock_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files that stock ExecuTorch's Arm backend wrote: see stock_lowering.py."""
    pytest.importorskip("executorch.backends.arm", reason="stock ExecuTorch is not installed")
    pytest.importorskip("tosa_serializer", reason="tosa-tools is not installed")
    folder = tmp_path_factory.mktemp("stock")
    script = Path(__file__).with_name("stock_lowering.py")
    command = [sys.executable, str(script), str(folder), "ethos-u55-128", "ethos-u65-512", "ethos-u85-256"]
    subprocess.run(command, check=True, capture_output=True)
    return folder
