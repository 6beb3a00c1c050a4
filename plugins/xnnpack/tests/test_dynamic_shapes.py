"""Sizes that change from call to call: each operator and whole models, in one delegate, at sizes that grow and shrink.

The reference is PyTorch in double precision; both the stock runtime and the Python engine run every call.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import delegatekit
from delegatekit import pte
from delegatekit_api import ExecutionError
from delegatekit_xnnpack.blob import reader

torch.manual_seed(0)

B, T = Dim("b", min=1, max=4), Dim("t", min=1, max=12)
#: The example first, then the largest, the smallest, one axis at a time, and again.
SIZES = [(2, 5), (4, 12), (1, 1), (3, 12), (4, 2), (1, 7), (4, 12), (1, 1)]
TOKENS = [(torch.randn(b, t, 16),) for b, t in SIZES]
BOTH = {"arguments": ({0: B, 1: T},)}


def heads(x, count=4):
    """(batch, length, features) as (batch, heads, length, width)."""
    return x.view(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def merged(x):
    """The inverse of `heads`."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def like(x, constant):
    """The constant in the precision of x."""
    return constant.to(x.dtype)


WEIGHT, BIAS, WIDE = torch.randn(3, 16), torch.randn(3), torch.randn(16, 1280)

#: One input (b, t, 16), of which b and t change.
OPERATORS = {
    "unary": lambda x: x.exp().tanh(),
    "clamp": lambda x: x.clamp(-1.0, 0.5),
    "functions of several nodes": lambda x: F.mish(x) + F.softplus(x) + x.log_softmax(-1) + x.logsumexp(2, True),
    "steps": lambda x: x.round() + x.sign() + F.threshold(x, 0.5, 3.0) + torch.div(x, 3.0, rounding_mode="floor"),
    "mean of everything": lambda x: x - x.mean(),
    "selections of features": lambda x: -x.flip(2)[:, :, [3, 1, 2]] + x.slice_scatter(2 * x[..., :3], 2, 4, 7)[..., :3],
    "constant mask": lambda x: x.masked_fill(torch.arange(16) > 9, -math.inf).softmax(2),
    "add of a constant": lambda x: x + torch.arange(16.0),
    "product with itself": lambda x: x.unsqueeze(2) * x.unsqueeze(3),
    "broadcast over the batch": lambda x: x * x[:1],
    "prelu": lambda x: F.prelu(x.transpose(1, 2), like(x, torch.linspace(0.1, 0.4, 16))),
    "glu": lambda x: F.glu(x, 2),
    "linear": lambda x: F.linear(x, like(x, WEIGHT), like(x, BIAS)),
    "linear over joined rows": lambda x: F.linear(x.reshape(-1, 16), like(x, WEIGHT)).view(*x.shape[:2], 3),
    "product over joined rows": lambda x: (x.reshape(-1, 16) @ like(x, WEIGHT.T)).view(*x.shape[:2], 3) + x[..., :3],
    "addmm over joined rows": lambda x: (
        torch.addmm(like(x, BIAS), x.reshape(-1, 16), like(x, WEIGHT.T)).view(*x.shape[:2], 3).relu()
    ),
    "addmm with a bias for each row": lambda x: torch.addmm(x[0, :, :3], x[0], like(x, WEIGHT.T)),
    "computed weight": lambda x: F.linear(x, x[0, :1] * 2),
    "matmul with itself": lambda x: x @ x.mT,
    "matmul with a vector": lambda x: x @ like(x, torch.arange(16.0)),
    "bmm": lambda x: torch.bmm(x.mT, x),
    "attention": lambda x: merged(F.scaled_dot_product_attention(heads(x + 1), heads(x * 2), heads(x))),
    "softmax": lambda x: x.softmax(-1),
    "softmax over the length": lambda x: x.softmax(1),
    "softmax over the batch": lambda x: x.softmax(0),
    "mean": lambda x: x.mean(-1),
    "mean over the length": lambda x: x.mean(1),
    "mean over the length, kept": lambda x: x - x.mean(1, keepdim=True),
    "mean over the batch": lambda x: x.mean(0),
    "mean over batch and length": lambda x: x.mean((0, 1)),
    "mean over length and features": lambda x: x.mean((1, 2)),
    "mean over all, kept": lambda x: x.mean((0, 1, 2), keepdim=True),
    "mean of four axes": lambda x: heads(x).mean(2),
    "sum": lambda x: x.sum(-1),
    "sum over a middle axis": lambda x: heads(x).neg().sum(1),
    "variance": lambda x: x.var(-1),
    "variance over the length": lambda x: x.var(1, correction=0),
    "maximum": lambda x: x.amax(-1),
    "maximum over a middle axis": lambda x: (x.unsqueeze(2) * torch.ones(3, 1)).amax((2, 3), keepdim=True),
    "minimum": lambda x: heads(x).amin(1),
    "layer norm": lambda x: F.layer_norm(x, (16,), like(x, WEIGHT[0]), like(x, WEIGHT[1])),
    "layer norm over two axes": lambda x: F.layer_norm(x.view(x.shape[0], x.shape[1], 2, 8), (2, 8)),
    "layer norm of wide rows": lambda x: F.layer_norm(x @ like(x, WIDE), (1280,)),
    "group norm": lambda x: F.group_norm(x.mT, 4, like(x, WEIGHT[0])),
    "permutation": lambda x: x.permute(2, 1, 0) * 2,
    "split into heads": lambda x: heads(x) * 2,
    "merge of heads": lambda x: merged(heads(x).neg()),
    "merge in another order": lambda x: x.view(*x.shape[:2], 2, 8).neg().mT.reshape(*x.shape[:2], 16) + 1,
    "other groups": lambda x: x.view(*x.shape[:2], 2, 8).neg().view(*x.shape[:2], 4, 1, 4).abs(),
    "rows joined": lambda x: x.exp().flatten(0, 1).abs(),
    "all joined": lambda x: x.exp().flatten().abs(),
    "squeeze and unsqueeze": lambda x: (x.unsqueeze(1) * 2).squeeze(1) * x,
    "attention of PyTorch's module": lambda x: (
        x.transpose(0, 1).reshape(x.shape[1], x.shape[0] * 4, 4).transpose(0, 1).reshape(x.shape[0], 4, -1, 4) * 2
    ),
    "expand": lambda x: x.unsqueeze(1).expand(-1, 5, -1, -1) * 2,
    "repeat along the length": lambda x: x.exp().repeat(1, 3, 1),
    "repeat along a new axis": lambda x: x.exp().repeat(2, 1, 1, 1),
    "slice of features": lambda x: x[:, :, 2:7] * 1.5,
    "slice with a step": lambda x: x[:, :, 1::2] * 2,
    "first element": lambda x: x.exp()[:, :1] * 2,
    "select the first": lambda x: x.exp()[:, 0] * 2,
    "split": lambda x: [part * 2 for part in x.split([3, 12, 1], -1)],
    "unbind": lambda x: [part * 2 for part in x.view(*x.shape[:2], 4, 4).unbind(2)],
    "index_select": lambda x: x.index_select(2, torch.tensor([3, 1, 2, 0])) + x[..., :4],
    "cat of features": lambda x: torch.cat([x, x * 2, x + 1, -x, x * 3, x - 1], 2),
    "cat along the length": lambda x: torch.cat([x, x * 2], 1),
    "cat with a constant": lambda x: torch.cat([x.mean(0), torch.ones(2, 16)], 0),
    "stack": lambda x: torch.stack([x, -x], 2),
    "pad": lambda x: F.pad(x.exp(), (1, 2, 3, 0), value=0.5),
    "cut at the front": lambda x: F.pad(x.exp(), (-2, 1)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_agrees_at_every_size(agrees_at_sizes, name):
    agrees_at_sizes(OPERATORS[name], TOKENS, BOTH, terms=1280)


LONG = Dim("long", min=4, max=12)
LONGER = [(torch.randn(2, t, 16),) for t in (6, 12, 4, 5, 12, 4)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.exp()[:, 2:] * 2,  # to the end
        lambda x: x.exp()[:, 1:4] * 2,  # within the smallest
        lambda x: x.exp()[:, 3] * 2,
        lambda x: F.pad(x.exp(), (0, 0, -3, 2)),
        lambda x: x.exp().index_select(1, torch.tensor([3, 0, 1])) * 2,
    ],
)
def test_slices_of_an_axis_that_changes(agrees_at_sizes, function):
    agrees_at_sizes(function, LONGER, {"arguments": ({1: LONG},)})


H, W = Dim("h", min=4, max=12), Dim("w", min=4, max=10)
IMAGES = [
    (torch.randn(b, 3, 2 * h, 2 * w),)
    for b, h, w in [(2, 8, 8), (4, 12, 10), (1, 4, 4), (3, 4, 10), (4, 12, 10), (1, 5, 9)]
]

#: A batch of images (b, 3, 2h, 2w), all of which change.
FEATURE_MAPS = {
    "convolution": nn.Conv2d(3, 4, 3, stride=2, padding=1),
    "depthwise": nn.Conv2d(3, 6, 3, padding=1, dilation=2, groups=3),
    "transposed": nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
    "folded padding": nn.Sequential(nn.ZeroPad2d((0, 1, 2, 0)), nn.Conv2d(3, 4, 3), nn.ReLU6()),
    "maximum pooling": nn.MaxPool2d(3, 2, 1),
    "average pooling": nn.AvgPool2d(3, 2, 1),
    "average pooling, padding not counted": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "global pooling": nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "nearest": nn.Upsample(scale_factor=2, mode="nearest"),
    "group norm": nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4)),
    "batch norm": nn.Sequential(nn.ReLU(), nn.BatchNorm2d(3)),
    "squeeze and excitation": nn.Sequential(nn.Conv2d(3, 4, 1), nn.Hardswish()),
    "softmax over channels": nn.Sequential(nn.Conv2d(3, 4, 1), nn.Softmax(1)),
    "instance norm": nn.InstanceNorm2d(3, affine=True),
}


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_a_feature_map_operator_agrees_at_every_size(agrees_at_sizes, name):
    agrees_at_sizes(FEATURE_MAPS[name], IMAGES, {"input": {0: B, 2: 2 * H, 3: 2 * W}}, terms=480)


