"""Buffers that a program updates, as variables of the delegate, in both runtimes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_api import DelegatePayload, TensorSpec
from delegatekit_conformance import stock
from delegatekit_openvino.runtime import OpenVINORuntime

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
    """Compare five calls in both runtimes with eager; the numbers are whole, and so exact."""
    generator = torch.Generator().manual_seed(0)
    calls = [torch.randint(-3, 4, (3, 4), generator=generator).float() for _ in range(5)]
    program = delegatekit.lower(Model(update, dtype).eval(), (calls[0],), backends=["openvino"])
    assert _kept(program) == ["b_rows"]
    data = program.buffer  # must live as long as the methods
    ours, theirs = delegatekit.load(data)["forward"], stock.load(data, ["openvino"])
    eager = Model(update, dtype)
    for x in calls:
        wanted = [item.clone() for item in eager(x)]
        found = ours(x)
        for results in (found if isinstance(found, list | tuple) else (found,), theirs((x,))):
            for got, right in zip(results, wanted, strict=True):
                torch.testing.assert_close(torch.as_tensor(got), right, rtol=0, atol=0)


@pytest.mark.parametrize(
    "update",
    [
        lambda old, x: (old + x, (old + x) * 2),
        lambda old, x: (x, old * 2, x + old * 2),
        lambda old, x: (torch.cat([x[:1], old[:-1]]), torch.cat([x[:1], old[:-1]]) * 1, old - x),
        lambda old, x: (torch.maximum(old, x), torch.maximum(old, x)),
        lambda old, x: (x.sort(-1)[0], x.sort(-1)[1], old * 1),
    ],
    ids=["a sum", "the input", "a register", "the result", "one of several results"],
)
def test_a_buffer_is_a_variable(update: Update) -> None:
    _check(update)


_ROWS = torch.tensor([2, 0])


@pytest.mark.parametrize(
    "update",
    [
        lambda old, x: (old.index_copy(0, _ROWS, x[:2]), old.index_copy(0, _ROWS, x[:2]) * 2),
        lambda old, x: (old.index_copy(1, _ROWS, x[:, :2]), old.index_copy(1, _ROWS, x[:, :2]), old * 1),
        lambda old, x: (old.index_copy(1, _ROWS, x[:, :2]), old.index_copy(1, _ROWS, x[:, :2]).reshape(4, 3), old - x),
        lambda old, x: (
            old.index_copy(1, _ROWS, x[:, :2]).index_copy(0, _ROWS, x[1:]),
            old.index_copy(1, _ROWS, x[:, :2]).sum(0),
        ),
    ],
    ids=["rows", "columns, and the old value", "in another shape", "twice"],
)
def test_rows_of_a_buffer_are_written(update: Update) -> None:
    _check(update)


def test_a_row_of_a_large_buffer_is_written() -> None:
    class Cache(nn.Module):
        """The sum over a cache (1, 8, 640, 64), into which one row of each head is written."""

        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Buffer(torch.arange(8 * 640 * 64.0).reshape(1, 8, 640, 64) % 7)

        def forward(self, row: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            self.rows.index_copy_(2, at, row)
            return self.rows.amax(2) - row[:, :, 0]

    row = torch.randn(1, 8, 1, 64)
    program = delegatekit.lower(Cache().eval(), (row, torch.tensor([3])), backends=["openvino"])
    assert _kept(program) == ["b_rows"]
    data, eager = program.buffer, Cache()
    ours, theirs = delegatekit.load(data)["forward"], stock.load(data, ["openvino"])
    for place in (0, 639, 7, 639):
        call = row * place, torch.tensor([place])
        wanted = eager(*call)
        for found in (ours(*call), *theirs(call)):
            torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.int64])
def test_buffers_of_other_types(dtype: torch.dtype) -> None:
    _check(lambda old, x: (old + x.to(old.dtype), (old + x.to(old.dtype)).float() * 2), dtype)


def test_counters_count_with_the_variables_and_starting_anew_sets_them_back() -> None:
    x = torch.ones(3, 4)
    program = delegatekit.lower(Model(lambda old, x: (old + x, old * 2)).eval(), (x,), backends=["openvino"])
    (delegate,) = program.methods["forward"].delegates
    specs, kind = tuple(delegate.compile_specs), TensorSpec("float32", (3, 4))
    blob = b"".join(map(bytes, delegate.blob))
    payload = DelegatePayload("OpenvinoBackend", memoryview(blob), specs, (kind,), (kind,), {}, bytes)
    runtime, output = OpenVINORuntime(), torch.empty(3, 4)
    handle = runtime.init(payload)
    for call, run in enumerate((runtime.execute, runtime.profile, runtime.profile, runtime.execute)):
        run(handle, [x], [output])
        assert torch.equal(output, (torch.arange(12.0).reshape(3, 4) % 5 + call) * 2)
    method = delegatekit.load(program.buffer)["forward"]
    first, second = (torch.clone(method(x)[0]) for _ in range(2))
    method.reset()
    assert torch.equal(method(x)[0], first) and torch.equal(second, first + 2)


@pytest.mark.parametrize("calls", [0, 1])
def test_a_profile_begins_with_the_buffers_first_values(calls: int) -> None:
    x = torch.ones(3, 4)
    model = Model(lambda old, x: (old + x, old * 2)).eval()
    method = delegatekit.load(delegatekit.lower(model, (x,), backends=["openvino"]).buffer)["forward"]
    for _ in range(calls):
        method(x)
    method.reset()
    method.record_operators((x,))
    assert torch.equal(method(x)[0], (torch.arange(12.0).reshape(3, 4) % 5 + 1) * 2)


def test_a_buffer_that_openvino_cannot_hold_stays_outside() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = nn.Buffer(torch.full((2,), 1 << 40))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return self.count * 0 + x

    program = delegatekit.lower(Wide().eval(), (torch.ones(2),), backends=["openvino"])
    assert not _kept(program)
