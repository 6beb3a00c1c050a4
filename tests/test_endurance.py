"""Every backend's runtime under load: threads, loads by the thousand, processes forked and spawned while it runs."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

import delegatekit
from delegatekit.plugins import backends, get_backend
from delegatekit_api import DelegateKitError

#: Backend -> the scheme of its quantization, where it takes nothing in float.
_SCHEMES = {"cortexm": "int8", "ethosu": "int8"}
#: Takes only an operator of its own, which its own tests call.
_OWN = frozenset({"llama"})
#: (Those of compilers of ExecuTorch, whose names have a dot, run in the others' runtimes.)
_BACKENDS = sorted(
    name
    for name, info in backends(check=False).items()
    if info.status != "not allowed" and "." not in name and name not in _OWN
)
#: Runtimes that simulate a device slowly: a share of the calls.
_SLOW = {"qnn": 20, "ethosu": 4}
X = torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8)


class Net(nn.Module):
    """A model that every backend takes, with one more result so that not all is the delegate's."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def program() -> Callable[[str], bytes]:
    """The file of `Net` for a backend, which delegates something; skips where its compiler or runtime cannot work."""
    made: dict[str, bytes] = {}

    def lowered(name: str) -> bytes:
        backend = get_backend(name)
        for found in (backend.compiler_availability(), backend.runtime_availability()):
            if not found.available:
                pytest.skip(found.reason)
        if name not in made:
            net: Any = Net().eval()
            if name in _SCHEMES:
                net = delegatekit.quantize(net, [(X,)], backend=name, scheme=_SCHEMES[name])
            lowering = delegatekit.lower(net, (X,), backends=[name])
            assert all(method.delegates for method in delegatekit.report(lowering).methods)
            made[name] = lowering.buffer
        return made[name]

    return lowered


def inputs(number: int) -> torch.Tensor:
    """The inputs of one call."""
    return torch.randn(X.shape, generator=torch.Generator().manual_seed(number % 7))


def fewer(name: str, count: int) -> int:
    """The number of calls that a backend's runtime makes in reasonable time, at most `count`."""
    return max(2, count // _SLOW.get(name, 1))


CALLS = [pytest.param(6, id="few"), pytest.param(200, marks=pytest.mark.slow, id="many")]


@pytest.mark.sweep
@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("name", _BACKENDS)
def test_four_threads_compute_what_one_computes(name: str, calls: int, program: Callable[[str], bytes]) -> None:
    data, calls = program(name), fewer(name, calls)
    alone = delegatekit.load(data)["forward"]
    expected = [alone(inputs(number)) for number in range(min(calls + 4, 7))]

    def work(thread: int, session: Any) -> None:
        method = session["forward"]
        for number in range(thread, thread + calls):
            assert torch.equal(method(inputs(number)), expected[number % 7 % len(expected)])

    shared = delegatekit.load(data)
    with ThreadPoolExecutor(4) as pool:
        # Two have a session of one program each, two a program of their own.
        sessions = [shared.new_session(), shared.new_session(), delegatekit.load(data), delegatekit.load(data)]
        for done in [pool.submit(work, thread, session) for thread, session in enumerate(sessions)]:
            done.result()


@pytest.mark.sweep
@pytest.mark.parametrize("cycles", [pytest.param(24, id="few"), pytest.param(2000, marks=pytest.mark.slow, id="many")])
@pytest.mark.parametrize("name", _BACKENDS)
def test_loads_leave_nothing_behind(name: str, cycles: int, program: Callable[[str], bytes]) -> None:
    data, cycles = program(name), fewer(name, cycles)
    x = inputs(0)
    expected = delegatekit.load(data)["forward"](x)
    state = []
    for number in range(cycles):
        loaded = delegatekit.load(data)
        method = loaded["forward"]
        if number % 8 == 0:
            assert torch.equal(method(x), expected)
        method.close()
        del method, loaded
        if number in (cycles // 4, cycles - 1):
            gc.collect()
            process = psutil.Process()
            state.append(
                (process.num_fds(), threading.active_count(), len(process.children()), process.memory_info().rss)
            )
    before, after = state
    assert after[0] <= before[0] + 4 and after[1] <= before[1] + 2 and after[2] <= before[2] + 1
    # Heaps fluctuate: only growth per load counts.
    assert after[3] - before[3] < (16 << 20) + 2048 * cycles


def _answer(data: bytes, file: str) -> None:
    """The work of a process: run the program, and save the result."""
    torch.set_num_threads(1)  # a fork has none of the threads that PyTorch's kernels wait for
    torch.save(delegatekit.load(data)["forward"](inputs(1)), file + ".part")
    Path(file + ".part").replace(file)


@pytest.mark.parametrize("rounds", [pytest.param(1, id="once"), pytest.param(10, marks=pytest.mark.slow, id="often")])
@pytest.mark.parametrize("way", ["spawn", "fork"])
@pytest.mark.parametrize("name", _BACKENDS)
def test_a_process_that_is_started_by_one_that_runs_computes_the_same(
    name: str, way: str, rounds: int, program: Callable[[str], bytes], tmp_path: Path
) -> None:
    if way == "spawn" and rounds == 1 and name != "xnnpack":
        pytest.skip("a new interpreter for each backend takes long: those run where tests may be slow")
    data = program(name)
    here = delegatekit.load(data)["forward"]
    expected = here(inputs(1))
    if name in ("openvino", "vulkan") and way == "fork":
        # They have threads, which a fork lacks: refused at once, instead of a hang.
        assert _forked(lambda: _refused(data)) == 0
        assert torch.equal(here(inputs(1)), expected)
        return
    for number in range(rounds):
        file = str(tmp_path / f"{number}.pt")
        if way == "spawn":
            process = multiprocessing.get_context("spawn").Process(target=_answer, args=(data, file))
            process.start()
            process.join(300)
            code = process.exitcode
        else:
            code = _forked(lambda file=file: _answer(data, file))
        assert code == 0
        assert torch.equal(torch.load(file), expected)
        assert torch.equal(here(inputs(1)), expected), "the process itself keeps working"


def _refused(data: bytes) -> None:
    with pytest.raises(DelegateKitError, match="forked"):
        delegatekit.load(data)["forward"](inputs(1))


def _forked(work: Callable[[], None], seconds: float = 300.0) -> int | None:
    """The exit code of a fork that does something; None if it hangs."""
    if sys.platform == "win32":
        pytest.skip("needs fork")
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None
