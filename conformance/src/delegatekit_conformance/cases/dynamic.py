"""Sizes that change from call to call: small, large and small again, so that results of an earlier call would show.

A builder uses nothing but torch: its text is the snippet that a report shows. Its calls begin with the example inputs
of the export and go on with the smallest size, the largest, one in the middle and the smallest once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .base import Case
from .subjects import Built, Register

dynamic = Register("dynamic", cost=0.5)


@dynamic("elementwise")
def elementwise() -> Built:
    """Element by element, with scalars and a constant of full rank."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Buffer(torch.randn(1, 5))

        def forward(self, x: torch.Tensor) -> Any:
            return torch.tanh(x * 2 + self.shift), nn.functional.relu(x) - x.exp()

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 5),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("two-inputs")
def two_inputs() -> Built:
    """Two inputs that share the size."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return x + y, x * y - x.maximum(y)

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 5), torch.randn(n, 5)) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows}, {0: rows})


@dynamic("one-size-at-a-time")
def one_size_at_a_time() -> Built:
    """Three inputs with sizes of their own, of which one changes from call to call; results use them as numbers."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
            columns = (y * 2).reshape(y.shape[0] * 5, 1) + 1, z.exp().reshape(z.shape[0] * 5) - 1
            return *columns, x * y.shape[0] - z.shape[0], y / (x.shape[0] + z.shape[0]), z + (x.sum() * y.shape[0])

    m, n, k = (torch.export.Dim(name, min=1, max=9) for name in ("m", "n", "k"))
    order = [(4, 5, 3), (4, 1, 3), (4, 1, 6), (7, 1, 6), (7, 5, 6), (7, 5, 2), (4, 5, 2), (4, 5, 3), (4, 9, 3)]
    calls = [(torch.randn(a, 5), torch.randn(b, 5), torch.randn(c, 5)) for a, b, c in order]
    return Model(), calls, ({0: m}, {0: n}, {0: k})


@dynamic("broadcast")
def broadcast() -> Built:
    """A row, a column and a scalar against a matrix that changes."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> Any:
            return x + row, x * column, row - column, column.expand(-1, 4) + 1

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 4), torch.randn(1, 4), torch.randn(n, 1)) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows}, None, {0: rows})


@dynamic("outer")
def outer() -> Built:
    """A vector against itself: the size appears twice in the result."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x[:, None] * x[None, :], (x[:, None] - x).abs().sum(1)

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("linear")
def linear() -> Built:
    """A linear layer, a relu and another."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> Any:
            return self.second(nn.functional.relu(self.first(x)))

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 6),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("matmul")
def matmul() -> Built:
    """The size as rows of the left and as columns of the right."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return x @ y, y @ x, x.T @ x

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 6), torch.randn(6, n)) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows}, {1: rows})


@dynamic("bmm")
def bmm() -> Built:
    """Batched products: the batch changes."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return torch.bmm(x, y), x @ y + 1

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 2, 3), torch.randn(n, 3, 4)) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows}, {0: rows})


@dynamic("conv-batch")
def conv_batch() -> Built:
    """A convolution with batch norm: the batch changes."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.relu(self.norm(self.conv(x)))

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 3, 6, 6),) for n in (2, 1, 4, 3, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("conv-image")
def conv_image() -> Built:
    """Convolution, stride and pooling: height and width change."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)

        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.max_pool2d(nn.functional.relu(self.conv(x)), 2)

    height, width = (torch.export.Dim(name, min=1, max=4) for name in ("height", "width"))
    calls = [(torch.randn(1, 3, 4 * n, 4 * m),) for n, m in ((2, 3), (1, 1), (4, 4), (3, 2), (1, 4), (2, 3))]
    return Model(), calls, ({2: 4 * height, 3: 4 * width},)


@dynamic("conv-kinds")
def conv_kinds() -> Built:
    """Depthwise, of several kernels for each channel, grouped, dilated and transposed: height and width change."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each, self.several = nn.Conv2d(4, 4, 5, 2, 2, groups=4), nn.Conv2d(4, 8, 3, padding=1, groups=4)
            self.groups, self.gaps = nn.Conv2d(4, 6, 3, groups=2), nn.Conv2d(4, 3, 3, padding=2, dilation=2)
            self.larger, self.point = nn.ConvTranspose2d(4, 3, 3, 2, 1, 1), nn.Conv2d(4, 5, 1, bias=False)

        def forward(self, x: torch.Tensor) -> Any:
            return self.each(x), self.several(x), self.groups(x), self.gaps(x), self.larger(x), self.point(x)

    height, width = (torch.export.Dim(name, min=5, max=20) for name in ("height", "width"))
    sizes = ((9, 8), (17, 20), (5, 7), (9, 8))
    return Model(), [(torch.randn(1, 4, *size),) for size in sizes], ({2: height, 3: width},)


@dynamic("conv1d")
def conv1d() -> Built:
    """A convolution over a sequence whose length changes."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(3, 4, 3, padding=1)

        def forward(self, x: torch.Tensor) -> Any:
            return self.conv(x).relu()

    rows = torch.export.Dim("rows", min=2, max=9)
    calls = [(torch.randn(1, 3, 2 * n),) for n in (4, 2, 9, 3, 2)]
    return Model(), calls, ({2: 2 * rows},)


@dynamic("global-pool")
def global_pool() -> Built:
    """The mean over an image whose size changes, and a linear layer."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> Any:
            return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)), x.mean((2, 3)), x.amax((2, 3))

    height = torch.export.Dim("height", min=2, max=8)
    calls = [(torch.randn(2, 3, n, n + 1),) for n in (4, 2, 8, 5, 2)]
    return Model(), calls, ({2: height, 3: height + 1},)


