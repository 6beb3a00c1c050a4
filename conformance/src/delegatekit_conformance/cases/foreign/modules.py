"""Modules that stock's compilers lower: operators that they keep whole, or write in forms of their own.

A builder uses nothing but torch: its text is the snippet that a report shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn

from ..subjects import Built
from . import language
from .subjects import Module


def _recurrent_lstm() -> Built:
    """Long short-term memory over two steps."""
    return nn.LSTM(3, 4), [(torch.randn(2, 2, 3),)]


def _recurrent_lstm_both_ways() -> Built:
    """Two layers of long short-term memory in both directions, the batch first."""
    return nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True), [(torch.randn(2, 2, 3),)]


def _recurrent_lstm_without_biases() -> Built:
    """Long short-term memory without biases."""
    return nn.LSTM(3, 4, bias=False), [(torch.randn(2, 2, 3),)]


def _recurrent_lstm_from_a_state() -> Built:
    """Long short-term memory in both directions from a given state, whose last states are used."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(3, 4, bidirectional=True)

        def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
            states, (last, cell) = self.layer(x, (h, c))
            return states, last * 2, cell + 1

    return Model(), [(torch.randn(2, 2, 3), torch.randn(2, 2, 4), torch.randn(2, 2, 4))]


def _recurrent_gru() -> Built:
    """Gated recurrent units over two steps."""
    return nn.GRU(3, 4), [(torch.randn(2, 2, 3),)]


def _recurrent_gru_both_ways() -> Built:
    """Gated recurrent units in both directions."""
    return nn.GRU(3, 4, bidirectional=True), [(torch.randn(2, 2, 3),)]


def _recurrent_rnn() -> Built:
    """A plain recurrent layer with tanh in both directions."""
    return nn.RNN(3, 4, bidirectional=True), [(torch.randn(2, 2, 3),)]


def _recurrent_rnn_relu() -> Built:
    """A plain recurrent layer with ReLU."""
    return nn.RNN(3, 4, nonlinearity="relu"), [(torch.randn(2, 2, 3),)]


def _normalization_instance_norm() -> Built:
    """Instance normalization of images with weights."""
    return nn.InstanceNorm2d(4, affine=True), [(torch.randn(2, 4, 5, 6),)]


def _normalization_instance_norm_of_signals() -> Built:
    """Instance normalization of signals without weights."""
    return nn.InstanceNorm1d(4, eps=0.01), [(torch.randn(2, 4, 7),)]


def _apart_local_response_norm() -> Built:
    """Local response normalization over three channels."""
    return nn.LocalResponseNorm(3, 0.5, 0.7, 1.5), [(torch.randn(2, 4, 5, 6),)]


def _normalization_group_norm() -> Built:
    """Group normalization in two groups."""
    return nn.GroupNorm(2, 4), [(torch.randn(2, 4, 5, 6),)]


def _normalization_layer_norm() -> Built:
    """Layer normalization over two dimensions."""
    return nn.LayerNorm((5, 6)), [(torch.randn(2, 4, 5, 6),)]


def _apart_rms_norm() -> Built:
    """Root mean square normalization."""
    return nn.RMSNorm(6, eps=0.01), [(torch.randn(2, 4, 5, 6),)]


def _normalization_batch_norm() -> Built:
    """Batch normalization with statistics of its own."""
    layer = nn.BatchNorm2d(4)
    layer.running_mean = torch.randn(4)
    layer.running_var = torch.rand(4) + 0.5
    return layer, [(torch.randn(2, 4, 5, 6),)]


def _normalization_unit_vectors() -> Built:
    """Vectors of length one in two norms."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.normalize(x, dim=1), nn.functional.normalize(x, p=1.0, dim=-1)

    return Model(), [(torch.randn(2, 4, 5, 6),)]


def _normalization_channels() -> Built:
    """Layer normalization over the channels of images, written out."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            centred = x - x.mean(1, keepdim=True)
            variance = (centred * centred).mean(1, keepdim=True)
            return centred * torch.rsqrt(variance + 0.1)

    return Model(), [(torch.randn(2, 16, 3, 5),)]


