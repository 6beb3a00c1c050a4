"""A session beside its eager model: their answers to the same inputs. Its text is the beginning of every script.

It uses nothing but torch and delegatekit.
"""

from __future__ import annotations

import copy
import itertools
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

import delegatekit  # noqa: F401  for the script

#: The inputs of a method, each (kind, *shape): "normal", "steps" for small int8 numbers, or a number that indices lie
#: below. "n" is a size that changes from call to call.
Inputs: TypeAlias = Sequence[tuple[Any, ...]]
#: The modules of a program's methods, which may have modules in common, and the inputs of each.
Built: TypeAlias = tuple[Mapping[str, nn.Module], Mapping[str, Inputs]]
#: Makes a program with the weights of a seed.
Build: TypeAlias = Callable[[int], Built]
#: What a session returned, what eager computes in float64 from the same numbers, and what it returns without that.
Answer: TypeAlias = tuple[Any, Any, Any]

#: The sizes that "n" takes; programs are exported with the first.
SIZES = (4, 1, 16, 7, 11, 2)


def tensors(given: Inputs, seed: int, size: int = SIZES[0], changed: int = 0) -> list[torch.Tensor]:
    """Inputs of a method, the same for the same arguments.

    `changed` above 0 gives one element another value, which is the one in the middle of the first input.
    """
    random = torch.Generator().manual_seed(seed)
    made = []
    for kind, *shape in given:
        sizes = [size if n == "n" else n for n in shape]
        if kind == "normal":
            made.append(torch.randn(sizes, generator=random))
        elif kind == "steps":
            made.append(torch.randint(-3, 4, sizes, generator=random, dtype=torch.int8))
        else:
            made.append(torch.randint(0, kind, sizes, generator=random))
    if changed:
        flat, kind = made[0].view(-1), given[0][0]
        middle = len(flat) // 2
        if kind == "normal":
            flat[middle] = changed % 9 / 2 - 2
        else:
            low, count = (-3, 7) if kind == "steps" else (0, kind)
            flat[middle] = (flat[middle] - low + changed) % count + low
    return made


def export(build: Build, seed: int) -> dict[str, torch.export.ExportedProgram]:
    """The methods of a program, exported."""
    methods, given = build(seed)
    return {name: _exported(module, given[name]) for name, module in methods.items()}


def _exported(module: nn.Module, given: Inputs) -> torch.export.ExportedProgram:
    rows = torch.export.Dim("n", min=1, max=max(SIZES))
    shapes = tuple({axis: rows for axis, n in enumerate(shape) if n == "n"} or None for _, *shape in given)
    with torch.no_grad():
        module = module.eval().requires_grad_(False)
        return torch.export.export(
            module, tuple(tensors(given, 0)), dynamic_shapes=shapes if any(shapes) else None, strict=False
        )