@dynamic("avg-pool")
def avg_pool() -> Built:
    """Average pooling of windows with padding."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.avg_pool2d(x, 2), nn.functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)

    height = torch.export.Dim("height", min=2, max=6)
    calls = [(torch.randn(1, 2, 2 * n, 6),) for n in (3, 2, 6, 4, 2)]
    return Model(), calls, ({2: 2 * height},)


@dynamic("upsample")
def upsample() -> Built:
    """Twice as large, for any size."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.interpolate(x, scale_factor=2.0)

    height = torch.export.Dim("height", min=2, max=6)
    calls = [(torch.randn(1, 2, n, 3),) for n in (3, 2, 6, 4, 2)]
    return Model(), calls, ({2: height},)


@dynamic("resized-by-a-fraction")
def resized_by_a_fraction() -> Built:
    """Rows of a fixed number twice as many, columns half as many again: some of their numbers are odd."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            resize = nn.functional.interpolate
            return (
                resize(x, scale_factor=(2.0, 1.5), mode="bilinear"),
                resize(x, scale_factor=(2.0, 1.5), mode="bilinear", align_corners=True),
                resize(x, scale_factor=(1.0, 0.5)),
            )

    columns = torch.export.Dim("columns", min=5, max=9)
    calls = [(torch.randn(1, 2, 3, n),) for n in (6, 5, 9, 7, 5)]
    return Model(), calls, ({3: columns},)


@dynamic("upsample-by-the-size")
def upsample_by_the_size() -> Built:
    """As often as there are rows, and as large as another input: the factor changes from call to call."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            sizes = (x.shape[2] * x.shape[2], 6), y.shape[2:]
            nearest = (nn.functional.interpolate(x, size=size) for size in sizes)
            return *nearest, nn.functional.interpolate(x, size=y.shape[2:], mode="bilinear") * y

    rows = torch.export.Dim("rows", min=1, max=5)
    calls = [(torch.randn(1, 2, n, 3), torch.randn(1, 2, 3 * n, 6)) for n in (3, 1, 5, 2, 1)]
    return Model(), calls, ({2: rows}, {2: 3 * rows})


@dynamic("pool-overhang")
def pool_overhang() -> Built:
    """Last windows that reach beyond the axis that changes, along the other one, with a batch and without."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            settings: Any = {"stride": 2, "ceil_mode": True}
            pooled = (nn.functional.max_pool2d(y, 3, **settings) for y in (x, x[0], x.mT))
            return *pooled, nn.functional.avg_pool2d(x, 3, **settings), nn.functional.max_pool1d(x[:, 0], 3, **settings)

    height = torch.export.Dim("height", min=2, max=5)
    calls = [(torch.randn(1, 2, 2 * n, 6),) for n in (3, 2, 5, 4, 2)]
    return Model(), calls, ({2: 2 * height},)


@dynamic("cat")
def cat() -> Built:
    """Two sizes that add up, and a constant in between."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.middle = nn.Buffer(torch.randn(2, 3))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return torch.cat([x, self.middle, y]), torch.cat([x, x], 1)

    rows, others = torch.export.Dim("rows", min=1, max=9), torch.export.Dim("others", min=1, max=7)
    calls = [(torch.randn(n, 3), torch.randn(m, 3)) for n, m in ((4, 3), (1, 7), (9, 1), (9, 7), (1, 1), (4, 3))]
    return Model(), calls, ({0: rows}, {0: others})