def test_resizing_to_a_known_size_agrees_at_every_size(agrees_at_sizes):
    # Source positions up to 24 are rounded to float32, and pixels differ by up to 8: 24 * 8 * 2^-24, as 2300 terms.
    module = nn.Upsample(size=(9, 7), mode="bilinear")
    agrees_at_sizes(module, IMAGES, {"input": {0: B, 2: 2 * H, 3: 2 * W}}, terms=2300)


@pytest.mark.parametrize(
    "module",
    [
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.AdaptiveAvgPool2d((2, 4)),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.PixelShuffle(2),
        nn.MaxPool2d(2),
    ],
)
def test_with_a_changing_batch_the_rest_is_as_ever(agrees_at_sizes, module):
    calls = [(torch.randn(b, 4, 8, 12),) for b in (2, 4, 1, 3, 4, 1)]
    agrees_at_sizes(nn.Sequential(nn.Conv2d(4, 4, 1), module), calls, {"input": {0: B}}, terms=8)


def test_one_dimensional_feature_maps(agrees_at_sizes):
    net = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.GELU(), nn.BatchNorm1d(4), nn.AvgPool1d(2))
    calls = [(torch.randn(b, 3, 4 * n),) for b, n in ((2, 5), (4, 9), (1, 1), (3, 9), (4, 1), (1, 4))]
    agrees_at_sizes(net, calls, {"input": {0: B, 2: 4 * Dim("n", min=1, max=9)}}, terms=9)


