"""Operators that look elements up: at constant and computed indices, also those counted from the end."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from delegatekit_api import ExecutionError, FormatError
from delegatekit_conformance.testkit import compare, lower, refusals
from delegatekit_vulkan.ir.graph import Graph, Node, Tensor
from delegatekit_vulkan.ir.types import DataType
from delegatekit_vulkan.options import VulkanOptions
from delegatekit_vulkan.runtime.calls import write_tape
from delegatekit_vulkan.runtime.kernels import KERNELS
from delegatekit_vulkan.support import VulkanPartitioner

TABLE = torch.randn(11, 8)


@pytest.mark.needs_device
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", [1, 5, 8])
@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (2, 1, 3)])
def test_embeddings_look_rows_up(dtype, width, shape):
    module = nn.Embedding(11, width)
    indices = torch.randint(0, 11, shape).to(dtype)
    compare(lower(module, indices, backend="vulkan"))


@pytest.mark.needs_device
def test_embeddings_in_half_precision_are_rounded_once():
    module = nn.Embedding(11, 8)
    lowered = lower(module, torch.arange(11), backend="vulkan", options={"fp16": True})
    assert torch.equal(lowered.run()[0], module.weight.detach().half().float())


@pytest.mark.needs_device
def test_weights_may_be_computed():
    compare(
        lower(lambda w, i: nn.functional.embedding(i, w * 2), TABLE, torch.tensor([[1, 0], [10, 3]]), backend="vulkan")
    )


@pytest.mark.needs_device
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(4, 5, 6), (4, 4, 8)])
def test_slices_are_selected(axis, shape):
    x, index = torch.randn(shape), torch.tensor([3, 0, 3, 1])
    compare(lower(lambda x, i: (x * 2).index_select(axis, i), x, index, backend="vulkan"))


INDEXED = {
    "rows": lambda x, i: x[i],
    "columns": lambda x, i: x[:, i],
    "the last axis": lambda x, i: x[..., i],
    "by two axes": lambda x, i: x[:, i.view(2, 2)],
    "from the end": lambda x, i: x[i - 4],
    "by constants": lambda x, i: x[:, [0, -1, 2]] + x[:, torch.tensor([1, 1, -4])],
}


@pytest.mark.needs_device
@pytest.mark.parametrize("name", INDEXED)
def test_tensors_are_indexed(name):
    x, index = torch.randn(4, 4, 8), torch.tensor([3, 0, 2, 1])
    compare(lower(lambda x, i: INDEXED[name](x * 2, i), x, index, backend="vulkan"))


@pytest.mark.needs_device
def test_integers_and_truth_values_are_indexed():
    x, index = torch.arange(20).reshape(4, 5), torch.tensor([3, 0])
    compare(lower(lambda x, i: ((x + 1)[i], (x > 7)[i], (x + 1).gather(1, i.expand(4, 2))), x, index, backend="vulkan"))


@pytest.mark.needs_device
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_are_gathered(axis):
    x = torch.randn(3, 4, 5)
    sizes = [2, 3, 4]
    sizes[axis] = 6
    index = torch.randint(0, x.shape[axis], sizes)
    compare(lower(lambda x, i: (x * 2).gather(axis, i), x, index, backend="vulkan"))


#: Functions of a table and indices, and an index of TABLE for which eager raises.
LOOKUPS = {
    "embedding": (lambda x, i: nn.functional.embedding(i, x * 2), 11),
    "embedding of the first negative": (lambda x, i: nn.functional.embedding(i, x * 2), -12),
    "index": (lambda x, i: (x * 2)[i], 11),
    "index beyond 32 bits of bytes": (lambda x, i: (x * 2)[i], 2**31 - 1),
    "index from the end": (lambda x, i: (x * 2)[i], -12),
    "index, the least": (lambda x, i: (x * 2)[i], -(2**31)),
    "computed index": (lambda x, i: (x * 2)[i * 2], 6),
    "index of another axis": (lambda x, i: (x * 2)[:, i], 8),
    "index_select": (lambda x, i: (x * 2).index_select(1, i), 8),
    "gather": (lambda x, i: (x * 2).gather(1, i.expand(11, 3)), 8),
    "gather from the end": (lambda x, i: (x * 2).gather(1, i.expand(11, 3)), -1),
}


@pytest.mark.needs_device
@pytest.mark.parametrize("name", LOOKUPS)
def test_an_index_out_of_range_is_an_error_as_in_eager_and_the_next_call_is_right(name):
    function, index = LOOKUPS[name]
    good, bad = torch.tensor([0, 1, 2]), torch.tensor([0, index, 1])
    lowered = lower(function, TABLE, good, backend="vulkan")
    with pytest.raises((IndexError, RuntimeError)):
        function(TABLE, bad)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"call \d+ \(aten\.[a-z_]+\.\w+\) has an index out of range"):
            lowered.run(TABLE, bad)
        (got,) = lowered.run(TABLE, good)
        assert torch.equal(got, function(TABLE, good))


#: Two indices, of one shape or not, that are counted from the front or from the end.
PAIRS = {
    "elements": lambda x, i, j: x[i, j],
    "of the last axes": lambda x, i, j: x[:, i, j],
    "a grid": lambda x, i, j: x[i[:, None], j],
    "a constant and a tensor": lambda x, i, j: x[[0, -1, 1], j],
    "constants": lambda x, i, j: x[[0, -1], [1, -4]],
    "three": lambda x, i, j: x[i, j, i + 1],
    "booleans": lambda x, i, j: (x > 0)[i, j],
}


@pytest.mark.needs_device
@pytest.mark.parametrize("name", PAIRS)
def test_neighboring_axes_are_indexed_at_once(name):
    x, i, j = torch.randn(4, 4, 8), torch.tensor([3, -4, 2]), torch.tensor([-1, 0, 3])
    compare(lower(lambda x, i, j: PAIRS[name](x * 2, i, j), x, i, j, backend="vulkan"))


def test_axes_with_others_between_them_are_refused():
    x, i = torch.randn(3, 4, 5), torch.tensor([0, 1])
    found = refusals(VulkanPartitioner(VulkanOptions()), lambda x, i: x[i, :, i], x, i)
    assert found == ["axes 0, 2 are indexed at once, with others between them"]


def _written(operator: str, arguments: list[object], result: tuple[int, ...], *inputs: Tensor) -> None:
    made = Tensor(result, DataType.FLOAT32, DataType.FLOAT32)
    graph = Graph(list(inputs), [made], [Node(operator, arguments, made)])  # type: ignore[arg-type]
    write_tape(graph, KERNELS, [tensor.sizes for tensor in inputs], {}, largest=True, states={})


def _tensor(*shape: int, datatype: DataType = DataType.FLOAT32) -> Tensor:
    return Tensor(shape, datatype, datatype)


@pytest.mark.parametrize(
    ("operator", "wrong"),
    [
        ("aten.embedding.default", lambda x, i: ([x, x, -1, False, False], (2, 3, 3))),
        ("aten.embedding.default", lambda x, i: ([i, i, -1, False, False], (4, 3))),
        ("aten.index_select.default", lambda x, i: ([x, 2, i], (4, 3))),
        ("aten.index_select.default", lambda x, i: ([x, 0, i], (5, 3))),
        ("aten.index.Tensor", lambda x, i: ([x, (None, None, i)], (2, 3, 4))),
        ("aten.index.Tensor", lambda x, i: ([x, (i, i)], (4,))),
        ("aten.index.Tensor", lambda x, i: ([x, i], (4, 3))),
        ("aten.gather.default", lambda x, i: ([x, 0, i, False], (4,))),
        ("aten.where.self", lambda x, i: ([x, x, x], (2, 3))),
        ("aten.where.self", lambda x, i: ([i, x, x], (2, 3))),
        ("aten.exp.default", lambda x, i: ([i], (4,))),
        ("aten.gelu.default", lambda x, i: ([x, "other"], (2, 3))),
        ("aten.gelu.default", lambda x, i: ([x, (1, 2)], (2, 3))),
        ("aten.clamp.default", lambda x, i: ([x, "1", None], (2, 3))),
        ("aten.tanh.default", lambda x, i: ([x], (3, 2))),
        ("aten.div.Tensor_mode", lambda x, i: ([x, x, ("floor",)], (2, 3))),
        ("aten.bitwise_and.Tensor", lambda x, i: ([x, x], (2, 3))),
        ("aten.copy.default", lambda x, i: ([x, i, False], (2, 3))),
    ],
)
def test_wrong_calls_are_found_before_the_driver_hears_of_them(operator, wrong):
    x, index = _tensor(2, 3), _tensor(4, datatype=DataType.INT32)
    arguments, shape = wrong(x, index)
    with pytest.raises(FormatError):
        _written(operator, arguments, shape, x, index)


@pytest.mark.needs_device
@pytest.mark.parametrize("shape", [(1, 7, 3), (7, 1, 3), (1, 1, 3)])
def test_an_axis_of_one_element_may_be_indexed_beside_another(shape):
    rows, columns = torch.zeros(1, 1, dtype=torch.int64), torch.tensor([[2, 0, 6]]) % max(shape[:2])
    first = (rows, columns) if shape[0] == 1 else (columns, rows)
    compare(lower(lambda x: 2 * x[first], torch.randn(shape), backend="vulkan"))


@pytest.mark.needs_device
@pytest.mark.parametrize("index", [torch.tensor(0), torch.tensor([0])])
def test_the_element_of_a_number_may_be_selected(index):
    compare(lower(lambda x: 2 * x.index_select(0, index), torch.randn(()), backend="vulkan"))