def _images_nearest() -> Built:
    """Nearest neighbors of twice and thrice the size."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.interpolate(x, scale_factor=(2.0, 3.0), mode="nearest")

    return Model(), [(torch.randn(2, 4, 5, 6),)]


def _images_nearest_of_a_size() -> Built:
    """Nearest neighbors of sizes that are no multiple."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.interpolate(x, size=(7, 4), mode="nearest")

    return Model(), [(torch.randn(2, 4, 5, 6),)]


def _images_bilinear() -> Built:
    """Bilinear resizing in both kinds of alignment."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return (
                nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False),
                nn.functional.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True),
            )

    return Model(), [(torch.randn(2, 4, 5, 6),)]


def _images_signals_resized() -> Built:
    """Nearest neighbors of signals."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")

    return Model(), [(torch.randn(2, 3, 5),)]


def _apart_shuffled() -> Built:
    """Pixels to channels and back."""
    return nn.Sequential(nn.PixelUnshuffle(2), nn.ReLU(), nn.PixelShuffle(2)), [(torch.randn(2, 4, 6, 4),)]


def _images_sampled_bilinear_zeros() -> Built:
    """Samples at given places: bilinear, zeros outside."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return nn.functional.grid_sample(x, y, "bilinear", "zeros", False)

    return Model(), [
        (
            torch.randn(2, 4, 5, 6),
            torch.rand(2, 3, 4, 2) * 2.4 - 1.2,
        )
    ]


def _images_sampled_bilinear_border() -> Built:
    """Samples at given places: bilinear, border outside."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return nn.functional.grid_sample(x, y, "bilinear", "border", True)

    return Model(), [
        (
            torch.randn(2, 4, 5, 6),
            torch.rand(2, 3, 4, 2) * 2.4 - 1.2,
        )
    ]


def _images_sampled_bilinear_reflection() -> Built:
    """Samples at given places: bilinear, reflection outside."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return nn.functional.grid_sample(x, y, "bilinear", "reflection", True)

    return Model(), [
        (
            torch.randn(2, 4, 5, 6),
            torch.rand(2, 3, 4, 2) * 2.4 - 1.2,
        )
    ]


def _images_sampled_nearest_zeros() -> Built:
    """Samples at given places: nearest, zeros outside."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return nn.functional.grid_sample(x, y, "nearest", "zeros", False)

    return Model(), [
        (
            torch.randn(2, 4, 5, 6),
            torch.rand(2, 3, 4, 2) * 2.4 - 1.2,
        )
    ]


def _images_sampled_nearest_border() -> Built:
    """Samples at given places: nearest, border outside."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return nn.functional.grid_sample(x, y, "nearest", "border", True)

    return Model(), [
        (
            torch.randn(2, 4, 5, 6),
            torch.rand(2, 3, 4, 2) * 2.4 - 1.2,
        )
    ]


def _images_sampled_nearest_reflection() -> Built:
    """Samples at given places: nearest, reflection outside."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return nn.functional.grid_sample(x, y, "nearest", "reflection", True)

    return Model(), [
        (
            torch.randn(2, 4, 5, 6),
            torch.rand(2, 3, 4, 2) * 2.4 - 1.2,
        )
    ]


def _padding_constants() -> Built:
    """A border of constants, of different widths, also at the first dimension."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.pad(x, (1, 2, 0, 3, 2, 1), value=-1.5)

    return Model(), [(torch.randn(2, 4, 5, 6),)]


def _padding_reflected() -> Built:
    """A border of reflected elements."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.pad(x, (1, 2, 3, 0), mode="reflect")

    return Model(), [(torch.randn(2, 4, 5, 6),)]


def _padding_repeated() -> Built:
    """A border of repeated elements."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.pad(x, (1, 2, 3, 0), mode="replicate")

    return Model(), [(torch.randn(2, 4, 5, 6),)]


def _apart_around() -> Built:
    """A border of the elements at the other end."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.pad(x, (1, 2, 1, 0), mode="circular")

    return Model(), [(torch.randn(2, 4, 5, 6),)]


