"""The Python engine: what it adds to each instruction, and graphs without any backend against the stock runtime.

    python benchmarks/engine.py
    python benchmarks/engine.py --rounds 50

One thread, both sides interleaved in one run, medians of CPU time. The first table compares calls of a method with the
same kernels and delegates called in a plain loop, arguments bound before. The second runs one file, whose operators
are all left to the runtime's kernels, in both engines.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import nn
from torch.export import Dim

import delegatekit
from delegatekit.pte import PteImage, schema, to_bytes
from delegatekit_api import Availability

#: Instructions of the chains.
LENGTH = 1000
#: Sizes of the dynamic chains' calls.
SMALL, LARGE = 4, 8


@dataclass
class Subject:
    """A method's call and the same work in a plain loop; `count` instructions each."""

    engine: Callable[[], Any]
    plain: Callable[[], Any]
    count: int = LENGTH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.no_grad():
        print("| instruction | engine us | the calls alone us | engine above it us |")
        print("|---|---|---|---|")
        for name, make_subject in INSTRUCTIONS.items():
            subject = make_subject()
            engine, plain = interleaved([subject.engine, subject.plain], arguments.rounds)
            cells = [f"{1e6 * seconds / subject.count:.2f}" for seconds in (engine, plain, engine - plain)]
            print("| " + " | ".join([name, *cells]) + " |", flush=True)
        print("\n| graph | kernel calls | eager ms | stock ms | engine ms | engine / eager | engine / stock |")
        print("|---|---|---|---|---|---|---|")
        for name, make_graph in GRAPHS.items():
            print(compare(name, *make_graph(), rounds=max(5, arguments.rounds // 4)), flush=True)


def interleaved(functions: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Median CPU seconds of each function."""
    times: list[list[float]] = [[] for _ in functions]
    for number in range(rounds + 2):
        for function, found in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            if number >= 2:  # the first calls warm up
                found.append(time.process_time() - start)
    return [statistics.median(found) for found in times]


# -- instructions ----------------------------------------------------------------------------------------------------

#: What the chain calls in turn.
_KERNELS = (torch.add, torch.mul, torch.atan)


class Chain(nn.Module):
    """Operators on a few elements, with almost no computation."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for index in range(LENGTH):
            function: Any = _KERNELS[index % 3]
            x, y = (function(x) if function is torch.atan else function(x, y)), x
        return x


def plain_chain(size: int) -> Callable[[], None]:
    """The chain's kernels with their arguments bound."""
    x, y = torch.randn(size), torch.randn(size)
    calls: list[Callable[[], Any]] = []
    for index in range(LENGTH):
        function, result = _KERNELS[index % 3], torch.empty(size)
        given = (x,) if function is torch.atan else (x, y)
        calls.append(partial(function, *given, out=result))
        x, y = result, x

    def run() -> None:
        for call in calls:
            call()

    return run


def chain(*sizes: int, dynamic: bool = False) -> Subject:
    """The chain, with inputs of these sizes in turn."""
    shapes = {"x": {0: Dim("n", max=LARGE)}, "y": {0: Dim("n", max=LARGE)}} if dynamic else None
    exported = torch.export.export(
        Chain(), (torch.randn(SMALL), torch.randn(SMALL)), dynamic_shapes=shapes, strict=False
    )
    method = delegatekit.load(delegatekit.lower(exported, backends=[]).buffer)["forward"]
    inputs = cycle([(torch.randn(size), torch.randn(size)) for size in sizes])
    loops = cycle([plain_chain(size) for size in sizes])

    def plain() -> None:
        loop = next(loops)
        loop()

    return Subject(lambda: method(*next(inputs)), plain)


def numbers(*sizes: int) -> Subject:
    """Sizes that are computed and returned; the plain side does nothing."""

    class Numbers(nn.Module):
        def forward(self, x: torch.Tensor) -> list[int]:
            return [x.shape[0] * index + index for index in range(1, count + 1)]

    count = 200
    exported = torch.export.export(
        Numbers(), (torch.randn(SMALL),), dynamic_shapes={"x": {0: Dim("n", max=LARGE)}}, strict=False
    )
    buffer = delegatekit.lower(exported, backends=[]).buffer
    calls = delegatekit.inspect(buffer).methods[0].operators
    method = delegatekit.load(buffer)["forward"]
    inputs = cycle([torch.randn(size) for size in sizes])
    return Subject(lambda: method(next(inputs)), lambda: None, sum(calls.values()))


class Nothing:
    """A runtime whose delegates do nothing."""

    def is_available(self) -> Availability:
        return Availability(True)

    def init(self, payload: Any) -> Any:
        return payload

    def execute(self, handle: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        pass

    def destroy(self, handle: Any) -> None:
        pass


def empty_delegates(*sizes: int, dynamic: bool = False) -> Subject:
    """Delegate calls, one after the other, of a runtime that does nothing."""

    def value(index: int) -> schema.EValue:
        place = schema.AllocationDetails(1, 64 * (index % 2), 0)
        return schema.EValue(
            schema.Tensor(6, sizes=[LARGE], dim_order=b"\0", allocation_info=place, shape_dynamism=int(dynamic))
        )

    plan = schema.ExecutionPlan(
        name="forward",
        container_meta_type=schema.ContainerMetadata("", ""),
        values=[value(index) for index in range(LENGTH + 1)],
        inputs=[0],
        outputs=[LENGTH],
        chains=[schema.Chain([], [], [schema.Instruction(schema.DelegateCall(i, [i, i + 1])) for i in range(LENGTH)])],
        operators=[],
        delegates=[
            schema.BackendDelegate("Nothing", schema.BackendDelegateDataReference(1, 0), []) for _ in range(LENGTH)
        ],
        non_const_buffer_sizes=[0, 128],
    )
    runtime = Nothing()
    found: Any = SimpleNamespace(
        name="nothing", runtime_availability=lambda: Availability(True), create_runtime=lambda: runtime
    )
    data = to_bytes(PteImage((plan,), delegate_blobs=(b"blob",)))
    method = delegatekit.load(data, find_backend=lambda name: found)["forward"]
    inputs = cycle([torch.randn(size) for size in sizes])
    given, taken = [torch.randn(LARGE)], [torch.randn(LARGE)]

    def plain() -> None:
        for _ in range(LENGTH):
            runtime.execute(None, given, taken)

    return Subject(lambda: method(next(inputs)), plain)


class Recording:
    """Another runtime, whose calls are recorded."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.calls: list[Callable[[], Any]] = []
        self.is_available, self.init, self.destroy = runtime.is_available, runtime.init, runtime.destroy

    def execute(self, handle: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        self.calls.append(partial(self.runtime.execute, handle, tuple(inputs), tuple(outputs)))
        self.calls[-1]()


def xnnpack_delegates() -> Subject:
    """XNNPACK delegates of a few elements; between two of them a kernel (atan) that XNNPACK lacks."""

    class Alternating(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            for _ in range(100):
                x = torch.atan(x + y)
            return x

    example = (torch.randn(SMALL), torch.randn(SMALL))
    buffer = delegatekit.lower(torch.export.export(Alternating(), example, strict=False), backends=["xnnpack"]).buffer
    recording: list[Recording] = []

    def find(delegate_id: str) -> Any:
        backend = delegatekit.plugins.find_by_delegate_id(delegate_id)
        recording.append(Recording(backend.create_runtime()))
        return SimpleNamespace(
            name=backend.name, runtime_availability=backend.runtime_availability, create_runtime=lambda: recording[0]
        )

    delegatekit.load(buffer, find_backend=find)["forward"](*example)
    method = delegatekit.load(buffer)["forward"]
    kernels = [partial(torch.atan, torch.randn(SMALL), out=torch.empty(SMALL)) for _ in recording[0].calls]

    def plain() -> None:
        for delegate, kernel in zip(recording[0].calls, kernels, strict=True):
            delegate()
            kernel()

    return Subject(lambda: method(*example), plain, 2 * len(kernels))


INSTRUCTIONS: dict[str, Callable[[], Subject]] = {
    "kernel": lambda: chain(SMALL),
    "kernel, sizes may change, but do not": lambda: chain(SMALL, dynamic=True),
    "kernel, other sizes in each call": lambda: chain(SMALL, LARGE, dynamic=True),
    "number, sizes do not change": lambda: numbers(SMALL),
    "number, other sizes in each call": lambda: numbers(SMALL, LARGE),
    "delegate": lambda: empty_delegates(LARGE),
    "delegate, sizes may change, but do not": lambda: empty_delegates(LARGE, dynamic=True),
    "delegate, other sizes in each call": lambda: empty_delegates(SMALL, LARGE, dynamic=True),
    "XNNPACK delegate and kernel in turn": xnnpack_delegates,
}


# -- graphs ----------------------------------------------------------------------------------------------------------


class Mix(nn.Module):
    """Norms, softmax, choices, indices, sums and shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(256)
        self.register_buffer("order", torch.randperm(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = self.norm(x)
            x = torch.where(x > 0, x, x * 0.1) + torch.softmax(x, -1)
            x = x[self.order]  # type: ignore[index]
            x = torch.cat([x[:, 128:], x[:, :128].cumsum(0)], 1)
            x = x.view(64, 16, 16).transpose(1, 2).reshape(64, 256) * x.mean(1, keepdim=True)
        return x


class Decoder(nn.Module):
    """Two layers of a language model, 256 wide."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 256)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True) for _ in range(2))
        self.head = nn.Linear(256, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)  # type: ignore[no-any-return]


class Convolutions(nn.Module):
    """A few convolutions with norms, pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Hardswish(), nn.AdaptiveAvgPool2d(1)),
            *(nn.Flatten(), nn.Linear(32, 10)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)  # type: ignore[no-any-return]


#: A module, the inputs of calls in turn, and dynamic shapes.
Graph = tuple[nn.Module, list[tuple[torch.Tensor, ...]], Any]


def tokens(*lengths: int) -> list[tuple[torch.Tensor, ...]]:
    return [(torch.randint(0, 1000, (1, length)),) for length in lengths]


GRAPHS: dict[str, Callable[[], Graph]] = {
    "chain of 1000, 4 elements": lambda: (Chain(), [(torch.randn(4), torch.randn(4))], None),
    "chain of 1000, 16384 elements": lambda: (Chain(), [(torch.randn(16384), torch.randn(16384))], None),
    "mix of norms, choices, indices": lambda: (Mix(), [(torch.randn(64, 256),)], None),
    "transformer, 64 tokens": lambda: (Decoder(), tokens(64), None),
    "transformer, 64 and 48 tokens in turn": lambda: (
        Decoder(),
        tokens(64, 48),
        {"tokens": {1: Dim("length", min=2, max=64)}},
    ),
    "convolutions, 64 x 64": lambda: (Convolutions(), [(torch.randn(1, 3, 64, 64),)], None),
}


def compare(name: str, module: nn.Module, calls: list[tuple[torch.Tensor, ...]], shapes: Any, *, rounds: int) -> str:
    """A row of the second table."""
    from executorch.extension.pybindings import _C

    _C._unsafe_reset_threadpool(1)
    module = module.eval()
    exported = torch.export.export(module, calls[0], dynamic_shapes=shapes, strict=False)
    lowered = delegatekit.lower(exported, backends=[])
    buffer = lowered.buffer
    program = _C._load_program_from_buffer(buffer)
    stock, engine = program.load_method("forward"), delegatekit.load(buffer)["forward"]
    for call in calls:
        torch.testing.assert_close(engine(*call), stock(call)[0], rtol=1e-3, atol=1e-3)
    turns = [cycle(calls) for _ in range(3)]
    functions: list[Callable[[], Any]] = [
        lambda: module(*next(turns[0])),
        lambda: stock(next(turns[1]), clone_outputs=False),
        lambda: engine(*next(turns[2]), clone_outputs=False),
    ]
    eager_ms, stock_ms, engine_ms = (1e3 * seconds for seconds in interleaved(functions, rounds))
    kernels = sum(delegatekit.inspect(buffer).methods[0].operators.values())
    cells = [name, str(kernels), *(f"{value:.2f}" for value in (eager_ms, stock_ms, engine_ms))]
    return "| " + " | ".join([*cells, f"{engine_ms / eager_ms:.2f}", f"{engine_ms / stock_ms:.2f}"]) + " |"


if __name__ == "__main__":
    main()