class Pair:
    """A session of a program, and the program's modules in eager with a state of their own."""

    def __init__(self, session: Any, build: Build, seed: int) -> None:
        self.session, self.build, self.seed = session, build, seed
        self.eager, self.given = build(seed)
        self.stateful = self._changes()
        self.exact = copy.deepcopy(self.eager)
        for module in (*self.eager.values(), *self.exact.values()):
            module.eval().requires_grad_(False)
        for module in self.exact.values():
            module.double()
        self.memory: dict[str, list[torch.Tensor]] = {}

    def _changes(self) -> bool:
        """True if a call changes a buffer."""
        for name, module in copy.deepcopy(dict(self.eager)).items():
            before = [buffer.clone() for buffer in module.buffers()]
            with torch.no_grad():
                module.eval()(*tensors(self.given[name], 0))
            if not all(map(torch.equal, module.buffers(), before)):
                return True
        return False

    def inputs(self, method: str, seed: int, size: int, changed: int, kept: bool = False) -> list[torch.Tensor]:
        """Inputs of a method; `kept` ones lie in the memory of the inputs before, where their sizes are the same."""
        made, before = tensors(self.given[method], seed, size, changed), self.memory.get(method, [])
        if kept and [x.shape for x in before] == [x.shape for x in made]:
            for old, new in zip(before, made, strict=True):
                old.copy_(new)
            made = before
        self.memory[method] = made
        return made

    def call(
        self, method: str, seed: int, size: int, changed: int, kept: bool = False, profiled: bool = False
    ) -> Answer:
        """The answers to one call. A `profiled` one gives times instead of results, which leaves only the state."""
        inputs = self.inputs(method, seed, size, changed, kept)
        before = [x.clone() for x in inputs]
        if profiled:
            self.session[method].record_operators(inputs)
            exact, eager = self.model(method, before)
            return eager, exact, eager
        results = self.session[method](*inputs)
        if not all(map(torch.equal, inputs, before)):
            raise AssertionError("an input was written to")
        return results, *self.model(method, before)

    def model(self, method: str, inputs: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        """Eager's answers: in float64, and as it is."""
        with torch.no_grad():
            exact = self.exact[method](*(x.double() if x.is_floating_point() else x.clone() for x in inputs))
            return exact, self.eager[method](*(x.clone() for x in inputs))

    def reset(self, method: str = "") -> None:
        """Reset the buffers to their first values: those of one method, or all."""
        (self.session[method] if method else self.session).reset()
        first, _ = self.build(self.seed)
        for name in [method] if method else self.eager:
            for modules in (self.eager, self.exact):
                for buffer, value in zip(modules[name].buffers(), first[name].buffers(), strict=True):
                    buffer.copy_(value)


def _restless(frame: Any, event: str, argument: Any) -> Any:
    """A trace function that yields to other threads at every fifth line of Python.

    So threads interleave everywhere, on a busy machine, too: otherwise one would end before the next
    one begins.
    """
    if _NOT_WATCHED in frame.f_code.co_filename:
        return None
    if event == "line" and next(_lines) % 5 == 0:
        time.sleep(1e-6)  # not 0: a waiting thread must have time to wake up
    return _restless


_NOT_WATCHED = str(Path(torch.__file__).parent)
_lines = itertools.count()


def together(calls: Sequence[tuple[Pair, str, int, int]], times: int, others: Sequence[Any] = ()) -> list[Answer]:
    """The answers to calls (pair, method, seed, size) of different sessions, each in a thread of its own, all at once.

    Each thread makes `times` calls, of four inputs that differ in one element; those of one thread come in order.
    Meanwhile, another thread makes and closes methods of the loaded programs `others`.
    """
    four = [[pair.inputs(method, seed, size, n) for n in range(4)] for pair, method, seed, size in calls]
    prepared = [[inputs[n % 4] for n in range(times)] for inputs in four]
    results: list[list[Any]] = [[] for _ in calls]
    faults: list[BaseException] = []
    gate = threading.Barrier(len(calls) + bool(others))

    def use(number: int) -> None:
        method = calls[number][0].session[calls[number][1]]
        for inputs in prepared[number]:
            results[number].append(method(*inputs))

    def come_and_go() -> None:
        for program in others:
            for name in program:
                program.new_method(name).close()

    def run(action: Callable[..., None], *args: int) -> None:
        try:
            gate.wait()
            sys.settrace(_restless)
            action(*args)
        except BaseException as fault:
            faults.append(fault)
            gate.abort()
        finally:
            sys.settrace(None)

    threads = [threading.Thread(target=run, args=(use, number)) for number in range(len(calls))]
    if others:
        threads.append(threading.Thread(target=run, args=(come_and_go,)))
    for pair, method, *_ in calls:
        pair.session[method]  # made here: only calls are tested
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # the threads take turns often, also on a busy machine
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    real = [fault for fault in faults if not isinstance(fault, threading.BrokenBarrierError)]
    if real:
        raise real[0]
    answers: list[Answer] = []
    for (pair, method, *_), given, found in zip(calls, prepared, results, strict=True):
        models = [pair.model(method, inputs) for inputs in (given if pair.stateful else given[:4])]
        answers += [(result, *models[n if pair.stateful else n % 4]) for n, result in enumerate(found)]
    return answers