def _apart_cut() -> Built:
    """A border of negative width."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.pad(x, (-1, 1, 2, -2))

    return Model(), [(torch.randn(2, 4, 5, 6),)]


def _convolutions_same_padding() -> Built:
    """As large as the input, with an even kernel."""
    return nn.Conv2d(4, 3, (3, 4), padding="same"), [(torch.randn(2, 4, 5, 6),)]


def _convolutions_strides() -> Built:
    """Strides, dilations, groups."""
    return nn.Conv2d(4, 6, 3, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2), [(torch.randn(2, 4, 5, 6),)]


def _convolutions_depthwise() -> Built:
    """A kernel for each channel."""
    return nn.Conv2d(4, 8, 3, padding=1, groups=4, bias=False), [(torch.randn(2, 4, 5, 6),)]


def _convolutions_signals() -> Built:
    """Of signals."""
    return nn.Conv1d(4, 5, 3, stride=2, padding=2), [(torch.randn(2, 4, 9),)]


def _convolutions_volumes() -> Built:
    """Of volumes."""
    return nn.Conv3d(2, 3, (2, 3, 1), padding=(1, 0, 1)), [(torch.randn(1, 2, 3, 4, 5),)]


def _convolutions_transposed() -> Built:
    """Transposed, with a border that is cut and one that is added."""
    return nn.ConvTranspose2d(4, 3, 4, stride=3, padding=2, output_padding=1), [(torch.randn(2, 4, 5, 6),)]


def _convolutions_transposed_groups() -> Built:
    """Transposed, with groups and different borders."""
    return nn.ConvTranspose2d(4, 6, (3, 2), stride=(1, 2), padding=(0, 1), groups=2), [(torch.randn(2, 4, 5, 6),)]


def _convolutions_transposed_signals() -> Built:
    """Transposed, of signals."""
    return nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1), [(torch.randn(2, 4, 5),)]


def _apart_largest() -> Built:
    """The largest, with borders and dilation."""
    return nn.MaxPool2d(3, 2, 1, 2), [(torch.randn(2, 3, 9, 8),)]


def _pooling_largest_overhang() -> Built:
    """The largest of windows that reach beyond the end."""
    return nn.MaxPool2d(3, 2, ceil_mode=True), [(torch.randn(2, 3, 8, 7),)]


def _pooling_mean() -> Built:
    """The mean, borders counted."""
    return nn.AvgPool2d(3, 2, 1), [(torch.randn(2, 3, 8, 7),)]


def _pooling_mean_inside() -> Built:
    """The mean, borders not counted."""
    return nn.AvgPool2d((3, 2), 2, (1, 0), count_include_pad=False), [(torch.randn(2, 3, 8, 7),)]


def _pooling_mean_overhang() -> Built:
    """The mean of windows that reach beyond the end."""
    return nn.AvgPool2d(3, 2, ceil_mode=True), [(torch.randn(2, 3, 8, 7),)]


def _pooling_signals_and_all() -> Built:
    """Of signals, and of all."""
    return nn.Sequential(nn.MaxPool1d(2, 2), nn.AdaptiveAvgPool1d(1)), [(torch.randn(2, 3, 8),)]


def _pooling_volumes() -> Built:
    """Of volumes."""
    return nn.Sequential(nn.MaxPool3d(2, 1), nn.AvgPool3d(2, 1)), [(torch.randn(1, 2, 4, 4, 5),)]


def _pooling_adaptive() -> Built:
    """To a size that divides the image's."""
    return nn.AdaptiveAvgPool2d((2, 3)), [(torch.randn(2, 3, 4, 6),)]


def _attention_plain() -> Built:
    """Attention of queries, keys and values."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v)

    return Model(), [(*(torch.randn(1, 2, 5, 8) for _ in range(3)),)]


def _attention_causal() -> Built:
    """Causal attention."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return Model(), [(*(torch.randn(1, 2, 5, 8) for _ in range(3)),)]