@dynamic("stack")
def stack() -> Built:
    """Stacked along a new dimension."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.stack([x, -x], 0), torch.stack([x, x * 2], -1).flatten(1)

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 3),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("view")
def view() -> Built:
    """Views with -1, and flattened dimensions that change."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.view(-1, 3), x.flatten(), x.flatten(1) + 1, x.reshape(-1, 2, 3).relu().view(x.shape[0], 6)

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 2, 3),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("permute")
def permute() -> Built:
    """Permuted dimensions."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.permute(2, 0, 1), x.transpose(0, 1).relu(), x.mT.contiguous().tanh()

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 2, 3),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("heads")
def heads() -> Built:
    """Cut into heads and put together, as attention does."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            b, t, _ = x.shape
            y = x.view(b, t, 2, 4).transpose(1, 2)
            return y, y.relu().transpose(1, 2).reshape(b, t, 8)

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(2, n, 8),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({1: rows},)


@dynamic("softmax")
def softmax() -> Built:
    """Over the size that changes, and over the other."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.softmax(0), x.softmax(1), x.log_softmax(0)

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 5),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("reduce")
def reduce() -> Built:
    """Sums, means and maxima over the size that changes."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.sum(0), x.mean(0, keepdim=True), x.amax(0), x.sum(), x.mean(1), x.var(0, correction=0)

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 5),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("reduce-in-the-middle")
def reduce_in_the_middle() -> Built:
    """Means, sums and maxima over neighbouring axes of three and of five, one of which changes."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factors = nn.Buffer(torch.randn(2, 1, 2))

        def forward(self, x: torch.Tensor) -> Any:
            y = x[:, :, None, :, None] * self.factors
            return (
                *(x.mean((1, 2)), x.sum((0, 2)), x.amax((0, 2)), y.mean((1, 2)), y.mean((2, 3)), y.amax((2, 3))),
                *(y.sum((3, 4)), y.mean((1, 4)), y.var((1, 3), correction=0)),
            )

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(4, n, 3),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({1: rows},)


@dynamic("two-sizes-reduced")
def two_sizes_reduced() -> Built:
    """Two sizes change, and the reduced or normalized axis is between them, or one of them."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return (
                *(x.amax(1), x.amin(1, keepdim=True), x.mean(1), x.sum((1, 3)), x.logsumexp(1), x.softmax(1)),
                *(x.mean((0, 2)), x.mean((1, 2, 3)), x.var((1, 3), correction=0), x[:, :1].squeeze(1) + 1),
                *(nn.functional.group_norm(x, 2), nn.functional.layer_norm(x, (4,)), x.log_softmax(-1)),
            )

    rows, columns = torch.export.Dim("rows", min=1, max=5), torch.export.Dim("columns", min=2, max=7)
    calls = [(torch.randn(n, 6, m, 4),) for n, m in ((3, 4), (1, 2), (5, 7), (1, 7), (5, 2), (3, 4))]
    return Model(), calls, ({0: rows, 2: columns},)


@dynamic("two-sizes-moved")
def two_sizes_moved() -> Built:
    """Two sizes change, and the axes beside them are cut, joined, repeated, sliced, chosen and written."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            n, _, m, _ = x.shape
            cut = x.reshape(n, 2, 3, m, 4).transpose(1, 2).reshape(n, 6, m, 2, 2)
            return (
                *(cut + 1, x.transpose(1, 2).reshape(n, m, 24) * 2, x.reshape(n, 6, m, 2, 2).sum(1), x[:, ::2] - 1),
                *(x[:, :1].expand(n, 3, m, 4).relu(), x.repeat(1, 2, 1, 1), x[:, 2, :, None] + 1, x.flip(3)),
                *(x[:, [0, 3, 5]], torch.cat([x, x[:, :2]], 1), x.permute(3, 0, 2, 1), x.select_scatter(x[:, 0], 1, 4)),
                *(torch.zeros_like(x).copy_(x[:, :, :1]) + x, cut[:, ::2] * 2),
            )

    rows, columns = torch.export.Dim("rows", min=1, max=5), torch.export.Dim("columns", min=2, max=7)
    calls = [(torch.randn(n, 6, m, 4),) for n, m in ((3, 4), (1, 2), (5, 7), (1, 7), (5, 2), (3, 4))]
    return Model(), calls, ({0: rows, 2: columns},)


@dynamic("two-sizes-and-steps")
def two_sizes_and_steps() -> Built:
    """Every second element, and every seventieth, of an axis that is long beside two that change."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x[..., ::2] + 1, x[..., ::70] * 2, (x * 2)[..., 3::4]

    rows, columns = torch.export.Dim("rows", min=1, max=5), torch.export.Dim("columns", min=2, max=7)
    calls = [(torch.randn(n, m, 140),) for n, m in ((3, 4), (1, 2), (5, 7), (2, 7), (5, 2), (3, 4))]
    return Model(), calls, ({0: rows, 1: columns},)