# -- models ------------------------------------------------------------------------------------------------------------


def test_a_perceptron_with_a_changing_batch(agrees_at_sizes):
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4), nn.Softmax(-1))
    agrees_at_sizes(net, [(torch.randn(b, 16),) for b in (2, 4, 1, 3, 4, 1)], {"input": {0: B}}, terms=64)


@pytest.mark.parametrize("changing", [{0: B}, {1: T}, {0: B, 1: T}])
@pytest.mark.parametrize("options", [{"batch_first": True}, {"norm_first": True, "activation": "gelu"}])
def test_an_encoder_layer(agrees_at_sizes, changing, options):
    layer = nn.TransformerEncoderLayer(16, 2, 32, **options)
    shapes = [(b if 0 in changing else 2, t if 1 in changing else 5, 16) for b, t in SIZES]
    if "batch_first" not in options:
        shapes, changing = [(t, b, d) for b, t, d in shapes], {1 - axis: dim for axis, dim in changing.items()}
    agrees_at_sizes(layer, [(torch.randn(shape),) for shape in shapes], {"src": changing}, terms=128)


def test_a_decoder_layer_over_a_memory_of_another_length(agrees_at_sizes):
    layer = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True)
    lengths = (3, 9, 1, 2, 9, 1, 5, 9)
    calls = [(torch.randn(b, t, 16), torch.randn(b, s, 16)) for (b, t), s in zip(SIZES, lengths, strict=True)]
    shapes = {"tgt": {0: B, 1: T}, "memory": {0: B, 1: Dim("s", min=1, max=9)}}
    agrees_at_sizes(layer, calls, shapes, terms=256)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, stride=2)
        self.norm, self.up, self.last = nn.GroupNorm(4, 8), nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(24, 3, 1)

    def forward(self, x):
        fine = self.first(x).relu()
        coarse = F.silu(self.norm(self.down(fine)))
        return self.last(torch.cat([fine, F.interpolate(coarse, scale_factor=2.0), self.up(coarse)], 1))


