"""The numbers of a quantized module in eager, and those of its file: how far apart they may be, and why.

Weights, biases and scales are the same integers and numbers on both sides. Static schemes: XNNPACK sums integers, eager
float32 numbers; both round the sum to the same integer, unless it is in the middle between two but for the roundings of
such a sum. Scales of each call: float32 sums have another order. And XNNPACK's scale of a row is the inverse of
255 / range, rounded twice, while eager divides the range by 255: an element that is within a few roundings of the
middle between two integers may become the other one.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import delegatekit
from delegatekit_conformance import testkit
from delegatekit_toolkit.accuracy.bounds import ROUNDOFF, tolerance
from delegatekit_xnnpack.schemes import SCHEMES

pytest.importorskip("torchao")

#: Eager's sum and XNNPACK's, each with its own roundings.
SUMS = 2
#: A scale, its inverse and the quotient are rounded on each side.
ROUNDINGS = 6

DYNAMIC = [
    ("int8-dynamic", {}),
    *(("int8-dynamic-int4", {"group_size": size}) for size in (32, 64, 128)),
    ("int8-dynamic-int4-per-channel", {}),
]
#: (rows, inner, columns)
SHAPES = [(1, 128, 64), (5, 384, 33), (17, 1024, 8)]


def quantized(model: nn.Module, inputs: torch.Tensor, scheme: str, **settings: Any) -> Any:
    return delegatekit.quantize(model.eval(), [inputs], backend="xnnpack", scheme=scheme, **settings)


def rows_of(count: int, inner: int) -> torch.Tensor:
    """Rows of different magnitude: of both signs, of one, and zeros."""
    rows = torch.randn(count, inner) * 10.0 ** torch.randint(-6, 6, (count, 1))
    for index, change in enumerate((torch.abs, lambda row: -row.abs(), torch.zeros_like)):
        if count > index + 1:
            rows[index + 1] = change(rows[index + 1])
    return rows


def undecided(rows: torch.Tensor) -> torch.Tensor:
    """Which elements XNNPACK and eager may round to different integers, and the step of each row.

    Near the ends of the range these are also the neighbors of an end that is undecided: the zero point moves with it.
    """
    low, high = rows.amin(1, keepdim=True).clamp(max=0), rows.amax(1, keepdim=True).clamp(min=0)
    step = ((high - low) / 255).double().clamp(min=2.0**-126)
    places = rows.double() / step

    def between(place: torch.Tensor) -> torch.Tensor:
        error = ROUNDINGS * ROUNDOFF["float32"] * place.abs()
        return (place - place.floor() - 0.5).abs() <= error

    found = between(places)
    for end in (low, high):
        place = end.double() / step
        found |= between(place) & ((places - place).abs() <= 1.5)
    return found * step


def bound(layer: nn.Linear, rows: torch.Tensor, wanted: torch.Tensor, grouped: bool) -> torch.Tensor:
    """The largest difference of each row, (rows, 1): that of the sums, and a step for each undecided element."""
    sums = tolerance("float32", "float32", rows.shape[1], SUMS) * wanted.double().abs().amax(1, keepdim=True)
    steps = undecided(rows).sum(1, keepdim=True) * layer.weight.detach().abs().max()
    if not grouped or layer.bias is None:
        return sums + steps
    # XNNPACK has the scale 1 for a row of zeros, and zero points of -128. Of weights in groups their products are
    # summed in float32, by some kernels (seen with AVX-512 VNNI) beside the bias, which keeps the digits of such a sum.
    resting = 128 * layer.weight.detach().abs().sum(1).max() * ROUNDOFF["float32"]
    return sums + steps + ~rows.any(1, keepdim=True) * resting


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("scheme", "settings"), DYNAMIC, ids=str)
def test_rows_of_a_linear_layer_differ_by_the_order_of_sums(scheme, settings, shape):
    count, inner, columns = shape
    for seed in range(2):
        torch.manual_seed(seed)
        layer, rows = nn.Linear(inner, columns, bias=seed > 0), rows_of(count, inner)
        module = quantized(nn.Sequential(layer), rows, scheme, **settings)
        wanted = module(rows).detach()
        lowered = testkit.lower(module, rows, backend="xnnpack")
        (stock,), (own,) = (lowered.run(engine=engine) for engine in (testkit.STOCK, testkit.ENGINE))
        assert torch.equal(stock, own)
        assert ((own - wanted).abs() <= bound(layer, rows, wanted, "group_size" in settings)).all()


def test_every_scheme_with_scales_of_each_call_is_held_to_the_bound():
    assert {scheme for scheme, _ in DYNAMIC} == {scheme.name for scheme in SCHEMES if scheme.kind != "static"}


@pytest.mark.parametrize("size", [32, 64, 128])
def test_scales_of_groups_are_those_of_the_file(size, lower_whole):
    rows = torch.randn(3, 256)
    module = quantized(nn.Sequential(nn.Linear(256, 16)), rows, "int8-dynamic-int4", group_size=size)
    (scales,) = (value for name, value in module.state_dict().items() if name.endswith("_scale"))
    assert torch.equal(scales, scales.bfloat16().float())
    held = [data for data in lower_whole(module, rows).delegate.named_data.values() if len(data) == 2 * scales.numel()]
    assert scales.bfloat16().reshape(-1).view(torch.int16).numpy().tobytes() in held


LAYERS = {
    "linear": (lambda: nn.Linear(300, 24), (9, 300), 300),
    "linear without bias": (lambda: nn.Linear(64, 24, bias=False), (3, 5, 64), 64),
    "convolution": (lambda: nn.Conv2d(6, 16, 3, padding=1), (2, 6, 9, 8), 54),
    "grouped convolution": (lambda: nn.Conv2d(8, 16, 3, groups=2, stride=2), (2, 8, 9, 8), 36),
    "depthwise convolution": (lambda: nn.Conv2d(8, 8, 5, groups=8, padding=2), (2, 8, 9, 8), 25),
    "convolution over time": (lambda: nn.Conv1d(6, 16, 5), (2, 6, 20), 30),
    "transposed convolution": (lambda: nn.ConvTranspose2d(6, 8, 3, stride=2), (2, 6, 5, 4), 54),
}


class Before(torch.fx.Interpreter):
    """Runs a quantized module, and remembers what its last quantize gets."""

    def run_node(self, n: torch.fx.Node) -> Any:
        """The node's result."""
        if "quantize_per_tensor" in str(n.target) and "dequantize" not in str(n.target):
            self.numbers, self.step = self.fetch_args_kwargs_from_env(n)[0][:2]
        return super().run_node(n)


