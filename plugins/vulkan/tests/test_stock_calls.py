"""Calls in forms that ExecuTorch's own lowering writes and ours does not: the runtime supports them, too."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import delegatekit
from delegatekit_api import FormatError, TensorSpec
from delegatekit_toolkit.testing import payload_of
from delegatekit_vulkan.blob.writer import serialize
from delegatekit_vulkan.ir.graph import Graph, Node, Tensor
from delegatekit_vulkan.ir.types import device_type
from delegatekit_vulkan.runtime import VulkanRuntime

from .stock import stock_buffer

pytestmark = pytest.mark.needs_device


def declared(value: torch.Tensor) -> Tensor:
    """A tensor of a graph for one of PyTorch's."""
    datatype = device_type(value.dtype, half=False)
    return Tensor(tuple(value.shape), datatype, datatype)


def spec(value: torch.Tensor) -> TensorSpec:
    return TensorSpec(str(value.dtype).removeprefix("torch."), tuple(value.shape))


def run(operator: str, make, *inputs: torch.Tensor, like: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """One call on the device: `make` returns its arguments for the graph's inputs, `like` have the results' shapes."""
    tensors = [declared(value) for value in inputs]
    results = tuple(declared(value) for value in like)
    result = results if len(results) > 1 else results[0]
    graph = Graph(tensors, list(results), [Node(operator, make(*tensors), result)])
    written = serialize(graph)
    data = {item.key: memoryview(item.data.numpy()).cast("B") for item in written.named_data}
    payload = payload_of(written.blob, [spec(v) for v in inputs], [spec(v) for v in like], named_data=data)
    runtime = VulkanRuntime()
    handle = runtime.init(payload)
    outputs = [torch.empty_like(value) for value in like]
    runtime.execute(handle, list(inputs), outputs)
    runtime.destroy(handle)
    return outputs


X = torch.randn(3, 4, 5)
M = torch.randn(3, 4)
WHOLE = torch.randint(-9, 9, (3, 4), dtype=torch.int32)

CALLS = [
    ("aten.split_with_sizes_copy.default", lambda x: [x, (1, 3), 1], (X,), X.split([1, 3], 1)),
    ("aten.slice_copy.Tensor", lambda x: [x, -1, -3, 2**63 - 1, 2], (X,), X[..., -3::2]),
    ("aten.slice_copy.Tensor", lambda x: [x, 1, None, None, 1], (X,), X),
    ("aten.select_copy.int", lambda x: [x, -1, -2], (X,), X[..., -2]),
    ("aten.view_copy.default", lambda x: [x, (-1, 5)], (X,), X.view(-1, 5)),
    ("aten.squeeze_copy.dims", lambda x: [x, (0, 2)], (X[:1],), X[0]),
    ("aten.unsqueeze_copy.default", lambda x: [x, -1], (X,), X.unsqueeze(-1)),
    ("aten.expand_copy.default", lambda x: [x, (2, -1, 4), False], (M,), M.expand(2, 3, 4)),
    ("aten.t_copy.default", lambda x: [x], (M,), M.t()),
    ("aten.t_copy.default", lambda x: [x], (M[0],), M[0]),
    ("aten.permute.default", lambda x: [x, (-1, 0, 1)], (X,), X.permute(-1, 0, 1)),
    ("aten.flip.default", lambda x: [x, (-1, 0)], (X,), X.flip(-1, 0)),
    ("aten.repeat.default", lambda x: [x, (2, 1, 3)], (M,), M.repeat(2, 1, 3)),
    ("aten.cat.default", lambda x: [(x, x), -1], (X,), torch.cat([X, X], -1)),
    ("aten.cat.default", lambda x: [(x, x), 0], (M[0, :0],), M[0, :0]),
    ("aten.relu.default", lambda x: [x], (M[:0],), M[:0]),
    ("aten.index_select.default", lambda x, i: [x, -1, i], (X, torch.tensor([4, 0])), X[..., [4, 0]]),
    ("aten.full_like.default", lambda x: [x, 3, None, None, None, False, None], (M,), torch.full_like(M, 3)),
    ("aten.ones.default", lambda x: [(2, 3), None, None, None, None], (M,), torch.ones(2, 3)),
    ("aten.zeros_like.default", lambda x: [x, None, None, None, None, None], (WHOLE,), torch.zeros_like(WHOLE)),
    ("aten.scalar_tensor.default", lambda x: [2.5, None, None, None, None], (M,), torch.tensor(2.5)),
    ("aten.arange.start_step", lambda x: [2, 9, 3, None, None, None, None], (M,), torch.arange(2, 9, 3)),
    ("aten.arange.start_step", lambda x: [0.5, 2.0, 0.25, None, None, None, None], (M,), torch.arange(0.5, 2, 0.25)),
    ("aten.copy.default", lambda x, y: [x, y, False], (M, M + 1), M + 1),
    ("aten.alias_copy.default", lambda x: [x], (M,), M),
    ("dim_order_ops._to_dim_order_copy.default", lambda x: [x] + [None] * 6, (WHOLE,), WHOLE.float()),
    ("dim_order_ops._to_dim_order_copy.default", lambda x: [x] + [None] * 6, (M * 9,), (M * 9).int()),
    ("dim_order_ops._clone_dim_order.default", lambda x: [x] + [None] * 2, (M,), M),
    ("aten.bitwise_not.default", lambda x: [x], (WHOLE,), ~WHOLE),
    ("aten.logical_not.default", lambda x: [x], (WHOLE,), WHOLE.logical_not()),
    ("aten.hardtanh.default", lambda x: [x, -0.5, 0.25], (M,), F.hardtanh(M, -0.5, 0.25)),
    ("aten.hardtanh.default", lambda x: [x, -1, 1], (M,), F.hardtanh(M)),
    ("aten.clamp.default", lambda x: [x, None, 3], (WHOLE,), WHOLE.clamp(max=3)),
    ("aten.hardshrink.default", lambda x: [x, 0.5], (M,), F.hardshrink(M)),
    ("aten.div.Tensor_mode", lambda x, y: [x, y, "trunc"], (M * 9, M.flip(0)), (M * 9 / M.flip(0)).trunc()),
    ("aten.div.Tensor_mode", lambda x, y: [x, y, "floor"], (WHOLE, WHOLE.abs() + 1), WHOLE // (WHOLE.abs() + 1)),
    ("aten.add.Tensor", lambda x, y: [x, y, 3], (WHOLE, WHOLE), 4 * WHOLE),
    ("aten.where.self", lambda c, x, y: [c, x, y], (M > 0, WHOLE, -WHOLE), torch.where(M > 0, WHOLE, -WHOLE)),
    ("aten.eq.Scalar", lambda x: [x, 3], (WHOLE,), WHOLE == 3),
    ("aten.ne.Scalar", lambda x: [x, True], (M > 0,), M <= 0),
    ("aten.pow.Tensor_Scalar", lambda x: [x, 2], (M,), M * M),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "make", "inputs", "wanted"), CALLS, ids=[call[0] for call in CALLS])
def test_calls_do_what_pytorch_does(operator, make, inputs, wanted):
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    wanted = tuple(item.contiguous() for item in wanted)
    got = run(operator, make, *(item.contiguous() for item in inputs), like=wanted)
    for mine, item in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, item, rtol=1e-6, atol=0)


