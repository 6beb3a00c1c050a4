"""Operators that no delegate takes: the emitted calls must mean the same to the engine, the stock runtime and eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import delegatekit
from delegatekit_api import ExecutionError, UnsupportedError

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def real(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


X = real(2, 3, 4)
Y = real(2, 3, 4).flip(0)
POSITIVE = X.abs() + 0.1
UNIT = X.tanh() * 0.9
IMAGE = real(1, 4, 6, 6)
ODD = torch.tensor([0.0, float("inf"), -float("inf"), float("nan"), -0.0])
N = torch.arange(-6, 6).reshape(3, 4)
INDEX = torch.tensor([2, 0, 1])
MASK = X > 0
MATRIX = real(4, 5)


def _assign(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x.clone()
    z[:, 1:, ::2] = y[:, :2, :2]
    return z


#: Case -> function, inputs, and a kernel that the file must call.
#: Numbers that are equal to others, zeros of both signs and NaNs among them.
TIED = torch.tensor([1.0, 0.0, 2.0, -0.0, 1.0, 2.0, torch.nan, 0.0, -1.0, torch.nan]).expand(2, 10).contiguous()

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    # One value in, one out; the scalars take every form: float, int, bool, None.
    "abs": (torch.abs, (X,), "aten::abs.out"),
    "acos": (torch.acos, (UNIT,), "aten::acos.out"),
    "asinh": (torch.asinh, (X,), "aten::asinh.out"),
    "atanh": (torch.atanh, (UNIT,), "aten::atanh.out"),
    "erf": (torch.erf, (X,), "aten::erf.out"),
    "expm1": (torch.expm1, (X,), "aten::expm1.out"),
    "log2": (torch.log2, (POSITIVE,), "aten::log2.out"),
    "log1p": (torch.log1p, (POSITIVE,), "aten::log1p.out"),
    "logit": (lambda x: torch.logit(x.sigmoid(), eps=0.1), (X,), ""),
    "logit without eps": (lambda x: torch.logit(x.sigmoid()), (X,), ""),
    "reciprocal": (torch.reciprocal, (POSITIVE,), "aten::reciprocal.out"),
    "rsqrt": (torch.rsqrt, (POSITIVE,), "aten::rsqrt.out"),
    "round and trunc": (lambda x: (3 * x).round() + x.trunc(), (X,), "aten::trunc.out"),
    "sign": (torch.sign, (X,), ""),
    "sign of integers": (torch.sign, (N,), "aten::sign.out"),
    "is nan, is inf": (lambda x: (x.isnan(), x.isinf()), (ODD,), "aten::isinf.out"),
    "gelu": (functional.gelu, (X,), "aten::gelu.out"),
    "gelu by tanh": (lambda x: functional.gelu(x, approximate="tanh"), (X,), "aten::gelu.out"),
    "elu": (lambda x: functional.elu(x, 0.5), (X,), "aten::elu.out"),
    "leaky relu": (lambda x: functional.leaky_relu(x, 0.2), (X,), "aten::leaky_relu.out"),
    "relu6": (functional.relu6, (X,), "aten::hardtanh.out"),
    "glu": (lambda x: functional.glu(x, -1), (X,), ""),
    "clamp from below": (lambda x: x.clamp(min=-0.5), (X,), "aten::clamp.out"),
    "clamp from above": (lambda x: x.clamp(max=1), (X,), "aten::clamp.out"),
    "clamp of integers": (lambda n: n.clamp(-2, 3), (N,), "aten::clamp.out"),
    "clamp by tensors": (lambda x, y: torch.clamp(x, y - 1, y + 1), (X, Y), ""),
    # Two values.
    "add, scaled": (lambda x, y: torch.add(x, y, alpha=2.5), (X, Y), "aten::add.out"),
    "sub, scaled, integers": (lambda n: torch.sub(n, n * 3, alpha=2), (N,), "aten::sub.out"),
    "reverse sub": (lambda x: 1 - x, (X,), ""),
    "broadcast": (lambda x, y: x * y[:, :1] + y[0, 0], (X, Y), "aten::mul.out"),
    "division": (lambda x, y: x / y, (X, POSITIVE), "aten::div.out"),
    "division, floored": (lambda x, y: torch.div(x, y, rounding_mode="floor"), (X, POSITIVE), "aten::div.out_mode"),
    "division of integers": (lambda n: n / 4, (N,), ""),
    "floor division": (lambda n: n // 4, (N,), ""),
    "remainder": (lambda x: torch.remainder(x, 0.7), (X,), "aten::remainder.Scalar_out"),
    "remainder of tensors": (torch.remainder, (X, POSITIVE), "aten::remainder.Tensor_out"),
    "fmod": (lambda x: torch.fmod(x, 0.7), (X,), "aten::fmod.Scalar_out"),
    "fmod of integers": (lambda n: torch.fmod(n, 4), (N,), "aten::div.Scalar_mode_out"),
    "power": (lambda x: x**3, (X,), "aten::pow.Tensor_Scalar_out"),
    "power of a number": (lambda x: 2**x, (X,), "aten::pow.Scalar_out"),
    "power of tensors": (torch.pow, (POSITIVE, Y), "aten::pow.Tensor_Tensor_out"),
    "maximum": (lambda x, y: torch.maximum(x, y) - torch.minimum(x, y), (X, Y), "aten::maximum.out"),
    "atan2": (torch.atan2, (X, Y), "aten::atan2.out"),
    "comparisons": (lambda x, y: (x > y, x <= y, x != 0, x == y), (X, Y), "aten::le.Tensor_out"),
    "logic": (lambda x, y: (x > 0) & (y > 0) | ~(x > y), (X, Y), ""),
    "bits": (lambda n: (n & 3) ^ (n | 8), (N,), ""),
    "logical xor": (torch.logical_xor, (X, Y), "aten::logical_xor.out"),
    "where": (torch.where, (MASK, X, Y), "aten::where.self_out"),
    "where with a number": (lambda m, x: torch.where(m, x, -1.0), (MASK, X), "aten::where.self_out"),
    "masked fill": (lambda m, x: x.masked_fill(m, -5), (MASK, X), ""),
    "mixed types": (lambda x, n: x[0] * n, (X, N), ""),
    "conversions": (lambda x: (x.to(torch.int32), x.bool(), x.double(), x.half()), (3 * X,), ""),
    # Cases that the runtime's kernels refuse or compute wrongly in their plain form.
    "integers and a fraction": (lambda n: (n + 0.5, 0.5 + n, n - 0.5, 0.5 - n, n * 0.5), (N,), ""),
    "bools and a number": (lambda m: (m + 1, m * 2.5, m + m), (MASK,), ""),
    "small integers and a fraction": (lambda n: n + 0.5, (N.to(torch.int8),), ""),
    "remainder of integers": (lambda n: (n % 3, n % -4, n.remainder(n.abs() + 1)), (N,), "aten::div.out_mode"),
    "remainder of small integers": (lambda n: n % 3, ((N + 7).to(torch.uint8),), ""),
    "remainder of integers by a fraction": (lambda n: n % 1.5, (N,), "aten::remainder.Scalar_out"),
    "pad and cut": (lambda x: functional.pad(x, (-1, 2, 1, -2), value=3.0), (X,), "aten::constant_pad_nd.out"),
    "cut by padding": (lambda x: functional.pad(x, (-1, -2)), (X,), "aten::slice_copy.Tensor_out"),
    "multiply and add, scaled": (lambda x, y: torch.addcmul(x, x, y, value=2), (X, Y), ""),
    "divide and add, scaled": (lambda x, y: torch.addcdiv(x, y, x.abs() + 1, value=0.5), (X, Y), ""),
    "dtypes": (lambda h, b: (h * 2 + 1, b.sum(-1), h.amax(1)), (X.half(), X.bfloat16()), ""),
    "log softmax in double": (lambda x: x.log_softmax(-1), (X.double(),), ""),
    # Reductions.
    "sum of all": (lambda x: x.sum(), (X,), "aten::sum.IntList_out"),
    "sum of two axes": (lambda x: x.sum((0, -1), keepdim=True), (X,), "aten::sum.IntList_out"),
    "sum of bools": (lambda m: m.sum(1), (MASK,), "aten::sum.IntList_out"),
    "mean in double": (lambda x: x.mean(1, dtype=torch.float64), (X,), "aten::mean.out"),
    "variance": (lambda x: x.var(1), (X,), "aten::var.correction_out"),
    "variance, uncorrected": (lambda x: x.var((0, 2), correction=0, keepdim=True), (X,), "aten::var.correction_out"),
    "product": (lambda x: x.prod(1), (X,), "aten::prod.int_out"),
    "product of all": (lambda x: x.prod(), (X,), "aten::prod.out"),
    "largest": (lambda x: x.amax((1, 2)) - x.amin(0).sum(), (X,), "aten::amax.out"),
    "largest of all": (lambda x: x.max() + x.min(), (X,), ""),
    "largest and where": (lambda x: x.max(1), (X,), "aten::max.dim_max"),
    "smallest and where": (lambda x: x.min(-1, keepdim=True).indices, (X,), "aten::min.dim_min"),
    "where the largest is": (lambda x: x.argmax(-1), (X,), "aten::argmax.out"),
    "where the smallest of all is": (lambda x: x.argmin(), (X,), "aten::argmin.out"),
    "any and all": (lambda m: (m.any(1), m.all(), m.any()), (MASK,), ""),
    "cumulative sum": (lambda x: x.cumsum(1), (X,), "aten::cumsum.out"),
    "the three largest": (lambda x: x.topk(3, dim=-1), (X,), "aten::topk.values"),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=-1), (X,), ""),
    "log softmax": (lambda x: functional.log_softmax(x, 1), (X,), "aten::_log_softmax.out"),
    "softmax": (lambda x: x.softmax(0), (X,), "aten::_softmax.out"),
    # Shapes, parts and positions.
    "permute": (lambda x: x.permute(2, 0, 1).contiguous(), (X,), "aten::permute_copy.out"),
    "reshape": (lambda x: x.transpose(0, 1).reshape(3, -1), (X,), ""),
    "a view that is returned": (lambda x: (x.exp().view(6, 4), x.unsqueeze(1)), (X,), ""),
    "expand": (lambda x: x[:, :1].expand(-1, 5, -1), (X,), "aten::expand_copy.out"),
    "repeat": (lambda x: x.repeat(2, 1, 2), (X,), "aten::repeat.out"),
    "flip and roll": (lambda x: x.flip([0, 2]) + x.roll([1, -1], [1, 2]), (X,), "aten::flip.out"),
    "slice with steps": (lambda x: x[:, 0:3:2, -3:], (X,), "aten::slice_copy.Tensor_out"),
    "split": (lambda x: torch.split(x, [1, 2], 1), (X,), ""),
    "unbind": (lambda x: torch.unbind(x, 1), (X,), ""),
    "concatenation": (lambda x, y: torch.cat([x, y, x], -1), (X, Y), "aten::cat.out"),
    "stack": (lambda x, y: torch.stack([x, y], 1), (X, Y), ""),
    "pad": (lambda x: functional.pad(x, (1, 0, 2, 1), value=7.0), (X,), "aten::constant_pad_nd.out"),
    "pad by reflection": (lambda x: functional.pad(x, (1, 2), mode="reflect"), (X,), ""),
    "pad by repetition": (lambda x: functional.pad(x, (1, 2, 1, 0), mode="replicate"), (IMAGE,), ""),
    "pixel shuffle": (lambda x: functional.pixel_shuffle(x, 2), (IMAGE,), ""),
    "lower triangle": (lambda x: x.tril(-1) + x.triu(1), (X,), ""),
    "index select": (lambda x, i: x.index_select(1, i), (X, INDEX), ""),
    "gather": (lambda x, i: x.gather(1, i), (X, torch.tensor([[[0, 2, 1, 0]], [[1, 1, 0, 2]]])), "aten::gather.out"),
    "index by tensors": (lambda x, i: x[:, i, i], (X, INDEX), "aten::index.Tensor_out"),
    "index from the front": (lambda x, i: x[i.clamp(max=1), 1:], (X, INDEX), "aten::index.Tensor_out"),
    "index put": (lambda x, i, y: x.index_put((i.clamp(max=1),), y), (X, INDEX[:2], Y), "aten::index_put.out"),
    "scatter": (lambda x, i: x.scatter(1, i, 3.0), (X, INDEX.view(1, 3, 1)), "aten::scatter.value_out"),
    "scatter of a tensor": (lambda x, i, y: x.scatter(2, i, y), (X, INDEX.expand(2, 3, 3).contiguous(), Y), ""),
    "scatter add": (lambda x, i, y: x.scatter_add(1, i, y), (X, INDEX.view(1, 3, 1), Y), "aten::scatter_add.out"),
    "slice assignment": (_assign, (X, Y), ""),
    "embedding": (functional.embedding, (INDEX, MATRIX), "aten::embedding.out"),
    "arange": (lambda x: x + torch.arange(4) * torch.arange(1, 9, 2), (X,), ""),
    "new tensors": (lambda x: x + torch.ones_like(x) + torch.zeros(4) + torch.full((3, 1), 2.5), (X,), ""),
    "one hot": (lambda i: functional.one_hot(i, 4), (INDEX,), ""),
    "repeat interleave": (lambda x: x.repeat_interleave(2, 1), (X,), ""),
    # Linear algebra, convolution, pooling, resizing, normalization.
    "matrix product": (lambda x: x @ x.transpose(1, 2), (X,), "aten::bmm.out"),
    "a product over nothing": (lambda x: x[:, :, :0] @ x[:, :, :0].transpose(1, 2), (X,), ""),
    "sorted": (lambda x: x.sort(), (X,), "aten::topk.values"),
    "sorted, stable": (lambda x: x.sort(stable=True, dim=1), (TIED,), "aten::topk.values"),
    "sorted, stable, downwards": (lambda x: x.sort(stable=True, dim=1, descending=True), (TIED,), ""),
    "sorted, stable, integers": (lambda x: x.long().argsort(stable=True, dim=1), (TIED[:, :5],), ""),
    "sorted, stable, one": (lambda x: x.sort(stable=True), (real(3, 1),), ""),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), (real(5), X[0], MATRIX), ""),
    "einsum": (lambda x, m: torch.einsum("bij,jk->bik", x, m), (X, MATRIX), ""),
    "distance": (torch.cdist, (X, Y), ""),
    "convolution": (lambda x, w: functional.conv2d(x, w, stride=2, padding=1, groups=2), (IMAGE, real(4, 2, 3, 3)), ""),
    "convolution, transposed": (
        lambda x, w, b: functional.conv_transpose2d(x, w, b, stride=2, output_padding=1),
        (IMAGE, real(4, 2, 3, 3), real(2)),
        "aten::convolution.out",
    ),
    "convolution, 1-d": (
        lambda x, w: functional.conv1d(x, w, dilation=2),
        (real(1, 4, 9), real(2, 4, 3)),
        "aten::convolution.out",
    ),
    "largest of windows": (lambda x: functional.max_pool2d(x, 3, 2, 1, return_indices=True), (IMAGE,), ""),
    "mean of windows": (
        lambda x: functional.avg_pool2d(x, (2, 3), (2, 1), (1, 1), ceil_mode=True, count_include_pad=False),
        (IMAGE,),
        "aten::avg_pool2d.out",
    ),
    "mean to a size": (lambda x: functional.adaptive_avg_pool2d(x, (4, 3)), (IMAGE,), "aten::_adaptive_avg_pool2d.out"),
    "linear by a vector": (lambda x: functional.linear(x, MATRIX[:, 0]), (X,), "aten::mul.out"),
    "resize": (lambda x: functional.interpolate(x, (9, 5), mode="bilinear"), (IMAGE,), ""),
    "resize, corners aligned": (
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        (IMAGE,),
        "",
    ),
    "resize, nearest": (lambda x: functional.interpolate(x, scale_factor=1.5), (IMAGE,), ""),
    "grid sample": (
        lambda x, g: functional.grid_sample(x, g, align_corners=False),
        (IMAGE, real(1, 3, 3, 2).tanh()),
        "",
    ),
    "layer norm": (lambda x: functional.layer_norm(x, (4,)), (X,), "aten::native_layer_norm.out"),
    "group norm": (lambda x: functional.group_norm(x, 2, eps=1e-3), (IMAGE,), ""),
    "attention": (lambda x, y: functional.scaled_dot_product_attention(x, y, y), (X, Y), ""),
    "no sizes at all": (lambda x: x.sum().reshape(1) * 2 + x.mean().squeeze(), (X,), ""),
    "empty": (lambda x: torch.cat([x[:, :0], x], 1).relu(), (X,), "aten::relu.out"),
    "the input itself": (lambda x, y: (x, y + 1, x), (X, Y), ""),
    "a constant": (lambda x: (x + 1, torch.tensor([1.0, 2.0])), (X,), ""),
    "numbers among the outputs": (lambda x: (x + 1, 3, 2.5, None), (X,), ""),
}


def flat(result: Any) -> list[Any]:
    return list(torch.utils._pytree.tree_leaves(result, is_leaf=lambda item: item is None))


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_an_operator_outside_delegates_computes_what_eager_computes(name: str) -> None:
    function, inputs, kernel = CASES[name]
    expected = flat(function(*inputs))
    program = delegatekit.lower(Call(function), inputs, backends=[])
    used = delegatekit.report(program).methods[0].fallback
    assert not kernel or kernel in used, used
    data = program.buffer  # kept here: the stock runtime holds no reference to the bytes that it runs
    ours = flat(delegatekit.load(data)["forward"](*inputs))
    stock = _C._load_program_from_buffer(data).load_method("forward")(inputs)
    for results in (ours, stock):
        for found, wanted in zip(results, expected, strict=True):
            if isinstance(wanted, torch.Tensor):
                torch.testing.assert_close(found, wanted, equal_nan=True)
            else:
                assert found == wanted


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "no kernel": (torch.linalg.svdvals, (X,), "no kernel"),
    # PyTorch cannot trace its own decomposition of this one.
    "no decomposition": (lambda x: x.diagonal_scatter(torch.ones(3)), (X[0],), "diagonal_scatter"),
    "complex numbers": (torch.fft.rfft, (X,), "is complex"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_runtime_cannot_compute_is_refused_when_lowering(name: str) -> None:
    function, inputs, words = REFUSED[name]
    with pytest.raises(UnsupportedError, match=words):
        _ = delegatekit.lower(Call(function), inputs, backends=[]).buffer


def test_inputs_and_outputs_keep_the_modules_structure() -> None:
    class Structured(nn.Module):
        def forward(self, pair: dict[str, torch.Tensor], *, shift: torch.Tensor) -> dict[str, Any]:
            return {"sum": pair["a"] + pair["b"] + shift, "rest": [pair["a"] * 2, (pair["b"],)]}

    pair = {"a": X, "b": Y}
    program = torch.export.export(Structured(), (pair,), {"shift": X[0]})
    method = delegatekit.load(delegatekit.lower(program, backends=[]).buffer)["forward"]
    result = method({"a": X, "b": Y}, shift=X[0])
    assert set(result) == {"sum", "rest"}
    torch.testing.assert_close(result, Structured()(pair, shift=X[0]))
    with pytest.raises(ExecutionError, match="takes 1 arguments by position, got 3"):
        method(X, Y, X[0])


def test_inputs_may_be_in_any_memory_format() -> None:
    convolution = nn.Conv2d(4, 2, 3)
    method = delegatekit.load(delegatekit.lower(convolution, (IMAGE,), backends=[]).buffer)["forward"]
    expected = convolution(IMAGE)
    wide = torch.zeros(1, 4, 6, 12)
    wide[..., ::2] = IMAGE
    for given in (IMAGE.to(memory_format=torch.channels_last), wide[..., ::2]):
        assert not given.is_contiguous()
        torch.testing.assert_close(method(given), expected)