@dynamic("two-sizes-multiplied")
def two_sizes_multiplied() -> Built:
    """Two sizes are joined before a product with a matrix that the program computes: of an input, and of the rows."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            rows = x.flatten(0, 1)
            own = torch.special.entr(rows.abs())[:2].mT @ rows[:2]
            return nn.functional.linear(rows, torch.erf(y)), rows @ torch.erf(y).mT, rows @ own, (rows * 2).view_as(x)

    rows, columns = torch.export.Dim("rows", min=2, max=5), torch.export.Dim("columns", min=2, max=7)
    calls = [(torch.randn(n, m, 6), torch.randn(6, 6)) for n, m in ((3, 4), (2, 2), (5, 7), (2, 7), (5, 2), (3, 4))]
    return Model(), calls, ({0: rows, 1: columns}, None)


@dynamic("two-sizes-joined")
def two_sizes_joined() -> Built:
    """A size that changes is joined to another axis and cut off again, and values in between are read twice or not."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            n, m, _, _ = x.shape
            joined = x.flatten(1, 2)
            halves = y[:, :, None, None].reshape(n * m, 2, 4)
            return self.layer(joined).view_as(x), joined.relu(), halves.mT, (halves * 2).view_as(y)

    rows, columns = torch.export.Dim("rows", min=2, max=5), torch.export.Dim("columns", min=2, max=7)
    calls = [
        (torch.randn(n, m, 2, 8), torch.randn(n, m, 8, dtype=torch.bfloat16))
        for n, m in ((3, 4), (2, 2), (5, 7), (2, 7), (5, 2), (3, 4))
    ]
    return Model(), calls, ({0: rows, 1: columns}, {0: rows, 1: columns})


@dynamic("chosen-at-edges")
def chosen_at_edges() -> Built:
    """Elements that only some calls have, a window that begins anywhere, pixels and parts of axes beside two sizes."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.order = nn.Buffer(torch.tensor([1, 0]))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            n, m = x.shape[0], x.shape[2]
            twice = torch.cat([x, x * 2], 2)
            resize, unshuffle = nn.functional.interpolate, nn.functional.pixel_unshuffle
            return (
                *(x.index_select(0, self.order), x[self.order], x[:, [[0, 5], [3, 1]]], x[:, [0, 3], :, [1, 0]]),
                *(unshuffle(twice, 2), unshuffle(twice[0], 2), twice[:, :, m:], x[:, :, :, None, None][:, ::2]),
                *(resize(x.permute(3, 0, 1, 2), scale_factor=2), resize(x.half(), scale_factor=2)),
                *(x.reshape(n, 8 * m, 3), y.reshape(n, m, 65, 2)),
            )

    rows, columns = torch.export.Dim("rows", min=2, max=4), torch.export.Dim("columns", min=2, max=5)
    calls = [(torch.randn(n, 6, m, 4), torch.randn(n, m, 130)) for n, m in ((3, 4), (2, 2), (4, 5), (2, 5), (3, 4))]
    return Model(), calls, ({0: rows, 2: columns}, {0: rows, 1: columns})


@dynamic("chosen-from-the-end")
def chosen_from_the_end() -> Built:
    """Constant places that count from the end of an axis that changes, alone and beside others; others that do not."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Buffer(torch.tensor([-1, 0, -2]))

        def forward(self, x: torch.Tensor) -> Any:
            y = x * 2
            return y[self.last] + 1, y[self.last, [0, 2, -1]] + 1, y.relu()[[-1]], y[:, self.last] + 1

    rows = torch.export.Dim("rows", min=2, max=9)
    calls = [(torch.randn(n, 3),) for n in (4, 2, 9, 6, 2)]
    return Model(), calls, ({0: rows},)


