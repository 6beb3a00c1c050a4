"""The runtime: profiles, threads, and calls that do not fit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import delegatekit
from delegatekit_api import ExecutionError
from delegatekit_conformance import testkit


def test_times_are_told_with_the_calls_that_they_come_from() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4))
    x = torch.randn(1, 3, 8, 8)
    program = delegatekit.lower(net.eval(), (x,), backends=["mlx"])
    text = str(delegatekit.profile(delegatekit.load(program.buffer)["forward"], (x,), debug_map=program.debug_map()))
    rows = [line.split() for line in text.splitlines() if line.endswith("mlx")]
    # All but the view are told by their own modules, which share the whole time.
    assert {row[4] for row in rows} == {"method", "0", "1", "2", "3"} and rows[0][0] == "100.0"
    assert sum(float(row[0]) for row in rows[1:]) == pytest.approx(100, abs=0.5)


def test_handles_of_their_own_run_in_several_threads() -> None:
    lowered = testkit.lower(torch.nn.Linear(8, 4), torch.randn(2, 8), backend="mlx")
    methods = [delegatekit.load(lowered.buffer)["forward"] for _ in range(3)]
    inputs = [torch.randn(2, 8) for _ in methods]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda pair: pair[0](pair[1]), zip(methods, inputs, strict=True)))
    for result, given in zip(results, inputs, strict=True):
        found = result[0] if isinstance(result, list | tuple) else result
        torch.testing.assert_close(found, lowered.module(given))


@pytest.mark.parametrize("places", [[0, 5], [-7, 0]])
def test_an_index_beyond_the_end_is_an_error(places: list[int]) -> None:
    """MLX reads any memory there."""
    table, at = torch.randn(5, 3), torch.tensor([0, 1])
    lowered = testkit.lower(lambda index: table[index] * 2, at, backend="mlx")
    with pytest.raises(ExecutionError, match="beyond the end of an axis of 5"):
        lowered.run(torch.tensor(places))


@pytest.mark.parametrize(("number", "divisor"), [(7, 0), (-(2**31), -1)])
def test_quotients_that_no_integer_is_are_errors(number: int, divisor: int) -> None:
    """The processor would end the process, or the result be any number."""
    pair = torch.tensor([6], dtype=torch.int32), torch.tensor([3], dtype=torch.int32)
    lowered = testkit.lower(lambda x, y: torch.div(x, y, rounding_mode="floor") + 1, *pair, backend="mlx")
    with pytest.raises(ExecutionError, match="divided by"):
        lowered.run(*(torch.tensor([item], dtype=torch.int32) for item in (number, divisor)))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not list threads there")
def test_threads_that_call_leave_none_behind() -> None:
    lowered = testkit.lower(torch.nn.Linear(8, 4), torch.randn(2, 8), backend="mlx")
    method = delegatekit.load(lowered.buffer)["forward"]
    method(torch.randn(2, 8))
    before = len(list(Path("/proc/self/task").iterdir()))
    for _ in range(10):
        thread = threading.Thread(target=method, args=(torch.randn(2, 8),))
        thread.start()
        thread.join()
    # A thread that has ended may still be listed; MLX's own would be ten.
    assert len(list(Path("/proc/self/task").iterdir())) < before + 5


_FORKED = """
import os, torch
from delegatekit_conformance import testkit
lowered = testkit.lower(torch.nn.Linear(8, 4), torch.ones(2, 8), backend="mlx")
lowered.run()
child = os.fork()
if not child:
    torch.testing.assert_close(lowered.run(), lowered.eager())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_process_computes_on_a_stream_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", _FORKED], check=True, timeout=60)
