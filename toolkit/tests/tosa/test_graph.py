"""Graphs under construction."""

from __future__ import annotations

import numpy as np
import pytest

from delegatekit_api import LoweringError
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import DType
from delegatekit_toolkit.tosa.types import pack, unpack


def test_a_name_that_is_taken_gets_a_number() -> None:
    graph = tosa.Graph()
    x = graph.input("x", (1, 2), DType.INT8)
    first = graph.add(tosa.Identity(), [x], (1, 2), DType.INT8, "y_1")
    names = [graph.add(tosa.Identity(), [x], (1, 2), DType.INT8, name).name for name in ("y", "y", "y", "x")]
    assert [first.name, *names] == ["y_1", "y", "y_1_1", "y_2", "x_1"]


def test_equal_constants_are_one_tensor() -> None:
    graph = tosa.Graph()
    a = graph.constant([1, 2], DType.INT8, "a")
    assert graph.constant(np.array([1, 2], np.int64), DType.INT8, "b") is a
    others = [
        graph.constant([1, 2], DType.INT32),
        graph.constant([[1, 2]], DType.INT8),
        graph.constant([2, 1], DType.INT8),
        graph.constant(np.int8(1), DType.INT8),
        graph.constant([], DType.SHAPE),
    ]
    assert [tensor.shape for tensor in others] == [(2,), (1, 2), (2,), (), (0,)]
    assert graph.constants == [a, *others]


def test_a_constant_must_fit_its_type() -> None:
    with pytest.raises(LoweringError, match="w: values from 1 to 128 do not fit INT8"):
        tosa.Graph().constant([1, 128], DType.INT8, "w")
    with pytest.raises(LoweringError, match="INT4"):
        tosa.Graph().constant([-8], DType.INT4)


def test_verification_names_the_operation() -> None:
    graph, other = tosa.Graph(), tosa.Graph()
    x, stranger = graph.input("x", (1, 2), DType.INT32), other.input("z", (1, 2), DType.INT32)
    graph.output(graph.add(tosa.Add(), [x, x], (1, 2), DType.INT32, "twice"))
    graph.verify()
    graph.add(tosa.Add(), [x, stranger], (1, 2), DType.INT32, "wrong")
    with pytest.raises(LoweringError, match="ADD wrong: reads 'z', which is not computed before"):
        graph.verify()
    graph.operations[-1] = tosa.Operation(tosa.Add(), (x,), graph.operations[-1].output)
    with pytest.raises(LoweringError, match="ADD wrong: has 1 operands, not input1 input2"):
        graph.verify()
    del graph.operations[-1]
    graph.output(stranger)
    with pytest.raises(LoweringError, match="returns 'z', which is never computed"):
        graph.verify()


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("count", [1, 2, 7])
def test_elements_survive_packing(dtype: DType, count: int) -> None:
    random = np.random.default_rng(count)
    type_ = tosa.types.NUMPY_TYPES[dtype]
    if dtype in tosa.types.INTEGER_RANGES:
        low, high = tosa.types.INTEGER_RANGES[dtype]
        values = random.integers(low, high, count, endpoint=True).astype(type_)
        values[0] = low
    else:
        values = (random.integers(0, 2, count) if dtype == DType.BOOL else random.integers(0, 99, count)).astype(type_)
    data = pack(values, dtype)
    assert len(data) == tosa.types.packed_size(count, dtype)
    np.testing.assert_array_equal(unpack(data, count, dtype), values)


def test_a_result_that_is_defined_before_is_found() -> None:
    graph = tosa.Graph()
    x = graph.input("x", (2,), DType.INT32)
    y = graph.add(tosa.Abs(), [x], x.shape, DType.INT32, "y")
    graph.output(y)
    graph.verify()
    for target in (x, y):
        graph.operations.append(tosa.Operation(tosa.Abs(), (x,), target))
        with pytest.raises(LoweringError, match=f"writes '{target.name}', which is"):
            graph.verify_order()
        graph.operations.pop()
