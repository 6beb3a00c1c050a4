"""The edge program computes what the exported program computes, in canonical form."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from function_module import Function
from torch import nn
from torch.fx import Node

from delegatekit.edge import EdgeMethod, build_edge
from delegatekit.fallback import decompose_nodes
from delegatekit_api import UnsupportedError
from delegatekit_api.nodes import operator_name, source_line


def run(method: EdgeMethod, *inputs: Any) -> tuple[Any, ...]:
    """Interpret the edge graph eagerly, checking every recorded shape and dtype on the way."""
    values: dict[Node, Any] = dict(zip(method.inputs, inputs, strict=True)) | dict(method.constants)
    values |= {node: buffer.initial for node, buffer in method.buffers.items()}
    for node in method.graph.nodes:
        if node.op != "call_function":
            continue
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
        values[node] = node.target(*args, **kwargs)
        recorded = node.meta["val"]
        if isinstance(recorded, torch.Tensor):
            assert tuple(recorded.shape) == tuple(values[node].shape), node
            assert recorded.dtype == values[node].dtype, node
    return tuple(values[item] if isinstance(item, Node) else item for item in method.outputs)


def edge_of(module: nn.Module, *inputs: Any, keep: tuple[str, ...] = ()) -> EdgeMethod:
    method = build_edge(torch.export.export(module.eval(), inputs, strict=False), keep=keep)
    method.verify()
    return method


def operators(method: EdgeMethod) -> list[str]:
    return [operator_name(node) for node in method.graph.nodes if node.op == "call_function"]


X = torch.randn(2, 3, 8, 6)


def _write_through_view(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, 0].zero_()
    return y + 1


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "reshape of a permute": (lambda x: x.permute(0, 2, 3, 1).reshape(2, -1), (X,)),
    "transposes": (lambda x: x.transpose(1, -1).mT.swapaxes(0, 1), (X,)),
    "squeeze and unsqueeze": (lambda x: x[:1].squeeze().unsqueeze(-1).unsqueeze(0).squeeze(0), (X,)),
    "expand": (lambda x: x[:, :1].expand(-1, 5, -1, 6) * 2, (X,)),
    "split, chunk, unbind": (
        lambda x: (x.split(2, 1)[1], x.chunk(4, 2)[3], x.unbind(1)[2], x.split([1, 2], dim=1)[1]),
        (X,),
    ),
    "slices with steps and negative bounds": (lambda x: (x[:, :, 1:-1:2], x[..., -3:], x.narrow(2, 1, 3)), (X,)),
    "numbers as operands": (lambda x: (x + 2, 3 - x, x * 0.5, x / 3, x - 1, 1 / (x + 9), x**2, x > 0), (X,)),
    "add with alpha": (lambda x: (torch.add(x, x, alpha=2), torch.sub(x, 3, alpha=2)), (X,)),
    "clamp family": (lambda x: (x.clamp_min(0), x.clamp_max(1), x.clamp(-1, 1), F.relu6(x), F.hardtanh(x)), (X,)),
    "activations": (
        lambda x: (F.silu(x), F.gelu(x), F.elu(x), F.hardswish(x), F.hardsigmoid(x), F.mish(x), F.softplus(x)),
        (X,),
    ),
    "softmax in another dtype": (lambda x: F.softmax(x, 1, dtype=torch.float64), (X,)),
    "log_softmax": (lambda x: F.log_softmax(x, -1), (X,)),
    "pads": (
        lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 0, 1, 1), value=3.0), F.pad(x, (1, 1, 0, 1), mode="reflect")),
        (X,),
    ),
    "pools": (
        lambda x: (
            F.max_pool2d(x, 2),
            F.avg_pool2d(x, 2, ceil_mode=True),
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, (4, 3)),
        ),
        (X,),
    ),
    "means and sums": (lambda x: (x.mean(), x.sum(), x.mean((2, 3)), x.var(-1), x.std((1, 2), keepdim=True)), (X,)),
    "stack and cat": (lambda x: (torch.stack([x, x], 1), torch.cat([x, x + 1], 2)), (X,)),
    "einsum": (lambda x: torch.einsum("bchw,bdhw->bcd", x, x), (X,)),
    "matmul with itself": (lambda x: x @ x.mT, (X,)),
    "matmul of two with one shape": (lambda x, y: x @ y.mT, (X, torch.randn_like(X))),
    "layer norm": (lambda x: F.layer_norm(x, (8, 6)), (X,)),
    "group norm": (lambda x: F.group_norm(x, 3), (X,)),
    "in-place on a fresh value": (lambda x: torch.relu_(x * 2).add_(1), (X,)),
    "in-place through an alias": (_write_through_view, (X,)),
    "ints and bools": (lambda x: ((x > 0) & (x < 1), (x * 10).to(torch.int32) // 3), (X,)),
    "where and masks": (lambda x: (torch.where(x > 0, x, -1.0), x.masked_fill(x < 0, 7.0)), (X,)),
    "factories": (lambda x: (torch.arange(6) + x, torch.zeros_like(x), x.new_ones(2), torch.full((2,), 3.0)), (X,)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), (X,)),
    "variance in its older spelling": (lambda x: (x.var(-1), x.var(), torch.var(x, (2, 3), False, True)), (X,)),
    "numbers in front": (lambda x: (1 - x, 2 * x, 3 + x, torch.rsub(x, 1, alpha=2)), (X,)),
    "vector norm": (lambda x: F.normalize(x, dim=1), (X,)),
    "constants and None returned": (lambda x: (x, 3, None, "text"), (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_edge_program_computes_what_eager_computes(name: str) -> None:
    function, inputs = CASES[name]
    module = Function(function)
    expected = module(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    results = run(edge_of(module, *inputs), *inputs)
    for result, reference in zip(results, expected, strict=True):
        if isinstance(reference, torch.Tensor):
            torch.testing.assert_close(result, reference, rtol=1e-5, atol=1e-6)
        else:
            assert result == reference


@pytest.mark.parametrize("keep", [(), ("aten.matmul.default",)])
@pytest.mark.parametrize(
    "mask",
    [
        None,
        torch.rand(5, 7) > 0.5,
        torch.zeros(5, 7).masked_fill(torch.rand(5, 7) > 0.5, -math.inf),
        torch.zeros(2, 1, 5, 7, dtype=torch.bool),
    ],
    ids=["no mask", "bool", "float with -inf", "all hidden"],
)
def test_attention_equals_eager_also_where_a_mask_hides_whole_rows(mask: Any, keep: tuple[str, ...]) -> None:
    query, key, value = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4)
    module = Function(F.scaled_dot_product_attention)
    inputs = (query, key, value) if mask is None else (query, key, value, mask)
    torch.testing.assert_close(run(edge_of(module, *inputs, keep=keep), *inputs)[0], module(*inputs))


def test_causal_and_grouped_attention_equal_eager() -> None:
    query, key, value = torch.randn(1, 4, 6, 8), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    module = Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
    torch.testing.assert_close(run(edge_of(module, query, key, value), query, key, value)[0], module(query, key, value))


def test_attention_mask_becomes_a_bias_once_for_all_layers() -> None:
    def two_layers(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            q = F.scaled_dot_product_attention(q, q, q, mask)
        return q

    method = edge_of(Function(two_layers), torch.randn(1, 2, 5, 4), torch.ones(5, 5, dtype=torch.bool))
    assert operators(method).count("aten.where.self") == 1
    assert operators(method).count("aten.any.dims") == 1


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 4, 3),
        nn.Conv2d(3, 6, 3, groups=3, bias=False),
        nn.ConvTranspose2d(3, 4, 3),
        nn.ConvTranspose2d(3, 6, 3, groups=3, output_padding=1, stride=2),
    ],
    ids=["conv", "grouped without bias", "transposed", "transposed and grouped"],
)
def test_batch_norm_is_folded_into_the_convolution_before_it(layer: nn.Module) -> None:
    norm = nn.BatchNorm2d(layer.out_channels)  # type: ignore[arg-type]
    for tensor in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
        tensor.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    module = nn.Sequential(layer, norm).eval()
    method = edge_of(module, X)
    assert operators(method) == ["aten.convolution.default"]
    torch.testing.assert_close(run(method, X)[0], module(X), rtol=1e-5, atol=1e-5)


class Block(nn.Module):
    def __init__(self, layer: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.layer, self.norm = layer, norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return self.norm(y)


@pytest.mark.parametrize(
    ("layer", "norm", "x", "operator"),
    [
        (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), X, "aten.conv2d.default"),
        (nn.Linear(6, 4), nn.BatchNorm1d(4), torch.randn(2, 6), "aten.linear.default"),
    ],
    ids=["convolution", "linear"],
)
def test_a_layer_with_a_folded_batch_norm_keeps_its_place_and_has_the_norms_handle(
    layer: nn.Module, norm: nn.Module, x: torch.Tensor, operator: str
) -> None:
    module = nn.Sequential(Block(layer, norm), nn.ReLU())
    exported = torch.export.export(module.eval(), (x,), strict=False)
    folded, relu = (node for node in build_edge(exported).graph.nodes if node.op == "call_function")
    assert [path for path, _ in folded.meta["nn_module_stack"].values()] == ["", "0", "0.layer"]
    assert (source_line(folded) or "").endswith("`y = self.layer(x)`")
    assert folded.meta["source_operator"] == operator
    calls = {operator_name(node): number for number, node in enumerate(exported.graph.nodes, 1)}
    assert folded.meta["debug_handle"] == calls["aten.batch_norm.default"]
    assert relu.meta["debug_handle"] == calls["aten.relu.default"]


def test_batch_norm_behind_a_shared_convolution_stays_apart() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.conv(x)
            return self.norm(y) + y

    module = Shared().eval()
    method = edge_of(module, X)
    assert "aten.mul.Tensor" in operators(method)
    torch.testing.assert_close(run(method, X)[0], module(X), rtol=1e-5, atol=1e-5)


def test_kept_operators_stay_whole_and_can_be_decomposed_later() -> None:
    module = nn.Sequential(nn.LayerNorm(6), nn.Hardswish())
    kept = edge_of(module, X, keep=("aten.layer_norm.default", "aten.hardswish.default"))
    assert operators(kept) == ["aten.layer_norm.default", "aten.hardswish.default"]
    node = next(node for node in kept.graph.nodes if operator_name(node) == "aten.layer_norm.default")
    decomposed = decompose_nodes(kept, {node}, keep=("aten.hardswish.default",))
    method = decomposed.edge
    method.verify()
    assert [operator_name(item) for item in decomposed.became[node]] == operators(method)[:-1]
    assert operators(method)[0] == "aten.native_layer_norm.default"
    assert operators(method)[-1] == "aten.hardswish.default"
    torch.testing.assert_close(run(method, X)[0], module(X))


def test_weights_are_references_to_the_modules_own_memory() -> None:
    module = nn.Linear(6, 5)
    method = edge_of(module, X)
    addresses = {tensor.data_ptr() for tensor in method.constants.values()}
    assert addresses == {module.weight.data_ptr(), module.bias.data_ptr()}


def test_a_transposed_weight_stays_a_view_of_the_weight() -> None:
    class Transposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight.t().t()

    module = Transposed()
    method = edge_of(module, X, keep=("aten.matmul.default",))
    assert operators(method) == ["aten.matmul.default"]
    assert {tensor.data_ptr() for tensor in method.constants.values()} == {module.weight.data_ptr()}


def test_constant_subgraphs_are_folded() -> None:
    method = edge_of(Function(lambda x: x + torch.arange(6).float().cos()), X)
    assert operators(method) == ["aten.add.Tensor"]


def test_a_unit_matrix_whose_rows_pytorch_counts_in_small_integers_is_folded() -> None:
    """From 256 rows on they have 16 bits and no sign, which eager's own kernels do not fully support."""
    method = edge_of(Function(lambda x: torch.eye(300) + x.sum()), X)
    assert torch.equal(run(method, X)[0], torch.eye(300) + X.sum())


