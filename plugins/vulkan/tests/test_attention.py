"""Attention as one operator and rotary embeddings, as called by ExecuTorch's own lowering, on a device."""

from __future__ import annotations

import math

import pytest
import torch

from delegatekit_api import ExecutionError, FormatError, TensorSpec
from delegatekit_toolkit.testing import payload_of
from delegatekit_vulkan.blob.writer import serialize
from delegatekit_vulkan.ir.graph import Graph, Node, SymInt, Tensor
from delegatekit_vulkan.ir.types import DATA_TYPES
from delegatekit_vulkan.runtime import VulkanRuntime

pytestmark = pytest.mark.needs_device


def run(operator, inputs, arguments, shapes):
    """One call on the device: its tensors, further arguments, and the shapes of its results."""
    tensors = [Tensor(tuple(value.shape), DATA_TYPES[value.dtype], DATA_TYPES[value.dtype]) for value in inputs]
    kind = DATA_TYPES[torch.float32]
    results = tuple(Tensor(shape, kind, kind) for shape in shapes)
    node = Node(operator, [*tensors, *arguments], results if len(results) > 1 else results[0])
    written = serialize(Graph(tensors, list(results), [node]))
    specs = [TensorSpec("float32", tuple(value.shape)) for value in inputs]
    wanted = [TensorSpec("float32", shape) for shape in shapes]
    data = {item.key: item.data for item in written.named_data}
    runtime = VulkanRuntime()
    handle = runtime.init(payload_of(written.blob, specs, wanted, named_data=data))
    outputs = [torch.empty(shape) for shape in shapes]
    runtime.execute(handle, list(inputs), outputs)
    runtime.destroy(handle)
    return outputs


def agree(found, wanted):
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def attention(query, key, value, bias, scale):
    query, key, value = query.double(), key.double(), value.double()
    return torch.softmax(query @ key.mT * scale + bias, -1) @ value


@pytest.mark.parametrize("mask", [None, (5, 7), (2, 1, 5, 7), (2, 3, 1, 7), (1, 1, 5, 1)], ids=str)
def test_attention_agrees_with_eager(mask):
    query, key, value = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 6)
    masks = [] if mask is None else [torch.randn(mask)]
    rest = [None, 0.3] if mask is None else [0.3]
    (found,) = run("et_vk.sdpa.default", [query, key, value, *masks], rest, [(2, 3, 5, 6)])
    agree(found, attention(query, key, value, masks[0].double() if masks else 0.0, 0.3))


def cache_graph():
    """A call that writes keys and values into caches at a position read from an input."""
    kind, whole = DATA_TYPES[torch.float32], DATA_TYPES[torch.int32]
    shapes = [(1, 3, 4, 8), (1, 3, 2, 8), (1, 3, 2, 8)]
    tensors = [*(Tensor(shape, kind, kind) for shape in shapes), Tensor((1,), whole, whole)]
    caches = [Tensor((1, 9, 2, 8), kind, kind, torch.full((1, 9, 2, 8), number)) for number in (1.0, 2.0)]
    result, position = Tensor(shapes[0], kind, kind), SymInt()
    reads = Node("et_vk.select_as_symint.default", [tensors[3], 0, -1], position)
    arguments = [*tensors[:3], *caches, position, 1, None, 0, True, None]
    return Graph(tensors, [result], [reads, Node("sdpa_with_kv_cache.default", arguments, result)])


