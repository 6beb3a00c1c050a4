"""State: buffers that calls read and change. Several calls, each with the state of the former ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .base import Case
from .keeping import KeptState
from .subjects import Built, Register

state = Register("state", stateful=True, cost=0.5)


@state("counter")
def counter() -> Built:
    """An integer that counts calls."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = nn.Buffer(torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> Any:
            self.count.add_(1)
            return x * self.count, self.count + 0

    return Model(), [(torch.randn(3),) for _ in range(4)]


@state("read-before-write")
def read_before_write() -> Built:
    """The old value is returned, the new one kept."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Buffer(torch.randn(2, 3))

        def forward(self, x: torch.Tensor) -> Any:
            before = self.last * 2
            self.last.copy_(x)
            return before, x + before

    return Model(), [(torch.randn(2, 3),) for _ in range(4)]


@state("running-mean")
def running_mean() -> Built:
    """A moving average of the inputs, subtracted."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Buffer(torch.zeros(4))

        def forward(self, x: torch.Tensor) -> Any:
            self.mean.mul_(0.75).add_(0.25 * x.mean(0))
            return x - self.mean

    return Model(), [(torch.randn(3, 4),) for _ in range(5)]


@state("accumulate")
def accumulate() -> Built:
    """A sum over all calls, beside an independent network."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.total = nn.Buffer(torch.zeros(2, 4))

        def forward(self, x: torch.Tensor) -> Any:
            y = torch.tanh(self.layer(x))
            self.total.add_(y)
            return self.total.relu(), y

    return Model(), [(torch.randn(2, 4),) for _ in range(4)]


@state("exchange")
def exchange() -> Built:
    """Two buffers are exchanged in every call."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Buffer(torch.randn(3))
            self.b = nn.Buffer(torch.randn(3))

        def forward(self, x: torch.Tensor) -> Any:
            old = self.a.clone()
            self.a.copy_(self.b)
            self.b.copy_(old)
            return x + self.a, x * self.b

    return Model(), [(torch.randn(3),) for _ in range(3)]


@state("shift-register")
def shift_register() -> Built:
    """The last four inputs, the newest first."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.window = nn.Buffer(torch.zeros(4, 3))

        def forward(self, x: torch.Tensor) -> Any:
            self.window.copy_(torch.cat([x[None], self.window[:-1]]))
            return self.window.mean(0), self.window * 1

    return Model(), [(torch.randn(3),) for _ in range(6)]


@state("cache-at-position")
def cache_at_position() -> Built:
    """Keys and values are written at a position that is an input; attention reads the whole cache."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.keys = nn.Buffer(torch.zeros(1, 2, 6, 4))
            self.values = nn.Buffer(torch.zeros(1, 2, 6, 4))

        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, place: torch.Tensor) -> Any:
            self.keys.index_copy_(2, place, k)
            self.values.index_copy_(2, place, v)
            allowed = torch.arange(6) <= place
            return nn.functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=allowed[None])

    def call(place: Any) -> Any:
        return (*(torch.randn(1, 2, 1, 4) for _ in range(3)), torch.tensor([place]))

    return Model(), [call(place) for place in (0, 1, 2, 3, 5, 4)]


@state("cache-counts-itself")
def cache_counts_itself() -> Built:
    """A cache with its own position, written to by index_put."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Buffer(torch.zeros(5, 3))
            self.place = nn.Buffer(torch.zeros(1, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> Any:
            self.rows.index_put_((self.place,), x)
            self.place.add_(1)
            return self.rows.cumsum(0), self.place + 0

    return Model(), [(torch.randn(1, 3),) for _ in range(5)]


@state("cache-rows-by-index")
def cache_rows_by_index() -> Built:
    """Rows of a batch of one are assigned, some counted from the end; others are added to."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.keys = nn.Buffer(torch.zeros(1, 2, 6, 4))
            self.seen = nn.Buffer(torch.zeros(6, 2))

        def forward(self, k: torch.Tensor, places: torch.Tensor) -> Any:
            self.keys[:, :, places] = k
            self.seen.index_add_(0, places % 6, k[0, :, :, 0].t())
            return self.keys * 2, self.seen + 0

    return Model(), [(torch.randn(1, 2, 2, 4), torch.tensor(places)) for places in ([0, 2], [-1, 3], [4, -5])]