@pytest.mark.parametrize("scheme", [scheme.name for scheme in SCHEMES if scheme.kind == "static"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_integers_give_the_integers_of_eager(name, scheme):
    build, shape, terms = LAYERS[name]
    torch.manual_seed(0)
    inputs = torch.randn(shape)
    module = quantized(nn.Sequential(build(), nn.ReLU()), inputs, scheme)
    lowered = testkit.lower(module, inputs, backend="xnnpack")
    biases = [value.numpy().tobytes() for value in module.state_dict().values() if value.dtype == torch.int32]
    assert len(biases) == ("without bias" not in name) and set(biases) <= set(
        map(bytes, lowered.delegate.named_data.values())
    )
    (stock,), (own,) = (lowered.run(engine=engine) for engine in (testkit.STOCK, testkit.ENGINE))
    assert torch.equal(stock, own)
    before = Before(module)
    wanted = before.run(inputs)
    steps = before.numbers.detach().double() / before.step
    middle = (steps - steps.floor() - 0.5).abs() <= tolerance("float32", "float32", terms, SUMS) * steps.abs().max()
    assert ((own == wanted) | middle).all() and middle.double().mean() < 0.01
    assert ((own - wanted).abs() <= 1.01 * before.step).all()


class Layer(nn.Module):
    """Causal attention and a gated product, after norms, with residual sums."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.attention, self.joined = (nn.Linear(width, size, bias=False) for size in (3 * width, width))
        self.gates, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        attended = F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4).unbind(0), is_causal=True)
        x = x + self.joined(attended.transpose(1, 2).reshape(x.shape))
        gate, up = self.gates(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    """(1, T) tokens -> (1, V) scores of the next one."""

    def __init__(self, layers: int = 4, width: int = 128, words: int = 256, longest: int = 40) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.layers = nn.Sequential(*(Layer(width, 4) for _ in range(layers)), nn.RMSNorm(width))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = self.places.weight[: tokens.shape[1]]
        return self.head(self.layers(self.words(tokens) + places))[:, -1]


def greedy(model: Any, tokens: torch.Tensor, count: int = 32) -> torch.Tensor:
    """The tokens, and the next ones with the best scores."""
    for _ in range(count):
        tokens = torch.cat([tokens, model(tokens).argmax(-1, keepdim=True)], 1)
    return tokens


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int8-dynamic-int4", "int8-dynamic-int4-per-channel"])
def test_a_decoder_chooses_the_tokens_of_eager(scheme):
    torch.manual_seed(3)  # another token is chosen if the file's scales of groups are not eager's
    model, example = Decoder(), torch.randint(0, 256, (1, 20))
    shapes = ({1: torch.export.Dim("length", min=2, max=40)},)
    module = quantized(model, example, scheme, dynamic_shapes=shapes)
    lowered = testkit.lower(module, example, backend="xnnpack", dynamic_shapes=shapes, whole=False)
    stock, own, start = testkit.stock.load(lowered.buffer), delegatekit.load(lowered.buffer)["forward"], example[:, :4]
    with torch.no_grad():
        wanted = greedy(module, start)
    assert torch.equal(greedy(own, start), wanted)
    assert torch.equal(greedy(lambda tokens: stock((tokens,))[0], start), wanted)