def test_divisions_of_integers_survive_0_and_the_least_number():
    x = torch.tensor([5, -(2**31), 7, -7], dtype=torch.int32)
    y = torch.tensor([0, -1, 2, 2], dtype=torch.int32)
    (got,) = run("aten.div.Tensor_mode", lambda x, y: [x, y, "floor"], x, y, like=(x,))
    assert got[2:].tolist() == [3, -4]


def test_conversions_of_numbers_that_integers_cannot_hold_are_bounded():
    x = torch.tensor([1e20, -1e20, math.nan, math.inf])
    (got,) = run("aten._to_copy.default", lambda x: [x] + [None] * 6, x, like=(x.int(),))
    assert got.tolist() == [2**31 - 1, -(2**31), 0, 2**31 - 1]


def test_comparisons_of_integers_with_fractions_are_refused():
    with pytest.raises(FormatError, match=r"compares integers with 0\.5"):
        run("aten.eq.Scalar", lambda x: [x, 0.5], WHOLE, like=(WHOLE > 0,))


def test_divisions_of_integers_without_rounding_are_refused():
    with pytest.raises(FormatError, match="divides integers without rounding"):
        run("aten.div.Tensor", lambda x: [x, x], WHOLE, like=(WHOLE,))


class _Small(torch.nn.Module):
    """Operators of the family in one model, as supported by the stock lowering."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 8)
        self.register_buffer("positions", torch.arange(4.0).reshape(4, 1))

    def forward(self, tokens, x):
        y = self.table(tokens) + self.positions
        a, b = (y * torch.sigmoid(x)).split([3, 5], -1)
        y = torch.cat([a, b.cos(), b.sin()], -1).permute(0, 2, 1).reshape(2, 26, 2)
        return torch.where(y > 0.5, y, y.tanh() * 2).clamp(-1.5, 3.0), F.gelu(x[:, 1:], approximate="tanh") / 3


@pytest.mark.slow
def test_blobs_of_the_stock_partitioner_run():
    model, inputs = _Small().eval(), (torch.randint(0, 10, (2, 4)), torch.randn(2, 4, 8))
    buffer = stock_buffer(model, inputs)
    assert b"VulkanBackend" in buffer
    got = delegatekit.load(buffer)["forward"](*inputs)
    for mine, wanted in zip(got, model(*inputs), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5)