@state("slice-assignment")
def slice_assignment() -> Built:
    """A part of a buffer at a fixed place is overwritten."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.board = nn.Buffer(torch.zeros(4, 5))

        def forward(self, x: torch.Tensor) -> Any:
            self.board[1:3, ::2] = x
            self.board[0].add_(1)
            return self.board.tanh()

    return Model(), [(torch.randn(2, 3),) for _ in range(3)]


@state("parts-of-layers")
def parts_of_layers() -> Built:
    """A cache whose rows are assigned by a layer, through one view and through two; and parts of a layer's result."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 6)
            self.cache = nn.Buffer(torch.zeros(3, 2, 6))

        def forward(self, x: torch.Tensor) -> Any:
            y = self.first(x)
            self.cache[2].copy_(self.cache[1])
            self.cache[1:2, 1] = y[:1]
            y[:, 1:3].add_(1.5)
            y.view(-1)[3::6] = 0.25
            scores = self.last(y.relu()) @ self.cache.view(6, 6).T
            return scores.softmax(-1) @ self.cache.view(6, 6), y + 1.0, self.cache * 0.5

    return Model(), [(torch.randn(2, 4),) for _ in range(4)]


@state("recurrent-cell")
def recurrent_cell() -> Built:
    """A recurrent cell that keeps its hidden state."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inputs, self.hidden = nn.Linear(3, 5), nn.Linear(5, 5)
            self.state = nn.Buffer(torch.zeros(1, 5))

        def forward(self, x: torch.Tensor) -> Any:
            self.state.copy_(torch.tanh(self.inputs(x) + self.hidden(self.state)))
            return self.state * 2

    return Model(), [(torch.randn(1, 3),) for _ in range(5)]


@state("convolution-stream")
def convolution_stream() -> Built:
    """A causal convolution over a stream: the end of each piece is kept for the next."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(2, 3, 3)
            self.tail = nn.Buffer(torch.zeros(1, 2, 2))

        def forward(self, x: torch.Tensor) -> Any:
            joined = torch.cat([self.tail, x], 2)
            self.tail.copy_(joined[:, :, -2:])
            return self.conv(joined).relu()

    return Model(), [(torch.randn(1, 2, 4),) for _ in range(4)]


@state("buffer-read-only")
def buffer_read_only() -> Built:
    """One buffer changes, one of the same shape and values must not."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fixed = nn.Buffer(torch.ones(3))
            self.moving = nn.Buffer(torch.ones(3))

        def forward(self, x: torch.Tensor) -> Any:
            self.moving.mul_(1.5)
            return x * self.fixed, x * self.moving

    return Model(), [(torch.randn(3),) for _ in range(3)]


@state("written-twice")
def written_twice() -> Built:
    """A buffer is read, written, read and written again in one call."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value = nn.Buffer(torch.ones(2, 2))

        def forward(self, x: torch.Tensor) -> Any:
            first = self.value + x
            self.value.copy_(first.tanh())
            second = self.value @ x
            self.value.add_(second.sigmoid())
            return first, second

    return Model(), [(torch.randn(2, 2),) for _ in range(4)]


@state("input-kept")
def input_kept() -> Built:
    """The input of this call is the output of the next: a copy must be kept, not a pointer."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Buffer(torch.zeros(3))

        def forward(self, x: torch.Tensor) -> Any:
            out = self.last.clone()
            self.last.copy_(x)
            return out

    return Model(), [(torch.randn(3),) for _ in range(4)]


@state("length-changes")
def length_changes() -> Built:
    """A sum over calls of different lengths."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = nn.Buffer(torch.zeros(4))

        def forward(self, x: torch.Tensor) -> Any:
            self.total.add_(x.sum(0))
            return x + self.total

    rows = torch.export.Dim("rows", min=1, max=7)
    return Model(), [(torch.randn(n, 4),) for n in (3, 1, 7, 2, 1)], ({0: rows},)


@state("kinds-of-buffers")
def kinds_of_buffers() -> Built:
    """Buffers that few devices keep: float64, nine axes, booleans, no elements."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Buffer(torch.zeros(3, dtype=torch.float64))
            self.deep = nn.Buffer(torch.zeros(1, 1, 1, 1, 1, 1, 1, 1, 3))
            self.truth = nn.Buffer(torch.tensor([True, False, True]))
            self.empty = nn.Buffer(torch.zeros(0, 3))

        def forward(self, x: torch.Tensor) -> Any:
            self.wide.add_(x)
            self.deep.add_(x)
            self.truth.logical_xor_(x > 0)
            self.empty.mul_(x)
            return x + self.deep, x * self.wide, torch.where(self.truth, x, 0.0), self.empty.sum(0) + x

    return Model(), [(torch.randn(3),) for _ in range(3)]


def cases() -> Iterator[Case]:
    """All of them, and the same where delegates keep buffers only with an option."""
    yield from state.cases.values()
    yield KeptState(state.cases)