def test_caches_keep_what_calls_write_for_each_handle():
    written = serialize(cache_graph())
    specs = [TensorSpec("float32", (1, 3, heads, 8)) for heads in (4, 2, 2)]
    data = {item.key: item.data.numpy().tobytes() for item in written.named_data}
    payload = payload_of(written.blob, [*specs, TensorSpec("int32", (1,))], specs[:1], named_data=data)
    runtime = VulkanRuntime()
    handles = [runtime.init(payload) for _ in range(2)]
    caches = [[torch.ones(1, 9, 2, 8), 2 * torch.ones(1, 9, 2, 8)] for _ in handles]
    for handle, start in ((0, 3), (1, 0), (0, 6), (1, 3), (0, 0)):
        query, key, value, output = (torch.randn(1, 3, heads, 8) for heads in (4, 2, 2, 4))
        for cache, new in zip(caches[handle], (key, value), strict=True):
            cache[:, start : start + 3] = new
        runtime.execute(handles[handle], [query, key, value, torch.tensor([start], dtype=torch.int32)], [output])
        seen = start + 3
        hidden = torch.full((3, seen), -math.inf).triu(start + 1).double()
        keys, values = (item[:, :seen].transpose(1, 2).repeat_interleave(2, 1) for item in caches[handle])
        agree(output, attention(query.transpose(1, 2), keys, values, hidden, 8**-0.5).transpose(1, 2))
    with pytest.raises(ExecutionError, match="at 7 of a cache"):
        runtime.execute(handles[0], [query, key, value, torch.tensor([7], dtype=torch.int32)], [output])
    for handle in handles:
        runtime.destroy(handle)


def turned(x, cosines, sines):
    """Neighbors of a head (batch, positions, heads, size) as complex numbers, rotated."""
    pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
    angles = torch.complex(cosines.double(), sines.double())
    return torch.view_as_real(pairs * angles[:, None]).flatten(-2)


def test_rotary_embeddings_turn_neighbours():
    query, key, angles = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 2, 8), torch.randn(3, 4)
    tables = [angles.cos(), angles.sin()]
    found = run("et_vk.apply_rotary_emb.default", [query, key, *tables], [], [(2, 3, 4, 8), (2, 3, 2, 8)])
    agree(found[0], turned(query, *tables))
    agree(found[1], turned(key, *tables))


def test_rotary_embeddings_turn_neighbours_by_one_table():
    x, angles = torch.randn(2, 3, 8), torch.randn(3, 4)
    table = torch.stack([angles.cos(), angles.sin()], -1)[None]
    (found,) = run("et_vk.apply_rotary_emb_interleaved.default", [x, table], [], [(2, 3, 8)])
    agree(found, turned(x[:, :, None], angles.cos(), angles.sin())[:, :, 0])


@pytest.mark.parametrize("size", [8, 6])
def test_rotary_embeddings_turn_halves_from_a_position_on(size):
    query, key, angles = torch.randn(1, 3, 4, 8), torch.randn(1, 3, 2, 8), torch.randn(7, size)
    tables = [angles.cos(), angles.sin()]
    name, shapes = "et_vk.apply_rotary_emb_hf.default", [(1, 3, 4, 8), (1, 3, 2, 8)]
    for found, x in zip(run(name, [query, key, *tables], [2], shapes), (query, key), strict=True):
        cosines, sines = (table[2:5, None].double() for table in tables)
        first, second = x[..., :size].double().chunk(2, -1)
        wanted = x.double().clone()
        wanted[..., :size] = x[..., :size] * cosines + torch.cat([-second, first], -1) * sines
        agree(found, wanted)


def test_calls_that_do_not_fit_are_refused_before_the_driver_hears_of_them():
    x = torch.randn(1, 3, 4, 8)
    for operator, inputs, arguments in (
        ("et_vk.sdpa.default", [x, x, torch.randn(1, 3, 5, 8)], [None, None]),
        ("et_vk.sdpa.default", [x, x, x, torch.randn(3, 4)], [None]),
        ("et_vk.rms_norm.default", [x, torch.randn(7)], [1e-5]),
        ("aten.linear.default", [x, torch.randn(8, 7)], [None]),
        ("aten.bmm.default", [x, x], []),
        ("aten._softmax.default", [x], [4, False]),
        ("aten.mean.dim", [x], [(1, 1), True, None]),
        ("aten.native_layer_norm.default", [x], [(8,), None, None, 1e-5]),
    ):
        with pytest.raises(FormatError):
            run(operator, inputs, arguments, [(1, 3, 4, 8)])
    table = torch.randn(7, 8)
    for first in (-1, 5):
        with pytest.raises(FormatError, match=f"from {first} on"):
            run("et_vk.apply_rotary_emb_hf.default", [x, x, table, table], [first], [(1, 3, 4, 8)] * 2)