def test_a_u_net_with_changing_images(agrees_at_sizes):
    agrees_at_sizes(UNet(), IMAGES, {"x": {0: B, 2: 2 * H, 3: 2 * W}}, terms=960)


def test_a_convolutional_classifier_with_changing_images(agrees_at_sizes):
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, stride=2),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )
    agrees_at_sizes(net, IMAGES, {"input": {0: B, 2: 2 * H, 3: 2 * W}}, terms=480)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.sum(1), "a reduction over 1..12 elements, a number that changes"),
        (lambda x: x.var(1), "correction 1 of 1..12 elements, a number that changes"),
        (lambda x: x.amax(1), "a reduction over 1..12 elements"),
        (lambda x: x[:, -1], "counted from the end of an axis that changes"),
        (lambda x: x * x.shape[1], "a number that is computed from sizes"),
        (lambda x: x[:, :1].expand(-1, x.shape[0], -1), "which changes from call to call"),
        (lambda x: x.permute(1, 0, 2).reshape(x.shape[1], -1, 4).softmax(1), "are joined"),
        (lambda x: x.view(*x.shape[:2], 2, 2, 2, 2).mean((1, 3, 5)), "reduces them in pairs"),
    ],
)
def test_what_xnnpack_cannot_do_is_refused(refusals, function, reason):
    found = refusals(function, TOKENS[0][0], dynamic_shapes=BOTH)
    assert any(reason in text for text in found), found


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x[:, : x.shape[1] // 2], "XNNPACK's slices end at a fixed place"),
        (lambda x: x[:, x.shape[1] // 2 :], "begins at a place that changes"),
        (lambda x: x[:, 2:], "may have no elements"),
        (lambda x: x[:, ::2], "XNNPACK's slices end at a fixed place"),
        (lambda x: F.pad(x, (0, 0, 0, -1)), "XNNPACK's slices end at a fixed place"),
        (lambda x: F.glu(x, 1), "is not at a known place"),
        (lambda x: F.layer_norm(x, x.shape[1:]), "a number that is computed from sizes"),
        (lambda x: x.index_select(1, torch.tensor([0, 3])), "index 3 has no fixed place in every call"),
        (lambda x: x[:, torch.tensor([0, -1])], "index -1 has no fixed place in every call"),
    ],
)
def test_places_on_an_axis_that_changes_must_be_known(refusals, function, reason):
    found = refusals(function, torch.randn(2, 6, 16), dynamic_shapes={"arguments": ({1: 2 * Dim("half", max=6)},)})
    assert any(reason in text for text in found), found


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.MaxPool2d(3, 2, ceil_mode=True), "ceil_mode where the size changes"),
        (nn.AdaptiveAvgPool2d((2, 2)), "needs windows that change"),
        (nn.Upsample(scale_factor=2, mode="bilinear"), "XNNPACK resizes to a fixed size"),
        (nn.Upsample(size=(24, 20)), "not whole repetitions"),
    ],
)
def test_what_xnnpack_cannot_do_with_changing_images_is_refused(refusals, module, reason):
    found = refusals(module, IMAGES[0][0], dynamic_shapes={"input": {2: 2 * H, 3: 2 * W}})
    assert any(reason in text for text in found), found