def _attention_masked() -> Built:
    """Attention with a mask of booleans and one of numbers."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor, b: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=m
            ), nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=b)

    return Model(), [
        (
            *(torch.randn(1, 2, 5, 8) for _ in range(3)),
            torch.rand(5, 5) > 0.3,
            torch.randn(1, 2, 5, 5),
        )
    ]


def _attention_scaled() -> Built:
    """Attention with a scale of its own."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v, scale=0.3)

    return Model(), [(*(torch.randn(1, 2, 5, 8) for _ in range(3)),)]


def _attention_transformer() -> Built:
    """A transformer's layer."""
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu"), [(torch.randn(1, 5, 16),)]


def _attention_words() -> Built:
    """Words, looked up, and a layer."""
    return nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 6), nn.SiLU()), [
        (torch.randint(11, (2, 5), dtype=torch.int32),)
    ]


def _places_reversed_order() -> Built:
    """Elements in reverse, and every other one."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.flip(1), x.flip(0, 2)[:, 1:, ::2], x[1:, -3:-1, :-1:3]

    return Model(), [(torch.randn(3, 4, 7),)]


def _places_rolled() -> Built:
    """Elements that come in again at the other end."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.roll(2, 1), x.roll((1, -1), (0, 2))

    return Model(), [(torch.randn(3, 4, 5),)]


def _places_triangles() -> Built:
    """Triangles below and above a diagonal."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.tril(1), x.triu(-1), x.tril(-2)

    return Model(), [(torch.randn(3, 5, 4),)]


def _places_gathered() -> Built:
    """Elements at places."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
            return x.gather(1, y), x.index_select(0, z), x[z]

    return Model(), [
        (
            torch.randn(3, 4),
            torch.tensor([[0, 3], [1, 1], [2, 0]]),
            torch.tensor([2, 0]),
        )
    ]


def _places_written() -> Built:
    """Elements written and added at places."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, v: torch.Tensor, z: torch.Tensor) -> Any:
            return x.scatter(1, y, v), x.scatter_add(1, y, v), x.index_add(0, z, x[:2])

    return Model(), [
        (
            torch.randn(3, 4),
            torch.tensor([[0, 3], [1, 2], [2, 0]]),
            torch.randn(3, 2),
            torch.tensor([2, 0]),
        )
    ]


def _places_in_order() -> Built:
    """The largest, and all in order."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return *x.topk(2, -1), *x.sort(1, descending=True), x.argsort(0), x.argmax(1), x.argmin(-1, keepdim=True)

    return Model(), [((torch.randperm(60) / 4).reshape(3, 4, 5),)]


def _places_joined() -> Built:
    """Tensors joined, stacked, split, repeated; axes of one element removed, rows counted from the end."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return (
                torch.cat([x, y], 1),
                torch.stack([x, x], 1),
                *torch.split_with_sizes(y, [1, 2], 1),
                x.repeat(2, 1, 3),
                x.unsqueeze(0).expand(3, -1, -1),
                x.unsqueeze(0).squeeze((0, 1)),
                x.select(1, -4),
                y[-2],
            )

    return Model(), [
        (
            torch.randn(2, 4),
            torch.randn(2, 3),
        )
    ]


def _places_made() -> Built:
    """Tensors whose elements alternate, halves that are split, places as rows of ones, and equal elements."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
            return (
                torch.stack((x, y), 2).reshape(1, 8, 3, 5),
                nn.functional.glu(x, 1),
                nn.functional.one_hot(z, 5) * 2,
                torch.full_like(x, 2.0) * x,
            )

    return Model(), [(torch.randn(1, 4, 3, 5), torch.randn(1, 4, 3, 5), torch.tensor([[1, 0, 4], [2, 2, 3]]))]


def _places_rows_written() -> Built:
    """Rows of a tensor written."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return torch.slice_scatter(x, y, 1, 1, 5, 2), torch.select_scatter(x, x[0], 0, 1)

    return Model(), [
        (
            torch.randn(3, 6),
            torch.randn(3, 2),
        )
    ]


def _reductions_norms() -> Built:
    """Norms of rows."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.norm(1, -1), x.norm(2, 1, True), x.norm(float("inf"), 0), x.square().sum(1)

    return Model(), [(torch.randn(3, 4, 5),)]