@dynamic("slice")
def slice() -> Built:
    """Windows that follow the size, and others that do not."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x[1:], x[:-1] + x[1:], x[:2], x[-1], x[::2]

    rows = torch.export.Dim("rows", min=3, max=9)
    calls = [(torch.randn(n, 3),) for n in (4, 3, 9, 6, 3)]
    return Model(), calls, ({0: rows},)


@dynamic("layer-norm")
def layer_norm() -> Built:
    """Over the last dimension; rows change."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(6)

        def forward(self, x: torch.Tensor) -> Any:
            return self.norm(x) + x

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 6),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("attention")
def attention() -> Built:
    """Queries and keys as long as the sequence."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v), (q @ k.mT).softmax(-1) @ v

    rows = torch.export.Dim("rows", min=2, max=9)
    calls = [(torch.randn(1, 2, n, 4), torch.randn(1, 2, n, 4), torch.randn(1, 2, n, 4)) for n in (4, 2, 9, 6, 2)]
    return Model(), calls, ({2: rows}, {2: rows}, {2: rows})


@dynamic("attention-causal")
def attention_causal() -> Built:
    """A causal mask of the sequence's length."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    rows = torch.export.Dim("rows", min=2, max=9)
    calls = [(torch.randn(1, 2, n, 4),) for n in (4, 2, 9, 6, 2)]
    return Model(), calls, ({2: rows},)


@dynamic("attention-two-lengths")
def attention_two_lengths() -> Built:
    """Queries of one length, keys of another."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, k)

    rows, others = torch.export.Dim("rows", min=1, max=9), torch.export.Dim("others", min=2, max=7)
    calls = [
        (torch.randn(1, 2, n, 4), torch.randn(1, 2, m, 4)) for n, m in ((4, 3), (1, 7), (9, 2), (9, 7), (1, 2), (4, 3))
    ]
    return Model(), calls, ({2: rows}, {2: others})


@dynamic("embedding")
def embedding() -> Built:
    """Tokens and positions of a sequence whose length changes."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(20, 6), nn.Embedding(9, 6)

        def forward(self, ids: torch.Tensor) -> Any:
            return self.tokens(ids) + self.places(torch.arange(ids.shape[1]))

    rows = torch.export.Dim("rows", min=2, max=9)
    calls = [(torch.randint(0, 20, (1, n)),) for n in (4, 2, 9, 6, 2)]
    return Model(), calls, ({1: rows},)


@dynamic("made-from-the-size")
def made_from_the_size() -> Built:
    """Tensors made from the size: ramps, ones, triangles."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            ramp = torch.arange(x.shape[0], dtype=x.dtype)
            mask = torch.ones(x.shape[0], x.shape[0], dtype=x.dtype).tril()
            return x * ramp[:, None], mask @ x, x / x.shape[0], x.new_zeros(x.shape[0], 2)

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 4),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("size-as-output")
def size_as_output() -> Built:
    """The size itself is returned beside a tensor."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.relu(), torch.full((1,), x.shape[0])

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 4),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("repeat")
def repeat() -> Built:
    """Copies along the size that changes."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            tiles = x.repeat(2, 1), x.repeat(1, 30), x[:, None, :, None].repeat(2, 3, 2, 2)
            return *tiles, x.unsqueeze(1).expand(-1, 3, -1).tanh(), x.repeat_interleave(2, 1)

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 2),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("pad")
def pad() -> Built:
    """Zeros before and after the elements of a size that changes."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.pad(x, (1, 2)), nn.functional.pad(x, (0, 0, 1, 0)), x.flip(1), x.roll(1, 1)

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(2, n),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({1: rows},)


@dynamic("pad-cuts")
def pad_cuts() -> Built:
    """Elements taken away at the beginning of a size that changes, and at the end of another one."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            pad = nn.functional.pad
            y = x.exp()
            return (
                pad(y, (0, 0, -1, 2)),
                pad(y, (1, -2)),
                pad(y, (-1, 0, -1, 0), value=0.5),
                pad(y, (-1, -1)) * y[:, :3],
            )

    rows = torch.export.Dim("rows", min=3, max=9)
    calls = [(torch.randn(n, 5),) for n in (4, 3, 9, 6, 3)]
    return Model(), calls, ({0: rows},)


@dynamic("split")
def split() -> Built:
    """Parts of the fixed dimension; rows change."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            a, b = x.split_with_sizes([2, 4], 1)
            return a * 2, b.relu(), *x.chunk(3, 1)

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 6),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("sorted")
def sorted() -> Built:
    """Order, maxima and running sums along the size that changes."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            values, indices = x.max(0)
            return x.sort(0).values, values, indices, x.cumsum(0), x.argmax(1), x.topk(2, 1).values

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 4),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("masked")
def masked() -> Built:
    """Comparisons and choices; rows change."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
            return x.masked_fill(mask, 0.5), torch.where(mask, x, -x), (x > 0).sum(0), x * mask

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 4), torch.randint(0, 2, (n, 1)) > 0) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows}, {0: rows})


