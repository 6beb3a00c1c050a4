"""One loaded program in many threads, a session for each, with real delegates: the same bits as in one thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import delegatekit

pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")

THREADS, CALLS = 8, 12


class Prefill(nn.Module):
    """Writes rows into the cache, in one call."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        self.register_buffer("cache", torch.zeros(16, 16))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, position, self.layer(x))
        return torch.atan(self.layer(x)) + self.cache.mean(0)


class Decode(nn.Module):
    """Writes one row, and attends to all."""

    def __init__(self, prefill: Prefill) -> None:
        super().__init__()
        self.layer, self.cache = prefill.layer, nn.Buffer(prefill.cache)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, position, self.layer(x))
        return torch.softmax(torch.atan(x) @ self.cache.t(), -1) @ self.cache


@pytest.fixture(scope="module")
def program_bytes() -> bytes:
    prefill = Prefill().eval()
    decode = Decode(prefill).eval()
    n = Dim("n", min=2, max=8)
    rows, row = (torch.randn(4, 16), torch.arange(4)), (torch.randn(1, 16), torch.tensor([4]))
    methods = {
        "prefill": torch.export.export(prefill, rows, dynamic_shapes={"x": {0: n}, "position": {0: n}}, strict=False),
        "decode": torch.export.export(decode, row, strict=False),
    }
    program = delegatekit.lower(methods, backends=["xnnpack"])
    assert all(method.delegates for method in delegatekit.report(program).methods)
    return program.buffer


def generate(session: Any, seed: int) -> list[torch.Tensor]:
    """A prompt of some length, then single rows; outputs are fed back."""
    generator = torch.Generator().manual_seed(seed)
    length = 2 + seed % 7
    results = [session["prefill"](torch.randn(length, 16, generator=generator), torch.arange(length))]
    for step in range(CALLS):
        position = torch.tensor([(length + step) % 16])
        results.append(session["decode"](results[-1][-1:], position))
    return results


def test_sessions_in_threads_compute_the_same_bits_as_one_thread(program_bytes: bytes) -> None:
    program = delegatekit.load(program_bytes)
    alone = []
    for seed in range(THREADS):
        program.reset()
        alone.append(generate(program, seed))
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(lambda seed: generate(program.new_session(), seed), range(THREADS)))
    for one, many in zip(alone, together, strict=True):
        assert all(map(torch.equal, one, many))


def test_a_session_computes_what_eager_computes(program_bytes: bytes) -> None:
    prefill = Prefill().eval()
    eager = {"prefill": prefill, "decode": Decode(prefill).eval()}
    with torch.no_grad():
        expected = generate(eager, 5)
    for mine, yours in zip(generate(delegatekit.load(program_bytes), 5), expected, strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-5, atol=1e-5)


def test_methods_are_made_in_threads_from_the_first_use_on(program_bytes: bytes) -> None:
    """Nothing is loaded yet: plugins, runtimes and methods are found by all threads at once."""
    for _ in range(3):
        program = delegatekit.load(program_bytes)
        with ThreadPoolExecutor(THREADS) as pool:
            first = list(pool.map(program.__getitem__, ["prefill"] * THREADS))
        assert len(set(map(id, first))) == 1