def _reductions_sums() -> Built:
    """Sums, means, products, extremes."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return (
                x.sum((0, 2)),
                x.mean(1, True),
                x.prod(-1),
                x.amax((0, 1)),
                x.amin(2),
                x.var(1),
                x.std(2, correction=0),
            )

    return Model(), [(torch.randn(3, 4, 5),)]


def _reductions_logarithms() -> Built:
    """Logarithms of sums."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.logsumexp(1), x.exp().sum(-1).log(), x.log_softmax(1), x.softmax(0)

    return Model(), [(torch.randn(3, 4, 5),)]


def _reductions_so_far() -> Built:
    """Sums so far."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.cumsum(1), x.flip(1).cumsum(0)

    return Model(), [(torch.randn(3, 4, 5),)]


def _reductions_conditions() -> Built:
    """All of and any of conditions."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return (x > 0).any(1), (x > -1).all(-1), (x > 0).sum(1)

    return Model(), [(torch.randn(3, 4, 5),)]


def _apart_whole_means() -> Built:
    """Sums and extremes of whole numbers."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.sum(1), x.amax(0), x.cumsum(-1), x // 3, x % 4

    return Model(), [(torch.randint(-9, 9, (3, 4), dtype=torch.int32),)]


def _products_sums_of_products() -> Built:
    """Sums of products in different orders."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
            return (
                torch.einsum("bij,bjk->bik", x, y),
                torch.einsum("bij,bjk->bki", x, y),
                x.transpose(1, 2) @ x,
                torch.einsum("chw,whu->chu", z, x.permute(2, 1, 0)),
            )

    return Model(), [
        (
            torch.randn(2, 3, 4),
            torch.randn(2, 4, 5),
            torch.randn(6, 3, 4),
        )
    ]


def _products_ranks() -> Built:
    """Products of different ranks."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
            return torch.addmm(z, x, y, beta=0.5, alpha=2.0), torch.mv(x, y[:, 0]), torch.outer(x[0], y[0])

    return Model(), [
        (
            torch.randn(3, 4),
            torch.randn(4, 5),
            torch.randn(5),
        )
    ]


def _products_computed_weights() -> Built:
    """A linear layer whose weights are computed, split into parts of different widths."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> Any:
            return torch.split_with_sizes(nn.functional.linear(x, y * 2, b), [1, 4, 2], -1)

    return Model(), [(torch.randn(2, 3, 5), torch.randn(7, 5), torch.randn(7))]


def _bytes_products() -> Built:
    """A linear layer with weights of bytes, a scale for each column, of numbers that were rounded to bytes."""
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.randint(-127, 128, (12, 16), dtype=torch.int8))
            self.scales = nn.Buffer(torch.rand(12) / 64 + 1 / 128)
            self.zeros = nn.Buffer(torch.zeros(12, dtype=torch.int64))
            self.bias = nn.Buffer(torch.randn(12))

        def forward(self, x: torch.Tensor) -> Any:
            # The exact form, too, rounds to bytes in float32.
            steps = q.quantize_per_tensor.default(x.float(), 1 / 32, -5, -128, 127, torch.int8)
            rounded = q.dequantize_per_tensor.default(steps, 1 / 32, -5, -128, 127, torch.int8)
            scales = self.scales.float()
            weight = q.dequantize_per_channel.default(self.weight, scales, self.zeros, 0, -127, 127, torch.int8)
            return nn.functional.linear(rounded.to(x.dtype), weight.to(x.dtype), self.bias)

    return Model(), [(torch.randn(3, 16),)]


