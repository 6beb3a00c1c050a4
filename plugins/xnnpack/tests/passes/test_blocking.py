"""Products in blocks: which are split, counted in the blob, and unchanged results in the stock runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import delegatekit
from delegatekit_api import OptionError

#: Weights of the products here are 16 KiB or more.
BLOCK = 4096


class Gated(nn.Module):
    """The feed-forward layer of Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(64, 128, bias=False), nn.Linear(64, 128)
        self.down = nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


def two_layers(activation: nn.Module, *, bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128, bias=bias), activation, nn.Linear(128, 64, bias=bias))


# -- two products ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "activation", [nn.GELU(), nn.ReLU(), nn.ELU(), nn.SiLU(), nn.GELU("tanh"), nn.Identity()], ids=str
)
def test_two_layers_are_computed_block_by_block(activation, bias, matches_eager):
    lowered = matches_eager(two_layers(activation, bias=bias), torch.randn(2, 16, 64), terms=192, block_bytes=BLOCK)
    # 32 KiB each, in blocks of 16 columns.
    assert lowered.nodes["FullyConnected"] == 2 * 8
    assert lowered.nodes["Add"] >= 7
    assert lowered.nodes["Clamp"] == 0


def test_both_halves_of_a_gated_layer_are_cut(matches_eager):
    lowered = matches_eager(Gated(), torch.randn(20, 64), terms=192, block_bytes=BLOCK)
    assert lowered.nodes["FullyConnected"] == 3 * 8


def test_what_stands_beside_the_columns_is_cut_like_them(matches_eager):
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(64, 128), nn.Linear(128, 64)
            self.scale, self.one = nn.Parameter(torch.randn(128)), nn.Parameter(torch.randn(1))
            self.weight, self.slope = nn.Parameter(torch.randn(64, 128)), nn.Parameter(torch.rand(128))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            both = self.first(x) * self.scale + self.one * (x @ self.weight) - 0.5
            return self.last(F.prelu(both, self.slope)).relu()

    lowered = matches_eager(Scaled(), torch.randn(20, 64), terms=512, block_bytes=BLOCK)
    assert lowered.nodes["FullyConnected"] == 3 * 8
    assert lowered.nodes["Clamp"] == 0


@pytest.mark.parametrize(("rows", "blocks"), [(1, 8), (2, 1), (15, 1), (16, 8)])
def test_few_rows_are_left_in_peace(rows, blocks, matches_eager):
    lowered = matches_eager(two_layers(nn.GELU()), torch.randn(rows, 64), terms=192, block_bytes=BLOCK)
    assert lowered.nodes["FullyConnected"] == 2 * blocks


def _returns_the_hidden(layers: nn.Module) -> Callable[..., Any]:
    def function(x: torch.Tensor) -> Any:
        hidden = layers[1](layers[0](x))  # type: ignore[index]
        return layers[2](hidden), hidden  # type: ignore[index]

    return function


def _softmax_between(layers: nn.Module) -> Callable[..., Any]:
    return lambda x: layers[2](layers[0](x).softmax(-1))  # type: ignore[index]


def _adds_an_input(layers: nn.Module) -> Callable[..., Any]:
    return lambda x: layers[2](layers[0](x) + torch.cat([x, x], -1))  # type: ignore[index]


@pytest.mark.parametrize("between", [_returns_the_hidden, _softmax_between, _adds_an_input])
def test_what_is_not_between_two_products_alone_stays_whole(between, matches_eager):
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = two_layers(nn.ReLU())
            self.function = between(self.layers)

        def forward(self, x: torch.Tensor) -> Any:
            return between(self.layers)(x)

    lowered = matches_eager(Whole(), torch.randn(20, 64), terms=192, block_bytes=8 * BLOCK)
    assert lowered.nodes["FullyConnected"] == 2


@pytest.mark.parametrize("block_bytes", [0, 1 << 20])
def test_weights_that_fit_stay_whole(block_bytes, matches_eager):
    lowered = matches_eager(two_layers(nn.ReLU()), torch.randn(20, 64), terms=192, block_bytes=block_bytes)
    assert lowered.nodes["FullyConnected"] == 2


def test_the_option_is_checked(lower_whole):
    with pytest.raises(OptionError, match="block_bytes"):
        lower_whole(nn.ReLU(), torch.randn(2), block_bytes=-1)