def test_repeating_pixels_of_channels_that_change_with_the_batch_is_refused(refusals):
    shapes = {"input": {0: Dim("n", min=1, max=4), 1: Dim("c", min=1, max=9)}}
    found = refusals(nn.Upsample(scale_factor=2), torch.randn(2, 3, 4, 5), dynamic_shapes=shapes)
    assert any("the channels and another size change" in text for text in found), found


def test_views_that_need_each_other_are_refused_together(refusals):
    """Without permutations, nothing can split again what the first view of attention joins."""
    function = OPERATORS["attention of PyTorch's module"]
    assert refusals(function, TOKENS[0][0], dynamic_shapes=BOTH) == []
    found = refusals(function, TOKENS[0][0], dynamic_shapes=BOTH, leave_out=frozenset({"permute_copy"}))
    assert [reason for reason in found if "left out" not in reason]
    assert all("left out" in reason or "which goes with it" in reason for reason in found)


def test_one_delegate_for_each_operator_runs_the_same(agrees_at_sizes):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    exported = torch.export.export(layer, TOKENS[0], dynamic_shapes={"src": {0: B, 1: T}}, strict=False)
    options = {"xnnpack": {"per_operator_partitions": True}}
    program = delegatekit.lower(exported, backends=["xnnpack"], options=options)
    assert len(delegatekit.report(program).methods[0].delegates) > 10
    method = delegatekit.load(program.buffer)["forward"]
    for (x,) in TOKENS:
        torch.testing.assert_close(method(x), layer(x).detach(), rtol=1e-5, atol=1e-5)


def test_what_is_refused_runs_beside_the_delegate():
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU())
    exported = torch.export.export(_Pooled(model), TOKENS[0], dynamic_shapes={"x": {0: B, 1: T}})
    program = delegatekit.lower(exported, backends=["xnnpack"])
    assert delegatekit.report(program).methods[0].delegates and delegatekit.report(program).methods[0].fallback
    method = delegatekit.load(program.buffer)["forward"]
    for (x,) in TOKENS:
        torch.testing.assert_close(method(x), _Pooled(model)(x).detach())