def _bytes_convolutions() -> Built:
    """A convolution with weights of bytes, and one for each channel, of numbers that were rounded to bytes."""
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.randint(-127, 128, (8, 4, 3, 3), dtype=torch.int8))
            self.each = nn.Buffer(torch.randint(-127, 128, (8, 1, 3, 3), dtype=torch.int8))
            self.scales = nn.Buffer(torch.rand(8) / 64 + 1 / 128)
            self.zeros = nn.Buffer(torch.zeros(8, dtype=torch.int64))
            self.bias = nn.Buffer(torch.randn(8))

        def rounded(self, x: torch.Tensor, step: float, zero: int) -> Any:
            # The exact form, too, rounds to bytes in float32.
            steps = q.quantize_per_tensor.default(x.float(), step, zero, -128, 127, torch.int8)
            return q.dequantize_per_tensor.default(steps, step, zero, -128, 127, torch.int8).to(x.dtype)

        def forward(self, x: torch.Tensor) -> Any:
            scales = self.scales.float()
            weight = q.dequantize_per_channel.default(self.weight, scales, self.zeros, 0, -127, 127, torch.int8)
            each = q.dequantize_per_channel.default(self.each, scales, self.zeros, 0, -127, 127, torch.int8)
            x = self.rounded(x, 1 / 32, -5)
            x = self.rounded(nn.functional.conv2d(x, weight.to(x.dtype), self.bias, padding=1), 0.25, 3)
            return self.rounded(nn.functional.conv2d(x, each.to(x.dtype), self.bias, groups=8), 1.5, 0)

    return Model(), [(torch.randn(1, 4, 7, 9),)]


def _bytes_sums() -> Built:
    """A sum of numbers that were rounded to bytes, in bytes."""
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed

    class Model(nn.Module):
        def rounded(self, x: torch.Tensor, step: float, zero: int) -> Any:
            # The exact form, too, rounds to bytes in float32.
            steps = q.quantize_per_tensor.default(x.float(), step, zero, -128, 127, torch.int8)
            return q.dequantize_per_tensor.default(steps, step, zero, -128, 127, torch.int8).to(x.dtype)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return self.rounded(self.rounded(x, 1 / 32, -5) + self.rounded(y, 1 / 16, 7), 0.07, 2)

    return Model(), [(torch.randn(2, 4, 5, 7), torch.randn(2, 4, 5, 7))]


def _bytes_one_row() -> Built:
    """A linear layer of one row between bytes, with weights of bytes."""
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.randint(-127, 128, (12, 16), dtype=torch.int8))
            self.scales = nn.Buffer(torch.rand(12) / 64 + 1 / 128)
            self.zeros = nn.Buffer(torch.zeros(12, dtype=torch.int64))
            self.bias = nn.Buffer(torch.randn(12))

        def rounded(self, x: torch.Tensor, step: float, zero: int) -> Any:
            # The exact form, too, rounds to bytes in float32.
            steps = q.quantize_per_tensor.default(x.float(), step, zero, -128, 127, torch.int8)
            return q.dequantize_per_tensor.default(steps, step, zero, -128, 127, torch.int8).to(x.dtype)

        def forward(self, x: torch.Tensor) -> Any:
            scales = self.scales.float()
            weight = q.dequantize_per_channel.default(self.weight, scales, self.zeros, 0, -127, 127, torch.int8)
            found = nn.functional.linear(self.rounded(x, 1 / 32, -5), weight.to(x.dtype), self.bias)
            return self.rounded(found.relu(), 0.25, -128)

    return Model(), [(torch.randn(1, 16),)]


def _bytes_larger_images() -> Built:
    """A transposed convolution, a ReLU, and channels that become pixels, each between bytes."""
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.randint(-127, 128, (4, 8, 3, 2), dtype=torch.int8))
            self.scales = nn.Buffer(torch.rand(8) / 64 + 1 / 128)
            self.zeros = nn.Buffer(torch.zeros(8, dtype=torch.int64))
            self.bias = nn.Buffer(torch.randn(8))

        def rounded(self, x: torch.Tensor, step: float, zero: int) -> Any:
            # The exact form, too, rounds to bytes in float32.
            steps = q.quantize_per_tensor.default(x.float(), step, zero, -128, 127, torch.int8)
            return q.dequantize_per_tensor.default(steps, step, zero, -128, 127, torch.int8).to(x.dtype)

        def forward(self, x: torch.Tensor) -> Any:
            scales = self.scales.float()
            weight = q.dequantize_per_channel.default(self.weight, scales, self.zeros, 1, -127, 127, torch.int8)
            x = self.rounded(x, 1 / 32, -5)
            x = nn.functional.conv_transpose2d(x, weight.to(x.dtype), self.bias, (2, 1), (1, 0), (1, 0))
            x = self.rounded(self.rounded(x, 0.0625, 3).relu(), 0.03125, -100)
            return self.rounded(nn.functional.pixel_shuffle(x, 2), 0.0625, -120)

    return Model(), [(torch.randn(1, 4, 4, 5),)]