@dynamic("passed-through")
def passed_through() -> Built:
    """Inputs returned unchanged, once and twice, and with a constant."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.same = nn.Buffer(torch.randn(3))

        def forward(self, x: torch.Tensor) -> Any:
            return x, x, x.view(-1), self.same

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 4),) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("transformer-layer")
def transformer_layer() -> Built:
    """A whole encoder layer: batch and length change."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x)

    batch, length = torch.export.Dim("batch", min=1, max=3), torch.export.Dim("length", min=2, max=9)
    calls = [(torch.randn(n, m, 8),) for n, m in ((2, 5), (1, 2), (3, 9), (2, 3), (1, 9), (2, 5))]
    return Model(), calls, ({0: batch, 1: length},)


@dynamic("residual-blocks")
def residual_blocks() -> Built:
    """Two convolutions with a shortcut: batch and image change."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 3, 3, padding=1)

        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.relu(self.second(nn.functional.relu(self.first(x))) + x)

    batch, side = torch.export.Dim("batch", min=1, max=3), torch.export.Dim("side", min=3, max=9)
    calls = [(torch.randn(n, 3, m, m),) for n, m in ((2, 5), (1, 3), (3, 9), (2, 4), (1, 9), (2, 5))]
    return Model(), calls, ({0: batch, 2: side, 3: side},)


@dynamic("one-row-only")
def one_row_only() -> Built:
    """The largest size is two: one and two in turns."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x).softmax(0)

    rows = torch.export.Dim("rows", min=1, max=2)
    calls = [(torch.randn(n, 3),) for n in (2, 1, 2, 1)]
    return Model(), calls, ({0: rows},)


@dynamic("sizes-against-each-other")
def sizes_against_each_other() -> Built:
    """Sizes that shrink where others grow, pads and windows that follow them, five axes that are joined."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Buffer(torch.randn(9, 4))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            n = x.shape[0]
            deep = x.reshape(n, 1, 2, 1, 2)
            return (
                *(self.table[n:] * 2, nn.functional.pad(x, (0, 0, 0, 9 - n)) + 1, torch.cat([deep, deep * 2], 1)),
                nn.functional.adaptive_avg_pool2d(y, (2, 1)),
            )

    rows = torch.export.Dim("rows", min=1, max=7)
    calls = [(torch.randn(n, 4), torch.randn(1, 2, 2 * n, 3)) for n in (4, 1, 7, 2, 4)]
    return Model(), calls, ({0: rows}, {2: 2 * rows})


@dynamic("written-at-places")
def written_at_places() -> Built:
    """Rows written at places, whose number changes: in one and in two axes, repeated, and by a mask."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor, v: torch.Tensor) -> Any:
            return (
                *(x.index_put((at,), v), x.index_put((at[None],), v[None]), x.index_put((at,), v[:, :1])),
                x.index_put((x[:, 0] > 0,), v[0, 0]),
            )

    rows = torch.export.Dim("rows", min=1, max=7)
    calls = [(torch.randn(9, 4), torch.randperm(9)[:n], torch.randn(n, 4)) for n in (3, 1, 7, 2, 3)]
    return Model(), calls, (None, {0: rows}, {0: rows})


@dynamic("gathered-from-a-size")
def gathered_from_a_size() -> Built:
    """Elements at fixed, fewer places of a tensor that changes: along the axis of the places, and along another one."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> Any:
            y, few = x.mT, at[:, :2]
            return (
                *(x.gather(0, at), x.gather(0, few), x.gather(1, at), x.gather(1, few) + 1, y.gather(1, few)),
                *(y.gather(0, few), torch.stack([x, -x]).gather(1, at[None]) + 1),
            )

    rows = torch.export.Dim("rows", min=3, max=9)
    calls = [(torch.randn(n, 4), torch.randint(0, 3, (2, 4))) for n in (5, 3, 9, 6, 3)]
    return Model(), calls, ({0: rows}, None)


@dynamic("gathered-at-a-size")
def gathered_at_a_size() -> Built:
    """Elements at places whose number changes, up to that of the fixed tensor's along another axis than theirs."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> Any:
            few = at[:, :3]
            return (
                *(x.gather(0, at), x.gather(1, at), x.gather(0, few), x.gather(1, few) + 1, x.mT.gather(0, few.mT)),
                *(x.mT.gather(1, at.mT), x.take_along_dim(at[:, :1], 0), torch.stack([x, -x]).gather(1, at[None]) + 1),
            )

    rows = torch.export.Dim("rows", min=2, max=8)
    calls = [(torch.randn(9, 4), torch.randint(0, 4, (n, 4))) for n in (5, 2, 8, 6, 2)]
    return Model(), calls, (None, {0: rows})