class _Pooled(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return self.layers(x).sum(1) * 2


# -- the blob, and calls that are refused ------------------------------------------------------------------------------


def test_a_static_program_and_one_with_one_changing_size_have_the_same_nodes(agrees_at_sizes):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    counts = []
    for changing in (None, {"src": {1: T}}):
        exported = torch.export.export(layer.eval(), TOKENS[0], dynamic_shapes=changing)
        file = pte.read(delegatekit.lower(exported, backends=["xnnpack"]).buffer)
        (delegate,) = file.program.execution_plan[0].delegates
        counts.append([type(node.xnode_union).__name__ for node in reader.parse(file.delegate_blob(delegate)).xnodes])
    assert counts[0] == counts[1]


def test_a_call_without_elements_is_refused():
    exported = torch.export.export(nn.Conv1d(3, 2, 1), (torch.randn(2, 3, 4),), dynamic_shapes=({0: Dim("b", max=4)},))
    method = delegatekit.load(delegatekit.lower(exported, backends=["xnnpack"]).buffer)["forward"]
    with pytest.raises(ExecutionError, match=r"(?s)an input has no elements.*without XNNPACK"):
        method(torch.randn(0, 3, 4))
    assert method(torch.randn(4, 3, 4)).shape == (4, 2, 4)


# -- supported calls can be lowered ------------------------------------------------------------------------------------


@st.composite
def _chains(draw):
    """Steps of a chain over an input (b, t, 2, 6). Axes are lists of factors: "b", "t" and numbers."""
    axes, steps = [["b"], ["t"], [2], [2, 3]], []
    for _ in range(draw(st.integers(2, 7))):
        kind = draw(st.sampled_from(["permute", "join", "cut", "unit", "negate", "negate", "reduce", "rows"]))
        axis = draw(st.integers(0, len(axes) - 1))
        if kind == "permute":
            order = draw(st.permutations(range(len(axes))))
            axes = [axes[at] for at in order]
            steps.append((kind, order))
            continue
        if kind == "join" and axis + 1 < len(axes):
            axes[axis : axis + 2] = [axes[axis] + axes[axis + 1]]
        elif kind == "cut" and len(axes[axis]) > 1 and len(axes) < 5:
            at = draw(st.integers(1, len(axes[axis]) - 1))
            axes[axis : axis + 1] = [axes[axis][:at], axes[axis][at:]]
        elif kind == "unit" and len(axes) < 5:
            axes.insert(axis, [])
        elif kind == "reduce" and len(axes) > 1:
            keep, what = draw(st.booleans()), draw(st.sampled_from(["mean", "amax", "softmax", "normal"]))
            steps.append((what, (axis, keep)))
            if what in ("mean", "amax"):
                axes[axis : axis + 1] = [[]] if keep else []
            continue
        elif kind == "rows" and axes[-1] and not {"b", "t"} & set(axes[-1]):
            steps.append((kind, math.prod(axes[-1])))
            axes[-1] = [4]
            continue
        else:
            steps.append(("negate", None))
            continue
        steps.append(("view", [list(factors) for factors in axes]))
    return steps


class _Chain(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, x):
        sizes = {"b": x.shape[0], "t": x.shape[1]}
        for kind, detail in self.steps:
            if kind == "permute":
                x = x.permute(*detail)
            elif kind == "view":
                x = x.reshape([math.prod(sizes.get(factor, factor) for factor in factors) for factors in detail])
            elif kind == "negate":
                x = -x
            elif kind == "rows":
                x = F.linear(x, torch.arange(4.0 * detail, dtype=x.dtype).reshape(4, detail) / detail)
            elif kind == "softmax":
                x = x.softmax(detail[0])
            elif kind == "normal":
                x = x - x.mean(detail[0], keepdim=True)
            else:
                x = getattr(x, kind)(*detail)
        return x


@given(_chains())
@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_chain_is_taken_in_pieces_that_can_be_lowered(steps):
    module = _Chain([("negate", None), *steps])
    calls = [torch.randn(b, t, 2, 6) for b, t in ((2, 5), (3, 7), (1, 1), (3, 2), (1, 7))]
    changing = {"x": {0: Dim("b", min=1, max=3), 1: Dim("t", min=1, max=7)}}
    try:
        exported = torch.export.export(module, (calls[0],), dynamic_shapes=changing)
    except torch._dynamo.exc.UserError:
        assume(False)  # PyTorch cannot export it
    method = delegatekit.load(delegatekit.lower(exported, backends=["xnnpack"]).buffer)["forward"]
    for x in calls:
        torch.testing.assert_close(method(x).double(), module(x.double()), rtol=1e-5, atol=1e-5)