def _bytes_kept() -> Built:
    """A table of bytes with a scale for each of its columns, added to numbers."""
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Buffer(torch.randint(-127, 128, (5, 12), dtype=torch.int8))
            self.scales = nn.Buffer(torch.rand(12) / 64 + 1 / 128)
            self.zeros = nn.Buffer(torch.randint(-9, 9, (12,)))

        def forward(self, x: torch.Tensor) -> Any:
            scales = self.scales.float()
            table = q.dequantize_per_channel.default(self.table, scales, self.zeros, 1, -127, 127, torch.int8)
            return x + table.to(x.dtype)

    return Model(), [(torch.randn(2, 5, 12),)]


def _functions_activations() -> Built:
    """Activations."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return (
                nn.functional.elu(x, 0.7),
                nn.functional.gelu(x),
                nn.functional.hardtanh(x, -0.5, 0.7),
                nn.functional.leaky_relu(x, 0.2),
                nn.functional.softplus(x, 2.0),
                nn.functional.mish(x),
                nn.functional.relu6(x * 4),
                nn.functional.selu(x),
                nn.functional.hardsigmoid(x),
                nn.functional.hardswish(x),
                nn.functional.softsign(x),
                nn.functional.logsigmoid(x),
                nn.functional.celu(x, 1.5),
                nn.functional.threshold(x, 0.1, -2.0),
            )

    return Model(), [(torch.randn(3, 5),)]


def _functions_of_channels() -> Built:
    """A slope for each channel, and a softplus with a slope of its own."""
    slopes = nn.PReLU(4)
    slopes.weight = nn.Parameter(torch.tensor([0.1, 0.2, -0.3, 0.5]))
    return nn.Sequential(slopes, nn.Softplus(2.0)), [(torch.randn(2, 4, 5, 6),)]


def _functions_mathematics() -> Built:
    """Functions."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return (
                x.sin(),
                x.cos(),
                x.atan(),
                x.tanh(),
                x.exp(),
                x.abs().sqrt(),
                (x.abs() + 0.1).rsqrt(),
                (x.abs() + 0.5).log(),
                x.erf(),
                x.sign(),
                x.ceil(),
                x.floor(),
                x.round(),
                x.sigmoid(),
                x.square(),
                (x.abs() + 1).pow(1.5),
                x.sinh(),
                x.cosh(),
                x.tan(),
                (x * 0.2).asin(),
                (x * 0.2).acos(),
                (x * 0.2).atanh(),
                # So far from 0 that an epsilon, which a device's operation may add, does not matter.
                (x.abs() + 1000).reciprocal(),
            )

    return Model(), [(torch.randn(3, 5),)]


def _functions_choices() -> Built:
    """Choices and comparisons."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return (
                torch.where(x > y, x, y * 2),
                x.maximum(y),
                x.minimum(y),
                x.clamp(-0.5, 0.5),
                x.masked_fill(x < 0, 3.0),
                (x >= y) & (x != 0),
                (x > 0) ^ (y > 0),
                ~(x > 0),
                x.fmod(0.7),
                x.remainder(0.7),
                torch.floor_divide(x, 0.3),
            )

    return Model(), [
        (
            torch.randn(3, 5),
            torch.randn(3, 5),
        )
    ]


def _apart_any_length() -> Built:
    """Attention that sees what came before, normalized groups and a diagonal, of sequences of any length."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            seen = nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
            return seen, nn.functional.group_norm(x, 2), y.trace()

    length = torch.export.Dim("length", min=2, max=9)
    calls = [(torch.randn(2, 4, count, 8), torch.randn(3, 3)) for count in (5, 2, 9)]
    return Model(), calls, ({2: length}, {})