@dynamic("gathered-from-one-size-at-another")
def gathered_from_one_size_at_another() -> Built:
    """Numbers of elements and of places that change by themselves."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> Any:
            return x.gather(0, at), x.gather(0, at[:, :2]), x[at[:, 0]], x.index_select(0, at[:, 1]) * 2

    rows, places = torch.export.Dim("rows", min=3, max=9), torch.export.Dim("places", min=2, max=7)
    sizes = ((5, 4), (3, 4), (3, 7), (9, 7), (9, 2), (3, 2), (5, 4))
    calls = [(torch.randn(n, 4), torch.randint(0, 3, (m, 4))) for n, m in sizes]
    return Model(), calls, ({0: rows}, {0: places})


@dynamic("rows-of-a-size")
def rows_of_a_size() -> Built:
    """A fixed number of rows and columns, at places that are an input, of a tensor that changes."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> Any:
            return (
                *(x.index_select(0, at), x[at] + 1, x[:, at], x[at, at], nn.functional.embedding(at, x)),
                *(x.index_select(1, at), x[at[:, None], at], x[at[:2]] * 2),
            )

    rows = torch.export.Dim("rows", min=4, max=9)
    calls = [(torch.randn(n, 4), torch.tensor(at)) for n, at in ((5, (3, 0, 1)), (4, (1, 1, 3)), (9, (2, 3, 0)))]
    return Model(), [*calls, calls[1]], ({0: rows}, None)


@dynamic("scattered-into-a-size")
def scattered_into_a_size() -> Built:
    """Fixed, fewer numbers written and added at places of a tensor that changes: along the axis, and another one."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor, v: torch.Tensor) -> Any:
            y = x.mT
            return (
                *(x.scatter(0, at, v), x.scatter(1, at, v), x.scatter(0, at, 0.5), x.scatter(1, at[:, :2], v)),
                *(
                    x.scatter_add(0, at, v),
                    x.scatter_add(1, at, v),
                    y.scatter(1, at.mT, v.mT),
                    y.scatter(0, at.mT, v.mT),
                ),
            )

    rows = torch.export.Dim("rows", min=3, max=9)
    at = torch.tensor([[0, 2, 1], [2, 1, 0]])
    calls = [(torch.randn(n, 4), at.roll(n, 0), torch.randn(2, 3)) for n in (5, 3, 9, 6, 3)]
    return Model(), calls, ({0: rows}, None, None)


@dynamic("scattered-from-a-size")
def scattered_from_a_size() -> Built:
    """Numbers that change, written at as many places of a fixed tensor, or at the fixed first places."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor, few: torch.Tensor, v: torch.Tensor) -> Any:
            columns = few[:1].expand(at.shape[0], 3)
            return (
                *(x.scatter(0, at, v), x.scatter(1, columns, v), x.scatter(0, at, 0.5), x.scatter_add(0, at, v)),
                *(x.scatter_add(1, columns, v), x.scatter(0, few, v), x.scatter(1, few, v), x.scatter_add(0, few, v)),
            )

    rows = torch.export.Dim("rows", min=2, max=8)
    few = torch.tensor([[0, 2, 1], [2, 1, 0]])
    places = [torch.stack([torch.randperm(9)[:n] for _ in range(3)], 1) for n in (5, 2, 8, 6, 2)]
    calls = [(torch.randn(9, 4), at, few.roll(1, 0), torch.randn(at.shape[0], 3)) for at in places]
    return Model(), calls, (None, {0: rows}, None, {0: rows})


