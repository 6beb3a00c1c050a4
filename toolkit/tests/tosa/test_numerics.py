"""Integer arithmetic against Arm's reference model, and against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegatekit_api import LoweringError
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import DType, numerics
from delegatekit_toolkit.tosa.reference import availability, run

needs_model = pytest.mark.skipif(not availability().available, reason="tosa-tools is not installed")


@given(st.floats(1e-30, 2.0**28))
@settings(max_examples=300, deadline=None)
def test_multiplier_and_shift_are_the_nearest(scale: float) -> None:
    multiplier, shift = numerics.multiplier_and_shift(scale)
    assert 0 <= multiplier < 1 << 31
    assert 2 <= shift <= 62
    error = abs(Fraction(multiplier, 1 << shift) - Fraction(scale))
    assert error <= Fraction(scale) * Fraction(1, 1 << 31) or error < Fraction(1, 1 << 62)


@given(st.floats(1e-9, 2.0**12))
@settings(max_examples=100, deadline=None)
def test_multipliers_of_16_bits(scale: float) -> None:
    multiplier, shift = numerics.multiplier_and_shift(scale, bits=16)
    assert 0 <= multiplier < 1 << 15
    error = abs(Fraction(multiplier, 1 << shift) - Fraction(scale))
    assert error <= Fraction(scale) * Fraction(1, 1 << 15) or shift == 62


@given(st.lists(st.floats(2.0**-40, 2.0**28), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_multiplier_and_shift_are_stocks(scales: list[float]) -> None:
    stock = pytest.importorskip("executorch.backends.arm.operators.op_tosa_rescale")
    want = stock._compute_multiplier_and_shift(scales)
    mine = numerics.multipliers_and_shifts(scales)
    assert [array.tolist() for array in mine] == list(want)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 2.0**30])
def test_scales_that_do_not_fit_are_refused(scale: float) -> None:
    with pytest.raises(LoweringError, match="scale"):
        numerics.multiplier_and_shift(scale)


def _rescaled(x: Any, source: DType, target: DType, scales: list[float], zeros: tuple[int, int]) -> Any:
    """The reference model's RESCALE, and ours."""
    multipliers, shifts = numerics.multipliers_and_shifts(scales)
    graph = tosa.Graph()
    operands = [
        graph.input("x", x.shape, source),
        graph.constant(multipliers, DType.INT32),
        graph.constant(shifts, DType.INT8),
        graph.constant([zeros[0]], source),
        graph.constant([zeros[1]], target),
    ]
    graph.output(graph.add(tosa.Rescale(per_channel=len(scales) > 1), operands, x.shape, target, "y"))
    (want,) = run(tosa.write(graph), [x])
    mine = numerics.rescale(x, multipliers, shifts, input_zero=zeros[0], output_zero=zeros[1], dtype=target)
    return want, mine


@needs_model
@pytest.mark.parametrize(
    ("source", "target", "zeros"),
    [
        (DType.INT8, DType.INT8, (-7, 12)),
        (DType.INT8, DType.INT32, (100, 0)),
        (DType.INT32, DType.INT8, (0, -128)),
        (DType.INT32, DType.INT16, (0, 0)),
        (DType.INT16, DType.INT8, (0, 3)),
        (DType.INT32, DType.INT32, (0, 0)),
    ],
)
@pytest.mark.parametrize("channels", [1, 9])
def test_rescale_is_the_reference_models(source: DType, target: DType, zeros: tuple[int, int], channels: int) -> None:
    random = np.random.default_rng(channels)
    low, high = tosa.types.INTEGER_RANGES[source]
    if source == DType.INT32:
        low, high = -(1 << 20), 1 << 20
    x = random.integers(low, high, (40, 9), endpoint=True).astype(tosa.types.NUMPY_TYPES[source])
    scales = list(2.0 ** random.uniform(-12, 1, channels))
    want, mine = _rescaled(x, source, target, scales, zeros)
    np.testing.assert_array_equal(mine, want)


@needs_model
def test_halves_are_rounded_up() -> None:
    x = np.arange(-7, 8, dtype=np.int32).reshape(1, -1)
    want, mine = _rescaled(x, DType.INT32, DType.INT8, [0.5], (0, 0))
    np.testing.assert_array_equal(want, np.floor(x / 2 + 0.5))
    np.testing.assert_array_equal(mine, want)


@needs_model
def test_tables_are_the_reference_models_and_torchs() -> None:
    import torch

    x = np.arange(-128, 128, dtype=np.int8).reshape(1, -1)
    entries = numerics.table(np.tanh, 0.03, 5, 1 / 128, -1)
    graph = tosa.Graph()
    operands = [graph.input("x", x.shape, DType.INT8), graph.constant(entries, DType.INT8)]
    graph.output(graph.add(tosa.Table(), operands, x.shape, DType.INT8, "y"))
    (result,) = run(tosa.write(graph), [x])
    real = torch.tanh((torch.from_numpy(x).double() - 5) * 0.03)
    want = (torch.round(real * 128) - 1).clamp(-128, 127)
    np.testing.assert_array_equal(result, want.numpy())


def test_products_that_need_more_than_64_bits_are_refused() -> None:
    with pytest.raises(LoweringError, match="more than 32 bits"):
        numerics.apply_scale(np.array([1 << 40]), 1 << 30, 31)
    assert numerics.apply_scale(np.array([1 << 40]), 1 << 14, 15).tolist() == [1 << 39]
