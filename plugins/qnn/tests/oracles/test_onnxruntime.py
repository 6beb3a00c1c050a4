"""The same numbers as an ONNX model in the vendor's library, by ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers quantize and dequantize)

import delegatekit

pytestmark = pytest.mark.usefixtures("library")

Q = torch.ops.quantized_decomposed
#: Largest integer of an activation, torch's type and numpy's.
TYPES = {"uint8": (255, torch.uint8, np.uint8), "uint16": (65535, torch.uint16, np.uint16)}


def numbers_of(kind: str) -> dict[str, Any]:
    """Weights, input, and, for integers, scales; biases are multiples of the scales of input times weight."""
    source = np.random.default_rng(0)
    numbers: dict[str, Any] = {"input": source.normal(0, 1, (1, 3, 16, 16)).astype(np.float32)}
    shapes = {"conv": (8, 3, 3, 3), "head": (10, 512)}
    if kind == "float32":
        for name, shape in shapes.items():
            numbers[name] = source.normal(0, 0.1, shape).astype(np.float32)
            numbers[f"{name}_bias"] = source.normal(0, 0.1, shape[0]).astype(np.float32)
        return numbers
    last, _, dtype = TYPES[kind]
    for name, (low, high) in {"x": (-4.0, 4.0), "y": (0.0, 3.0), "z": (-5.0, 5.0)}.items():
        scale = (high - low) / last
        numbers[f"{name}_scale"] = np.float32(scale)
        numbers[f"{name}_zero"] = dtype(round(-low / scale))
    for (name, shape), inner in zip(shapes.items(), ("x", "y"), strict=True):
        numbers[name] = source.integers(-127, 128, shape).astype(np.int8)
        numbers[f"{name}_scale"] = source.uniform(0.001, 0.002, shape[0]).astype(np.float32)
        numbers[f"{name}_bias"] = source.integers(-1000, 1000, shape[0]).astype(np.int32)
        numbers[f"{name}_bias_scale"] = (numbers[f"{name}_scale"] * numbers[f"{inner}_scale"]).astype(np.float32)
    return numbers


class Net(torch.nn.Module):
    """The network of ort_script.py."""

    def __init__(self, numbers: dict[str, Any], kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.numbers = numbers
        for name in ("conv", "head", "conv_bias", "head_bias", "conv_scale", "head_scale"):
            if name in numbers:
                data = numbers[name]
                if name.endswith("bias") and kind != "float32":
                    data = (data * numbers[f"{name}_scale"].astype(np.float64)).astype(np.float32)
                self.register_buffer(name, torch.from_numpy(data))

    def weight(self, name: str) -> torch.Tensor:
        data, scales = getattr(self, name), getattr(self, f"{name}_scale", None)
        if scales is None:
            return data
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        return Q.dequantize_per_channel(data, scales, zeros, 0, -127, 127, torch.int8)

    def activation(self, name: str, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "float32":
            return x
        last, dtype, _ = TYPES[self.kind]
        scale, zero = float(self.numbers[f"{name}_scale"]), int(self.numbers[f"{name}_zero"])
        integers = Q.quantize_per_tensor(x, scale, zero, 0, last, dtype)
        return Q.dequantize_per_tensor(integers, scale, zero, 0, last, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.activation("x", x)
        y = torch.nn.functional.conv2d(x, self.weight("conv"), self.conv_bias, 2, 1)
        y = self.activation("y", torch.relu(y)).flatten(1)
        return self.activation("z", torch.nn.functional.linear(y, self.weight("head"), self.head_bias))


@pytest.mark.parametrize("kind", ["uint8", "uint16", "float32"])
def test_onnx_runtime_computes_the_same(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    numbers = numbers_of(kind)
    net = Net(numbers, kind).eval()
    x = torch.from_numpy(numbers["input"])
    wanted = net(x)
    numbers["wanted"] = wanted.numpy()
    np.savez(tmp_path / "numbers.npz", **numbers)
    script = Path(__file__).with_name("ort_script.py")
    command = [sys.executable, str(script), str(tmp_path / "numbers.npz"), str(tmp_path / "result.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = torch.from_numpy(np.load(tmp_path / "result.npy"))
    program = delegatekit.lower(net, (x,), backends=["qnn"], options={"qnn": {"soc": "sm8650"}})
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1
    ours = delegatekit.load(program.buffer)["forward"](x)
    size = float(wanted.abs().max())
    # One step of 8 bits; sums of 16-bit activations and of float16 are not exact on the processor.
    tolerance = {"uint8": 10.01 / 255, "uint16": 1e-3 * size, "float32": 2e-3 * size}[kind]
    assert size > 0.5
    for name, found in (("ONNX Runtime", theirs), ("eager", wanted)):
        assert (ours - found).abs().max() <= tolerance, name
