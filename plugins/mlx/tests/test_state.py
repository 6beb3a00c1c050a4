"""Buffers that a program updates, kept by the delegate."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_api import ExecutionError

Update = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]


class Model(nn.Module):
    """Results, and a new value of the buffer, from the old one and an input: (3, 4) all."""

    def __init__(self, update: Update, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.update = update
        self.rows = nn.Buffer((torch.arange(12).reshape(3, 4) % 5).to(dtype))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        new, *results = self.update(self.rows, x)
        self.rows.copy_(new)
        return tuple(results)


def _kept(program: delegatekit.LoweredProgram) -> list[str]:
    return [node.name for one in program.methods["forward"].delegates for node in one.partition.buffers]


def _check(update: Update, dtype: torch.dtype = torch.float32) -> None:
    """Compare five calls with eager, then two after a reset; the numbers are whole, and so exact."""
    generator = torch.Generator().manual_seed(0)
    calls = [torch.randint(-3, 4, (3, 4), generator=generator).float() for _ in range(5)]
    program = delegatekit.lower(Model(update, dtype).eval(), (calls[0],), backends=["mlx"])
    assert _kept(program) == ["b_rows"]
    method = delegatekit.load(program.buffer)["forward"]
    for series in (calls, calls[:2]):
        eager = Model(update, dtype)
        for x in series:
            found = method(x)
            for got, right in zip(found if isinstance(found, list | tuple) else (found,), eager(x), strict=True):
                torch.testing.assert_close(torch.as_tensor(got), right, rtol=0, atol=0)
        method.reset()


_ROWS = torch.tensor([2, 0])


@pytest.mark.parametrize(
    "update",
    [
        lambda old, x: (old + x, (old + x) * 2),
        lambda old, x: (x, old * 2, x + old * 2),
        lambda old, x: (torch.cat([x[:1], old[:-1]]), torch.cat([x[:1], old[:-1]]) * 1, old - x),
        lambda old, x: (torch.maximum(old, x), torch.maximum(old, x)),
        lambda old, x: (old.index_copy(0, _ROWS, x[:2]), old.index_copy(0, _ROWS, x[:2]) * 2, old * 1),
        lambda old, x: (old.index_copy(1, _ROWS, x[:, :2]), old.index_copy(1, _ROWS, x[:, :2]).reshape(4, 3) * 2),
    ],
    ids=["a sum", "the input", "a register", "the result", "rows", "columns"],
)
def test_a_buffer_is_kept(update: Update) -> None:
    _check(update)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8])
def test_buffers_of_other_types(dtype: torch.dtype) -> None:
    _check(lambda old, x: (old + x.to(old.dtype), (old + x.to(old.dtype)).float() * 2), dtype)


def test_two_buffers_that_change_places() -> None:
    class Swapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Buffer(torch.zeros(2)), nn.Buffer(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = self.left * 10 + self.right + x
            left = self.left * 1
            self.left.copy_(self.right)
            self.right.copy_(left)
            return made

    x = torch.zeros(2)
    method = delegatekit.load(delegatekit.lower(Swapped().eval(), (x,), backends=["mlx"]).buffer)["forward"]
    eager = Swapped()
    for _ in range(4):
        torch.testing.assert_close(torch.as_tensor(method(x)), eager(x))


def test_a_failed_call_leaves_the_buffers_as_they_were() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Buffer(torch.zeros(3))

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            self.rows.add_(x)
            return self.rows[at] * 2

    inputs = torch.ones(3), torch.tensor([1])
    method = delegatekit.load(delegatekit.lower(Rows().eval(), inputs, backends=["mlx"]).buffer)["forward"]
    method(*inputs)
    with pytest.raises(ExecutionError, match="index 9 is beyond the end of an axis of 3"):
        method(torch.ones(3), torch.tensor([9]))
    assert torch.as_tensor(method(*inputs)).item() == 4
