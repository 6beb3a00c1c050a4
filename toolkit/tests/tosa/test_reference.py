"""Operators in files of our own, run in Arm's reference model, compared with PyTorch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from delegatekit_api import ExecutionError, FormatError, RuntimeUnavailableError
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import DType, reference

needs_model = pytest.mark.skipif(not reference.availability().available, reason="tosa-tools is not installed")
TYPES = {torch.int8: DType.INT8, torch.int16: DType.INT16, torch.int32: DType.INT32, torch.bool: DType.BOOL}


class Trial:
    """A graph under construction and its inputs."""

    def __init__(self) -> None:
        self.graph = tosa.Graph()
        self.arrays: list[Any] = []
        self.random = np.random.default_rng(0)

    def input(self, *shape: int, low: int = -128, high: int = 128, dtype: Any = np.int8) -> tuple[Any, torch.Tensor]:
        self.arrays.append(self.random.integers(low, high, shape).astype(dtype))
        tensor = torch.from_numpy(self.arrays[-1])
        return self.graph.input("x", shape, TYPES[tensor.dtype]), tensor

    def constant(self, *shape: int, dtype: Any = np.int8) -> tuple[Any, torch.Tensor]:
        tensor = torch.from_numpy(self.random.integers(-100, 100, shape).astype(dtype))
        return self.graph.constant(tensor.numpy(), TYPES[tensor.dtype]), tensor

    def zero(self, dtype: DType = DType.INT8, value: int = 0) -> Any:
        return self.graph.constant([value], dtype)

    def shape(self, *sizes: int) -> Any:
        return self.graph.constant(sizes, DType.SHAPE)

    def check(self, operator: tosa.Operator, operands: list[Any], want: torch.Tensor) -> None:
        result = self.graph.add(operator, operands, want.shape, TYPES[want.dtype], "y")
        self.graph.output(result)
        self.graph.verify()
        (found,) = reference.run(tosa.write(self.graph), self.arrays)
        np.testing.assert_array_equal(found, want.numpy())


def nchw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(0, 3, 1, 2)


def nhwc(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(0, 2, 3, 1)


@needs_model
def test_conv2d() -> None:
    trial = Trial()
    (x, vx), (w, vw), (b, vb) = trial.input(2, 9, 8, 5), trial.constant(7, 3, 2, 5), trial.constant(7, dtype=np.int32)
    padded = F.pad(nchw(vx.double() + 4), (1, 0, 0, 2))
    want = F.conv2d(padded, nchw(vw.double()), vb.double(), (2, 1), dilation=(1, 2))
    operator = tosa.Conv2d((0, 2, 1, 0), (2, 1), (1, 2))
    trial.check(operator, [x, w, b, trial.zero(value=-4), trial.zero()], nhwc(want).int())


@needs_model
def test_depthwise_conv2d() -> None:
    trial = Trial()
    (x, vx), (w, vw), (b, vb) = trial.input(1, 6, 6, 4), trial.constant(3, 3, 4, 2), trial.constant(8, dtype=np.int32)
    weight = vw.double().permute(2, 3, 0, 1).reshape(8, 1, 3, 3)
    want = F.conv2d(nchw(vx.double()), weight, vb.double(), groups=4, padding=1)
    trial.check(tosa.DepthwiseConv2d((1, 1, 1, 1)), [x, w, b, trial.zero(), trial.zero()], nhwc(want).int())


@needs_model
def test_transpose_conv2d() -> None:
    trial = Trial()
    (x, vx), (w, vw), (b, vb) = trial.input(1, 5, 4, 3), trial.constant(6, 3, 3, 3), trial.constant(6, dtype=np.int32)
    want = F.conv_transpose2d(nchw(vx.double()), vw.double().permute(3, 0, 1, 2), vb.double(), stride=2, padding=1)
    operator = tosa.TransposeConv2d((-1, -1, -1, -1), (2, 2))
    trial.check(operator, [x, w, b, trial.zero(), trial.zero()], nhwc(want).int())


@needs_model
def test_matmul() -> None:
    trial = Trial()
    (a, va), (b, vb) = trial.input(3, 4, 5), trial.input(3, 5, 6)
    want = torch.bmm(va.double() - 3, vb.double() + 2).int()
    trial.check(tosa.Matmul(), [a, b, trial.zero(value=3), trial.zero(value=-2)], want)


@needs_model
def test_max_pool2d() -> None:
    trial = Trial()
    x, vx = trial.input(1, 7, 7, 5)
    want = nhwc(F.max_pool2d(nchw(vx.float()), 3, 2, 1)).to(torch.int8)
    trial.check(tosa.MaxPool2d((3, 3), (2, 2), (1, 1, 1, 1)), [x], want)


@needs_model
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_clamp(dtype: Any) -> None:
    trial = Trial()
    x, vx = trial.input(3, 50, dtype=dtype)
    trial.check(tosa.Clamp(-100, 77), [x], vx.clamp(-100, 77))


@needs_model
@pytest.mark.parametrize(
    ("operator", "function"),
    [
        (tosa.Add(), torch.add),
        (tosa.Sub(), torch.sub),
        (tosa.Maximum(), torch.maximum),
        (tosa.Minimum(), torch.minimum),
        (tosa.BitwiseAnd(), torch.bitwise_and),
        (tosa.Intdiv(), lambda a, b: torch.div(a, b, rounding_mode="trunc")),
        (tosa.Greater(), torch.gt),
        (tosa.GreaterEqual(), torch.ge),
        (tosa.Equal(), torch.eq),
    ],
    ids=lambda item: getattr(item, "name", ""),
)
def test_elementwise(operator: tosa.Operator, function: Callable[..., torch.Tensor]) -> None:
    trial = Trial()
    (a, va), (b, vb) = trial.input(2, 3, 4, dtype=np.int32), trial.input(2, 1, 4, low=1, dtype=np.int32)
    trial.check(operator, [a, b], function(va, vb))


@needs_model
def test_mul_shift_and_select() -> None:
    trial = Trial()
    (a, va), (b, vb) = trial.input(2, 3, dtype=np.int32), trial.input(2, 3, dtype=np.int32)
    trial.check(tosa.Mul(), [a, b, trial.zero()], va * vb)
    trial = Trial()
    (a, va), (b, vb) = trial.input(2, 3, dtype=np.int32), trial.input(2, 3, low=1, high=5, dtype=np.int32)
    trial.check(tosa.ArithmeticRightShift(round=True), [a, b], (va + (1 << (vb - 1))) >> vb)
    trial = Trial()
    (c, vc), (a, va), (b, vb) = trial.input(2, 3, low=0, high=2, dtype=np.bool_), trial.input(2, 3), trial.input(2, 3)
    trial.check(tosa.Select(), [c, a, b], torch.where(vc, va, vb))


@needs_model
def test_abs_negate_and_cast() -> None:
    trial = Trial()
    x, vx = trial.input(2, 9, dtype=np.int32)
    trial.check(tosa.Abs(), [x], vx.abs())
    trial = Trial()
    x, vx = trial.input(2, 9)
    trial.check(tosa.Negate(), [x, trial.zero(), trial.zero()], (-vx.int()).clamp(-128, 127).to(torch.int8))
    trial = Trial()
    x, vx = trial.input(2, 9)
    trial.check(tosa.Cast(), [x], vx.int())


@needs_model
def test_reductions_keep_their_axis() -> None:
    trial = Trial()
    x, vx = trial.input(2, 5, 3, dtype=np.int32)
    trial.check(tosa.ReduceSum(1), [x], vx.sum(1, keepdim=True).int())
    for operator, function in ((tosa.ReduceMax, torch.amax), (tosa.ReduceMin, torch.amin)):
        trial = Trial()
        x, vx = trial.input(2, 5, 3)
        trial.check(operator(2), [x], function(vx, 2, keepdim=True))
    trial = Trial()
    x, vx = trial.input(2, 5, 30)
    trial.check(tosa.Argmax(1), [x], torch.from_numpy(vx.numpy().argmax(1).astype(np.int32)))


@needs_model
def test_what_moves_elements() -> None:
    trial = Trial()
    x, vx = trial.input(2, 3, 4)
    trial.check(tosa.Reshape(), [x, trial.shape(4, 6)], vx.reshape(4, 6))
    trial = Trial()
    x, vx = trial.input(2, 3, 4)
    trial.check(tosa.Transpose((2, 0, 1)), [x], vx.permute(2, 0, 1))
    trial = Trial()
    x, vx = trial.input(2, 3)
    trial.check(tosa.Pad(), [x, trial.shape(0, 1, 2, 3), trial.zero(value=-9)], F.pad(vx, (2, 3, 0, 1), value=-9))
    trial = Trial()
    (a, va), (b, vb) = trial.input(2, 3), trial.input(2, 5)
    trial.check(tosa.Concat(1), [a, b, a], torch.cat([va, vb, va], 1))
    trial = Trial()
    x, vx = trial.input(4, 5)
    trial.check(tosa.Slice(), [x, trial.shape(1, 2), trial.shape(3, 2)], vx[1:, 2:4])
    trial = Trial()
    x, vx = trial.input(2, 3)
    trial.check(tosa.Tile(), [x, trial.shape(2, 3)], vx.repeat(2, 3))
    trial = Trial()
    x, vx = trial.input(2, 3)
    trial.check(tosa.Reverse(1), [x], vx.flip(1))
    trial = Trial()
    (x, vx), (i, vi) = trial.input(2, 6, 3), trial.input(2, 4, low=0, high=6, dtype=np.int32)
    trial.check(tosa.Gather(), [x, i], torch.gather(vx, 1, vi.long().unsqueeze(-1).expand(-1, -1, 3)))


@needs_model
def test_resize_to_twice_the_size() -> None:
    trial = Trial()
    x, vx = trial.input(1, 3, 4, 2)
    operands = [x, trial.shape(4, 2, 4, 2), trial.shape(-1, -1), trial.shape(1, 1)]
    want = nhwc(F.interpolate(nchw(vx.float()), scale_factor=2)).to(torch.int8)
    trial.check(tosa.Resize(tosa.ResizeMode.NEAREST), operands, want)


@needs_model
def test_int4_weights_are_packed_as_the_model_reads_them() -> None:
    trial = Trial()
    x, vx = trial.input(1, 4, 4, 3)
    weight = trial.random.integers(-7, 8, (5, 1, 1, 3))
    w, b = trial.graph.constant(weight, DType.INT4), trial.graph.constant(np.zeros(5), DType.INT32)
    want = torch.from_numpy(vx.numpy().astype(np.int32) @ weight[:, 0, 0].T.astype(np.int32))
    trial.check(tosa.Conv2d(), [x, w, b, trial.zero(), trial.zero(DType.INT4)], want)


@needs_model
def test_wrong_inputs_damage_and_what_the_model_refuses(small_program: bytes) -> None:
    with pytest.raises(ExecutionError, match=r"graph small: takes int8\[1, 8, 8, 16\], not nothing"):
        reference.run(small_program, [])
    with pytest.raises(ExecutionError, match=r"not int32\[1, 8, 8, 16\]"):
        reference.run(small_program, [np.zeros((1, 8, 8, 16), np.int32)])
    with pytest.raises(FormatError):
        reference.run(small_program[:100], [np.zeros((1, 8, 8, 16), np.int8)])
    trial = Trial()
    x, _ = trial.input(1, 4, 4, 3)
    trial.graph.output(trial.graph.add(tosa.MaxPool2d((2, 2), (0, 0)), [x], (1, 2, 2, 3), DType.INT8, "y"))
    with pytest.raises(ExecutionError, match="TOSA reference model"):
        reference.run(tosa.write(trial.graph), trial.arrays)


@needs_model
def test_nothing_is_printed(small_program: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    reference.run(small_program, [np.zeros((1, 8, 8, 16), np.int8)])
    assert capfd.readouterr() == ("", "")


def test_without_tosa_tools_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['tosa_reference_model'] = None\n"
        "from delegatekit_toolkit.tosa import reference\n"
        "print(reference.availability().reason)\n"
        "reference.run(b'', [])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install --no-deps tosa-tools ml_dtypes" in done.stdout
    assert RuntimeUnavailableError.__name__ in done.stderr
    assert "pip install --no-deps tosa-tools ml_dtypes" in done.stderr