@dynamic("reduced-at-places-of-a-size")
def reduced_at_places_of_a_size() -> Built:
    """Fixed numbers that are compared with those at places of a tensor that changes, and with nothing else."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor, v: torch.Tensor) -> Any:
            return x.scatter_reduce(0, at, v, "amax"), x.scatter_reduce(1, at, v, "amin", include_self=False)

    rows = torch.export.Dim("rows", min=3, max=9)
    at = torch.tensor([[0, 2, 1], [2, 1, 2]])
    calls = [(torch.randn(n, 4), at.roll(n, 0), torch.randn(2, 3)) for n in (5, 3, 9, 6, 3)]
    return Model(), calls, ({0: rows}, None, None)


@dynamic("written-into-a-size")
def written_into_a_size() -> Built:
    """Fixed rows and columns that are written and added at places of a tensor that changes."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor, v: torch.Tensor) -> Any:
            column = v[:, :1].mT
            return (
                *(x.index_put((at,), v), x.index_put((at,), v, accumulate=True), x.index_put((at, at), v[:, 0])),
                *(
                    torch.ops.aten.index_put(x, [None, at], column),
                    x.index_copy(0, at, v),
                    x.index_add(0, at, v, alpha=2),
                ),
                *(x.mT.index_copy(1, at, v.mT), x.mT.index_add(1, at, v.mT), x.index_add(1, at, x[:, :2])),
                *(x.index_copy(1, at, x[:, 1:3]), x.index_fill(0, at, 0.5), x.index_fill(1, at, -0.5)),
            )

    rows = torch.export.Dim("rows", min=3, max=9)
    calls = [
        (torch.randn(n, 4), torch.tensor(at), torch.randn(2, 4)) for n, at in ((5, (2, 0)), (3, (1, 2)), (9, (0, 1)))
    ]
    return Model(), [*calls, calls[1]], ({0: rows}, None, None)


@dynamic("added-at-places")
def added_at_places() -> Built:
    """Rows whose number changes, added to and copied into a fixed tensor along its first axis and its last."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor, v: torch.Tensor) -> Any:
            return (
                *(x.index_add(0, at, v), x.index_copy(0, at, v), x.mT.index_add(1, at, v.mT, alpha=0.5)),
                *(x.mT.index_copy(1, at, v.mT), x.index_put((at,), v, accumulate=True), x.index_fill(0, at, 0.5)),
            )

    rows = torch.export.Dim("rows", min=1, max=7)
    calls = [(torch.randn(9, 4), torch.randperm(9)[:n], torch.randn(n, 4)) for n in (3, 1, 7, 2, 3)]
    return Model(), calls, (None, {0: rows}, {0: rows})


@dynamic("parts-of-a-size")
def parts_of_a_size() -> Built:
    """A fixed row, window and column put into a tensor that changes, and what changes put into a larger one."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, v: torch.Tensor, table: torch.Tensor) -> Any:
            return (
                *(x.select_scatter(v[0], 0, 1), x.select_scatter(v[0], 0, -1), x.slice_scatter(v, 0, 1, 3)),
                *(x.slice_scatter(v, 0, -2), x.slice_scatter(v, 0, 0, 3, 2), x.mT.slice_scatter(v.mT, 1, 0, 2)),
                *(x.select_scatter(x[:, 0], 1, 2), x.slice_scatter(x[:, :2], 1, 2), x.mT.select_scatter(v[1], 1, 0)),
                *(table.slice_scatter(x, 0, 1, x.shape[0] + 1), table.slice_scatter(x, 0, table.shape[0] - x.shape[0])),
            )

    rows = torch.export.Dim("rows", min=3, max=8)
    calls = [(torch.randn(n, 4), torch.randn(2, 4), torch.randn(9, 4)) for n in (5, 3, 8, 6, 3)]
    return Model(), calls, ({0: rows}, None, None)


@dynamic("masked-by-a-fixed-partner")
def masked_by_a_fixed_partner() -> Built:
    """A row, a column and one element that choose among what changes, and the other way round."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, row: torch.Tensor, mask: torch.Tensor) -> Any:
            chosen, column = row > 0, mask[:, None]
            return (
                *(torch.where(chosen, x, -x), torch.where(chosen, x, row), torch.where(column, x, row)),
                *(torch.where(column, row, 0.5), x.masked_fill(chosen, 0.5), row.masked_fill(column, -0.5)),
                *(torch.where(column, row[0, 0], row[0, 1]), x.maximum(row), x.clamp(row - 1, row), x > row),
                torch.where(chosen[:, :1], x, x * 2),
            )

    rows = torch.export.Dim("rows", min=1, max=9)
    calls = [(torch.randn(n, 4), torch.randn(1, 4), torch.randint(0, 2, (n,)) > 0) for n in (4, 1, 9, 6, 1)]
    return Model(), calls, ({0: rows}, None, {0: rows})


def cases() -> Iterator[Case]:
    """All of them."""
    yield from dynamic.cases.values()