def test_equal_nodes_are_merged_but_random_ones_are_not() -> None:
    assert operators(edge_of(Function(lambda x: x.sin() + x.sin()), X)).count("aten.sin.default") == 1
    assert len(operators(edge_of(Function(lambda x: torch.rand_like(x) - torch.rand_like(x)), X))) == 3


def test_edge_nodes_know_their_source_line_and_debug_handle() -> None:
    method = edge_of(nn.Sequential(nn.Linear(6, 5), nn.GELU()), X)
    node = next(node for node in method.graph.nodes if operator_name(node) == "aten.gelu.default")
    assert node.meta["debug_handle"] > 0
    assert "stack_trace" in node.meta
    assert "nn_module_stack" in node.meta


@pytest.mark.parametrize(
    "module",
    [
        nn.LSTM(6, 4, 2),
        nn.GRU(6, 4, bidirectional=True),
        nn.RNN(6, 4),
        nn.RMSNorm(6),
        nn.InstanceNorm1d(5, affine=True),
    ],
    ids=lambda module: type(module).__name__,
)
def test_composite_layers_become_plain_operators_without_writes(module: nn.Module) -> None:
    x = torch.randn(3, 5, 6)
    expected = module.eval()(x)
    method = edge_of(module, x)
    assert "aten.slice_scatter.default" not in operators(method)
    torch.testing.assert_close(run(method, x)[0], expected[0] if isinstance(expected, tuple) else expected)


