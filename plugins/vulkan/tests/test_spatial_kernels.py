"""Errors of operators on images in a blob are found before it reaches a driver. No device is needed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from delegatekit_api import FormatError
from delegatekit_vulkan.ir.graph import Argument, Graph, Node, Tensor
from delegatekit_vulkan.ir.types import DataType
from delegatekit_vulkan.runtime.calls import write_tape
from delegatekit_vulkan.runtime.kernels import KERNELS
from delegatekit_vulkan.runtime.tape import Tape

FLOAT, INT = DataType.FLOAT32, DataType.INT32


def tensor(*shape: int, datatype: DataType = FLOAT) -> Tensor:
    return Tensor(shape, datatype, datatype)


def weight(*shape: int, datatype: DataType = FLOAT) -> Tensor:
    return Tensor(shape, datatype, datatype, torch.zeros(shape, dtype=datatype.torch))


def written(operator: str, arguments: Sequence[Argument], *results: Tensor) -> Tape:
    """The tape of one call; a list of results if there are several."""
    made = results[0] if len(results) == 1 else results
    inputs = [item for item in arguments if isinstance(item, Tensor) and item.data is None]
    graph = Graph(inputs, list(results), [Node(operator, list(arguments), made)])
    return write_tape(graph, KERNELS, [item.sizes for item in inputs], {}, largest=True, states={})


def convolution(**changes: Any) -> list[Argument]:
    """The arguments of a convolution of (1, 4, 9, 9) to (1, 8, 4, 4), with some replaced."""
    arguments: dict[str, Argument] = {
        "x": tensor(1, 4, 9, 9),
        "weight": weight(8, 4, 3, 3),
        "bias": weight(8),
        "stride": (2, 2),
        "padding": (0, 0),
        "dilation": (1, 1),
        "transposed": False,
        "output_padding": (0, 0),
        "groups": 1,
    }
    return [changes.get(name, value) for name, value in arguments.items()]


def test_a_convolution_that_fits_is_one_dispatch() -> None:
    (dispatch,) = written("aten.convolution.default", convolution(), tensor(1, 8, 4, 4)).dispatches
    assert dispatch.shader == "conv" and dispatch.groups == (1, 1, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"x": tensor(1, 5, 9, 9)},
        {"x": tensor(1, 4, 9, 9, datatype=INT)},
        {"x": tensor(4, 9)},
        {"x": tensor(1, 4, 2, 9)},
        {"weight": tensor(8, 4, 3, 3)},
        {"weight": weight(8, 4, 3, 3, datatype=INT)},
        {"weight": weight(8, 4, 3)},
        {"weight": weight(8, 4, 0, 3)},
        {"weight": weight(8, 4, 10, 3)},
        {"bias": weight(7)},
        {"bias": weight(8, 1)},
        {"bias": tensor(8)},
        {"bias": 3},
        {"stride": (0, 2)},
        {"stride": (2, 2, 2)},
        {"stride": (1, 2)},
        {"padding": (-1, 0)},
        {"padding": (1 << 40, 0)},
        {"dilation": (0, 1)},
        {"dilation": (1 << 31, 1)},
        {"groups": 0},
        {"groups": 3},
        {"groups": None},
        {"transposed": 2},
        {"transposed": True},
    ],
    ids=str,
)
def test_what_is_wrong_with_a_convolution_is_said(changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="call 0"):
        written("aten.convolution.default", convolution(**changes), tensor(1, 8, 4, 4))


def test_a_bound_that_is_no_number_is_said() -> None:
    with pytest.raises(FormatError, match="NaN"):
        written("et_vk.conv_with_clamp.default", [*convolution(), math.nan, 1.0], tensor(1, 8, 4, 4))
    with pytest.raises(FormatError, match="not a number"):
        written("et_vk.conv_with_clamp.default", [*convolution(), "low", 1.0], tensor(1, 8, 4, 4))


X = tensor(1, 4, 9, 9)


@pytest.mark.parametrize(
    ("operator", "arguments", "result"),
    [
        ("aten.avg_pool2d.default", [X, (2, 2), (0, 1), (0, 0), False, True, None], (1, 4, 8, 8)),
        ("aten.avg_pool2d.default", [X, (2, 2), (1, 1), (2, 0), False, True, None], (1, 4, 12, 8)),
        ("aten.avg_pool2d.default", [X, (2, 2), (1, 1), (0, 0), False, True, 0], (1, 4, 8, 8)),
        ("aten.avg_pool2d.default", [X, (10, 2), (1, 1), (0, 0), False, True, None], (1, 4, 0, 8)),
        ("aten.avg_pool2d.default", [X, (2, 10), (1, 1), (0, 0), False, True, None], (1, 4, 8, 0)),
        ("aten.max_pool2d.default", [X, (1 << 30, 2), (1, 1), (0, 0), (1, 1), False], (1, 4, 8, 8)),
        ("aten.max_pool2d.default", [X, (2, 2), (1, 1), (0, 0), (0, 1), False], (1, 4, 8, 8)),
        ("aten.max_pool2d.default", [tensor(4, 9, datatype=INT), (2, 2)], (4, 9)),
        ("aten.upsample_nearest2d.vec", [X, None, None], (1, 4, 9, 9)),
        ("aten.upsample_nearest2d.vec", [X, (0, 3), None], (1, 4, 0, 3)),
        ("aten.upsample_nearest2d.vec", [X, None, (math.nan, 1.0)], (1, 4, 9, 9)),
        ("aten.upsample_nearest2d.vec", [X, None, (1e300, 1.0)], (1, 4, 9, 9)),
        ("aten.upsample_bilinear2d.vec", [X, (3, 3), None, None], (1, 4, 3, 3)),
        ("aten.upsample_bilinear2d.vec", [X, (3, 3), False, (1e-300, 1.0)], (1, 4, 3, 3)),
        ("aten.upsample_bilinear2d.vec", [X, (3, 3), False, (1.0,)], (1, 4, 3, 3)),
        ("aten.grid_sampler_2d.default", [X, tensor(1, 2, 2, 3), 0, 1, True], (1, 4, 2, 2)),
        ("aten.grid_sampler_2d.default", [X, tensor(2, 2, 2, 2), 0, 1, True], (1, 4, 2, 2)),
        ("aten.grid_sampler_2d.default", [X, tensor(1, 2, 2, 2), 1, 1, True], (1, 4, 2, 2)),
    ],
    ids=str,
)
def test_what_is_wrong_with_other_operators_is_said(operator: str, arguments: list[Argument], result: Any) -> None:
    with pytest.raises(FormatError, match="call 0"):
        written(operator, arguments, tensor(*result))


def test_positions_of_maxima_that_are_no_integers_are_said() -> None:
    arguments: list[Argument] = [X, (3, 3), (3, 3), (0, 0), (1, 1), False]
    with pytest.raises(FormatError, match="type FLOAT32"):
        written("aten.max_pool2d_with_indices.default", arguments, tensor(1, 4, 3, 3), tensor(1, 4, 3, 3))


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.sampled_from([1 << 24, 1 << 31, 1 << 62, -(1 << 62), math.nan, math.inf, 0.5, "floor"]),
    st.tuples(st.integers(-2, 12), st.integers(-2, 12)),
    st.tuples(st.floats(), st.floats()),
    st.sampled_from([X, tensor(4, 9), tensor(1, 9, 9, 2), tensor(0, 4, 9, 9), weight(4), weight(4, 1, 3, 3)]),
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(name for name in KERNELS if "conv" in name or "pool" in name or "sample" in name)), st.data()
)
def test_no_argument_leads_to_another_error(operator: str, data: st.DataObject) -> None:
    arguments: list[Argument] = (
        [*convolution(), 0.0, 6.0] if "conv" in operator else [X, (3, 3), (3, 3), (0, 0), False, True]
    )
    for _ in range(data.draw(st.integers(1, 3))):
        arguments[data.draw(st.integers(0, len(arguments) - 1))] = data.draw(ODD)
    with contextlib.suppress(FormatError):
        written(operator, arguments, tensor(1, 4, 3, 3))