def _apart_gelu_tanh() -> Built:
    """GELU by tanh."""
    return nn.GELU(approximate="tanh"), [(torch.randn(3, 5),)]


#: By group.
MODULES: Final[Mapping[str, tuple[Module, ...]]] = {
    "recurrent": (
        Module(_recurrent_lstm),
        Module(_recurrent_lstm_both_ways),
        Module(_recurrent_lstm_without_biases),
        Module(_recurrent_lstm_from_a_state),
        Module(_recurrent_gru),
        Module(_recurrent_gru_both_ways),
        Module(_recurrent_rnn),
        Module(_recurrent_rnn_relu),
    ),
    "normalization": (
        Module(_normalization_instance_norm),
        Module(_normalization_instance_norm_of_signals),
        Module(_normalization_group_norm),
        Module(_normalization_layer_norm),
        Module(_normalization_batch_norm),
        Module(_normalization_channels),
        Module(_normalization_unit_vectors),
    ),
    "images": (
        Module(_images_nearest),
        Module(_images_nearest_of_a_size),
        Module(_images_bilinear),
        Module(_images_signals_resized),
        Module(_images_sampled_bilinear_zeros),
        Module(_images_sampled_bilinear_border),
        Module(_images_sampled_bilinear_reflection),
        Module(_images_sampled_nearest_zeros),
        Module(_images_sampled_nearest_border),
        Module(_images_sampled_nearest_reflection),
    ),
    "padding": (
        Module(_padding_constants),
        Module(_padding_reflected),
        Module(_padding_repeated),
    ),
    "convolutions": (
        Module(_convolutions_same_padding),
        Module(_convolutions_strides),
        Module(_convolutions_depthwise),
        Module(_convolutions_signals),
        Module(_convolutions_volumes),
        Module(_convolutions_transposed),
        Module(_convolutions_transposed_groups),
        Module(_convolutions_transposed_signals),
    ),
    "pooling": (
        Module(_pooling_largest_overhang),
        Module(_pooling_mean),
        Module(_pooling_mean_inside),
        Module(_pooling_mean_overhang),
        Module(_pooling_signals_and_all),
        Module(_pooling_volumes),
        Module(_pooling_adaptive),
    ),
    "attention": (
        Module(_attention_plain),
        Module(_attention_causal),
        Module(_attention_masked),
        Module(_attention_scaled),
        Module(_attention_transformer),
        Module(_attention_words),
    ),
    "places": (
        Module(_places_reversed_order),
        Module(_places_rolled),
        Module(_places_triangles),
        Module(_places_gathered),
        Module(_places_written),
        Module(_places_in_order),
        Module(_places_joined),
        Module(_places_made),
        Module(_places_rows_written),
    ),
    "reductions": (
        Module(_reductions_norms),
        Module(_reductions_sums),
        Module(_reductions_logarithms),
        Module(_reductions_so_far),
        Module(_reductions_conditions),
    ),
    "products": (
        Module(_products_sums_of_products),
        Module(_products_ranks),
        Module(_products_computed_weights),
    ),
    "bytes": (
        Module(_bytes_products),
        Module(_bytes_convolutions),
        Module(_bytes_sums),
        Module(_bytes_one_row),
        Module(_bytes_larger_images),
        Module(_bytes_kept),
    ),
    "language": tuple(map(Module, language.MODELS)),
    "fused": (Module(language.attention_with_caches, stateful=True),),
    "functions": (
        Module(_functions_activations),
        Module(_functions_of_channels),
        Module(_functions_mathematics),
        Module(_functions_choices),
    ),
    # By themselves: what one of stock's compilers refuses, leaves outside or writes otherwise would hinder the others.
    "apart": (
        Module(_apart_local_response_norm),
        Module(_apart_rms_norm),
        Module(_apart_around),
        Module(_apart_cut),
        Module(_apart_largest),
        Module(_apart_whole_means),
        Module(_apart_gelu_tanh),
        Module(_apart_any_length),
        Module(_apart_shuffled),
    ),
}
