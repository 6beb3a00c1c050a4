"""Tuning where files run, ExecuTorch's own runtime: what is timed there, what is an estimate, and what is chosen."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from networks import NETWORKS, network
from referee import StockProgram
from torch import nn

import delegatekit
from delegatekit_tools.placement.clock import EngineMeasurer, RuntimeMeasurer
from delegatekit_tools.placement.stock import RefusedError, StockRuntime

#: The promise is 1.05: both figures have noise.
SLOWER = 1.05


class Net(nn.Module):
    """A convolution and what XNNPACK does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Conv2d(8, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.look(x).sort(1)[0]
        return found


MODEL, X = Net().eval(), (torch.randn(1, 8, 32, 32),)
#: The second is one that the runtime does not have.
IDS = {"xnnpack": "XnnpackBackend", "reference": "NobodyBackend"}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockRuntime]:
    found = StockRuntime(tmp_path_factory.mktemp("tuning"), {"forward": (X, {})}, IDS, runs=3, warm_up=1, cpu=False)
    assert not found.missing
    yield found
    found.renew()


def test_times_are_those_of_the_runtime(runtime: StockRuntime) -> None:
    alone, delegated = (delegatekit.lower(MODEL, X, backends=names) for names in ([], ["xnnpack"]))
    slow, quick = (min(runtime.alone(program)) for program in (alone, delegated))
    assert slow > 5 * quick  # its kernel of convolutions has no blocks and no vector instructions
    for program in (alone, delegated):
        times = runtime.instructions(program, "forward")
        assert len(times) == len(program.debug_map()["forward"]["instructions"]) and sum(times) > 0
    found = runtime.rounds([alone, delegated])
    assert all(one > other for one, other in zip(*found, strict=True))
    assert runtime.facts["runtime"].startswith("executorch 1.")


def test_a_delegate_that_the_runtime_does_not_have_is_an_estimate(runtime: StockRuntime) -> None:
    program = delegatekit.lower(MODEL, X, backends=["reference"])
    with pytest.raises(RefusedError, match="reference: ExecuTorch's runtime does not have its delegate"):
        runtime.alone(program)
    engine = EngineMeasurer({"forward": (X, {})}, runs=2, warm_up=0, cpu=False, reason="no delegate")
    measurer = RuntimeMeasurer(runtime, lambda reason: engine)
    (whole,) = measurer.wholes([program])
    assert not whole.seconds and whole.estimate
    pieces = measurer.instructions(program, "forward")
    assert pieces.estimate == "no delegate" and len(pieces.seconds) == len(
        program.debug_map()["forward"]["instructions"]
    )


def test_a_process_that_dies_is_replaced(runtime: StockRuntime) -> None:
    program = delegatekit.lower(MODEL, X, backends=["xnnpack"])
    runtime.alone(program)
    process = runtime._process
    assert process is not None
    os.kill(process._process.pid, signal.SIGKILL)
    time.sleep(0.2)
    assert runtime.alone(program)


@pytest.fixture(scope="module")
def chosen() -> Any:
    """The detector, lowered by its measurements, and what was measured."""
    module, inputs = network("detector")
    found = delegatekit.tune(module, inputs, backends=["xnnpack"], clock="CPU", runs=5)
    return found, delegatekit.lower(module, inputs, **delegatekit.placement(module, inputs, measurements=found))


def test_a_detector_is_not_slower_than_on_the_best_backend(chosen: Any) -> None:
    found, program = chosen
    module, inputs = network("detector")
    (tuned,) = found.programs.values()
    times = {item.name: item.seconds for item in tuned.candidates}
    assert times["runtime alone"] > 5 * times["xnnpack alone"] and not any(item.estimate for item in tuned.candidates)
    assert program.methods["forward"].delegates
    assert ratio(program, [delegatekit.lower(module, inputs, backends=["xnnpack"])], inputs) <= SLOWER


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "detector"])
def test_no_network_is_slower_than_on_the_best_backend(name: str) -> None:
    module, inputs = network(name)
    backends = ["xnnpack", "reference"]
    found = delegatekit.tune(module, inputs, backends=backends, clock="CPU")
    (tuned,) = found.programs.values()
    assert not any(item.estimate for item in tuned.candidates)  # delegatekit-executorch runs the reference's delegates
    program = delegatekit.lower(module, inputs, **delegatekit.placement(module, inputs, measurements=found))
    others = [delegatekit.lower(module, inputs, backends=names) for names in ([], ["xnnpack"])]
    assert ratio(program, others, inputs) <= SLOWER


def ratio(program: Any, others: Any, inputs: Any) -> float:
    """The least CPU time of a program in the stock runtime, over that of the quickest of others; 1 for equal files."""
    buffers = [item.buffer for item in (program, *others)]
    methods = [StockProgram(data).method() for data in buffers]
    least = [float("inf")] * len(methods)
    for _ in range(40):
        for index, method in enumerate(methods):
            start = time.process_time()
            method(inputs)
            least[index] = min(least[index], time.process_time() - start)
    best = min(range(1, len(methods)), key=least.__getitem__)
    return 1.0 if buffers[0] == buffers[best] else least[0] / least[best]