def test_rows_that_change(agrees_at_sizes, monkeypatch):
    monkeypatch.setattr("delegatekit_xnnpack.passes.blocking._FEWEST_ROWS", 4)
    layers = nn.Sequential(nn.Linear(768, 1024), nn.ReLU(), nn.Linear(1024, 16), nn.Linear(16, 65536, bias=False))
    rows = torch.export.Dim("rows", min=2, max=40)
    calls = [(torch.randn(count, 768),) for count in (7, 2, 40)]
    agrees_at_sizes(layers, calls, ({0: rows},), terms=2048)


def test_methods_for_one_row_and_for_many_share_their_weights():
    layers = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).eval()
    methods = {
        name: torch.export.export(layers, (torch.randn(1, rows, 512),))
        for name, rows in (("prefill", 64), ("decode", 1))
    }
    both = delegatekit.lower(methods, backends=["xnnpack"]).buffer
    one = delegatekit.lower(methods["prefill"], backends=["xnnpack"]).buffer
    assert len(both) < len(one) + 40_000


# -- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(16, 64), (2, 8, 64), (2, 3, 4, 64)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_large_product_alone_is_a_batch_of_blocks(shape, bias, matches_eager):
    lowered = matches_eager(nn.Linear(64, 144, bias=bias), torch.randn(shape), terms=64, block_bytes=BLOCK)
    assert lowered.nodes["BatchMatrixMultiply"] == 1
    assert lowered.nodes["FullyConnected"] == 0


@pytest.mark.parametrize(("rows", "columns"), [(15, 144), (16, 64), (16, 150), (16, 16 * 23)])
def test_a_product_that_cannot_gain_stays_whole(rows, columns, matches_eager):
    # Too few rows; a small weight; columns that do not fill vectors; a prime number of blocks.
    block_bytes = BLOCK if columns != 16 * 23 else 3 * BLOCK
    lowered = matches_eager(nn.Linear(64, columns), torch.randn(rows, 64), terms=64, block_bytes=block_bytes)
    assert lowered.nodes["FullyConnected"] == 1


def test_a_weight_stored_the_other_way_round(matches_eager):
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 144))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ self.weight).relu()

    lowered = matches_eager(Module(), torch.randn(16, 64), terms=64, block_bytes=BLOCK)
    assert lowered.nodes["BatchMatrixMultiply"] == 1


# -- channels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(32, 96, 3, stride=2, bias=False), nn.Conv2d(32, 192, 2, padding=1)], ids=str
)
def test_a_large_filter_is_cut_into_blocks_of_channels(layer, matches_eager):
    model = nn.Sequential(layer, nn.ReLU6())
    lowered = matches_eager(model, torch.randn(2, 32, 9, 8), terms=300, block_bytes=4 * BLOCK)
    # 108 and 96 KiB in blocks of at most 16: the former's 96 channels are 6 blocks of 16, but 108 / 6 are 18.
    blocks = {96: 1, 192: 6}[layer.out_channels]
    assert lowered.nodes["Conv2d"] == blocks
    assert sum(count for name, count in lowered.nodes.items() if "Concatenate" in name) == (2 if blocks > 1 else 0)
    assert lowered.nodes["Clamp"] == 0


@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (nn.Conv2d(32, 192, 2), 4),
        (nn.Conv2d(64, 384, 2, groups=2), 9),
        (nn.ConvTranspose2d(32, 192, 2), 9),
        (nn.Conv2d(8, 16, 2), 9),
    ],
    ids=str,
)
def test_a_convolution_that_cannot_gain_stays_whole(layer, size, matches_eager):
    # Too few pixels; groups; transposed; a small filter.
    lowered = matches_eager(layer, torch.randn(1, layer.in_channels, size, size), terms=300, block_bytes=4 * BLOCK)
    assert sum(count for name, count in lowered.nodes.items() if "Conv" in name) == 1


def test_channels_of_images_that_change(agrees_at_sizes):
    height = torch.export.Dim("height", min=4, max=12)
    calls = [(torch.randn(1, 256, count, 4),) for count in (7, 4, 12)]
    agrees_at_sizes(nn.Conv2d(256, 512, 3, padding=1), calls, ({2: height},), terms=2304)