def test_a_buffer_update_is_kept_as_state() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    method = edge_of(Counter(), X)
    assert [buffer.name for buffer in method.buffers.values()] == ["count"]


def test_training_mode_is_refused_with_the_way_out() -> None:
    with pytest.raises(UnsupportedError, match=r"model\.eval\(\)"):
        build_edge(torch.export.export(nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5)).train(), (X,), strict=False))


def test_writing_an_input_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"aten.add.Tensor .*function_module.py.*writes into the input"):
        edge_of(Function(lambda x: x.add_(1) * 2), torch.randn(3))


def test_alpha_is_multiplied_in_where_shapes_differ() -> None:
    """The runtime scales the wrong operand if the first has one element."""
    one = edge_of(Function(lambda x: torch.add(x[:1, :1], x, alpha=3)), X)
    assert not any(node.kwargs for node in one.graph.nodes if str(node.target) == "aten.add.Tensor")
    same = edge_of(Function(lambda x: torch.add(x * 2, x, alpha=3)), X)
    assert [node.kwargs for node in same.graph.nodes if str(node.target) == "aten.add.Tensor"] == [{"alpha": 3}]


@pytest.mark.parametrize("rank", [3, 4], ids=["without a batch", "with a batch"])
def test_one_number_for_all_dimensions_of_a_convolution_becomes_one_for_each(rank: int) -> None:
    weight = torch.randn(4, 3, 3, 2)

    def convolve(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.conv2d.padding(x, weight, None, [2], "valid", [1]) + torch.ops.aten.conv2d.default(
            x, weight, None, [2], [0], [1]
        )

    x = X if rank == 4 else X[0]
    method = edge_of(Function(convolve), x)
    calls = [node for node in method.graph.nodes if str(node.target) == "aten.convolution.default"]
    assert [list(item) for node in calls for item in node.args[3:6]] == [[2, 2], [0, 0], [1, 1]]  # equal calls merge
    torch.testing.assert_close(run(method, x)[0], convolve(x), rtol=1e-5, atol=1e-5)


def test_nothing_is_split_and_chunked_as_eager_does() -> None:
    x = torch.zeros(2, 0)

    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*x.split(0, 1), *x.split(3, 1), *x.chunk(3, 1))

    results = run(edge_of(Function(parts), x), x)
    assert [result.shape for result in results] == [part.shape for part in parts(x)] == [(2, 0)] * 5


def test_a_strided_view_within_an_input_of_unknown_memory() -> None:
    """The exporter may leave open how large the memory of an input is."""

    class Strided(nn.Module):
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return inputs[0].as_strided((2, 3), (3, 2), 1)

    x = torch.randn(3, 5)
    method = edge_of(Strided(), x)
    assert torch.equal(run(method, x)[0], Strided()(x))


def test_a_sum_over_no_dimensions_that_the_exporter_gets_wrong_is_refused() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nansum(x, [])

    with pytest.raises(UnsupportedError, match="write dim=None"):
        build_edge(torch.export.export(Model(), (torch.ones(2),)))


def test_an_index_whose_shape_the_exporter_gets_wrong_is_refused() -> None:
    x, places = torch.randn(3, 4, 5), torch.zeros(2, 2, dtype=torch.int64)

    def pick(x: torch.Tensor, *places: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.index.Tensor(x, list(places))

    first = edge_of(Function(pick), x, places[0, 0], places)
    assert torch.equal(run(first, x, places[0, 0], places)[0], pick(x, places[0, 0], places))
    last = torch.export.export(Function(pick), (x, places, places[0, 0]), strict=False)
    shapes = [node.meta["val"].shape for node in last.graph.nodes if node.target is torch.ops.aten.index.Tensor]
    if shapes == [(2, 2, 5)]:
        pytest.skip("this PyTorch gets it right")
    with pytest.raises(UnsupportedError, match="but the result has 3"):
        build_edge(last)
