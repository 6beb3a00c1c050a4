"""Robustness: damaged blobs end in an error or in the right answer, and handles leave no memory behind.

Each damage is an example, so that a crash costs this one only and is reported with its place. Places are fractions of
the blob, which is compiled where the example is tried: examples can be listed without running the backend.
"""

from __future__ import annotations

import gc
import itertools
import random
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import psutil
import torch

from delegatekit.accuracy import Accuracy, compare
from delegatekit.plugins.apart import RuntimeDiedError
from delegatekit_api import DelegateKitError, DelegatePayload, DelegateRuntime

from ..context import Context
from ..outcome import Outcome, Verdict
from ..trial import words
from .base import Case, NotApplicable
from .specimens import Sample, backend_of, changed, runs, same, sample

#: The specimens whose blobs are damaged.
PROGRAMS = ("arithmetic", "linear", "convolution", "softmax", "branches", "quantized convolution", "dynamic")

#: Bytes that the process may have grown by after all cycles, whatever their number: heaps are never quite still.
_GROWTH = 256 * 1024
#: Bytes that each cycle may leave behind beyond that.
_GROWTH_PER_CYCLE = 128
#: Python objects that the process may have more, whatever the number of cycles: the interpreter keeps some for reuse.
_OBJECTS = 300
#: Cycles before memory is first measured.
_WARM_UP = 50
#: Fewer cycles than this say nothing.
_FEWEST = 20


@dataclass(frozen=True)
class Damage:
    """What is done to one delegate of a program: a cut, or a flipped bit, at a fraction of its bytes."""

    program: str
    #: "truncated" or "flipped".
    kind: str
    #: From 0 to 1, of the length in bytes (truncated) or bits (flipped).
    place: float
    #: Chooses the delegate, where a program has several, and the key of the named data.
    choice: int = 0
    #: Whether the named data are damaged instead of the blob.
    named: bool = False

    def describe(self) -> str:
        """One line; the outcome's detail has the byte."""
        what = "named data" if self.named else "blob"
        if self.kind == "truncated":
            return f"{self.program}: {what} {self.choice} cut off at {self.place:.6f} of its length"
        return f"{self.program}: bit at {self.place:.6f} of {what} {self.choice} flipped"

    def apply(self, data: bytes) -> tuple[bytes, str]:
        """The damaged bytes, and what was done in words. `data` is not empty."""
        if self.kind == "truncated":
            length = min(int(self.place * len(data)), len(data) - 1)
            return data[:length], f"cut to {length} of {len(data)} bytes"
        bit = min(int(self.place * len(data) * 8), len(data) * 8 - 1)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        return bytes(flipped), f"bit {bit % 8} of byte {bit // 8} of {len(data)} flipped"


class RobustnessCase(Case):
    """A case about the delegates of one program."""

    kind: str

    def __init__(self, program: str) -> None:
        self.program = program
        self.name = f"robustness/{program}/{self.kind}"

    def run(self, example: Any, context: Context) -> Outcome:
        """Try it, if the backend takes the program and runs here."""
        start = time.perf_counter()
        try:
            # Looked at first: without a runtime nothing is compiled.
            if not runs(context).runtime_availability().available:
                raise NotApplicable("no runtime")
            items = sample(self.program, context)
        except NotApplicable as reason:
            return Outcome(Verdict.NOT_APPLICABLE, str(reason), example=example.describe())
        except Exception as error:
            # The rule contract/compiles-what-it-takes reports it.
            detail = f"there is no undamaged blob to start from: {words(error)}"
            return Outcome(Verdict.NOT_APPLICABLE, detail, example=example.describe())
        outcome = self.attempt(example, items, context)
        blame = "backend" if outcome.verdict.is_fault else ""
        seconds = time.perf_counter() - start
        return replace(outcome, example=example.describe(), blame=blame, seconds=seconds, delegates=1)

    @abstractmethod
    def attempt(self, example: Any, items: Sequence[Sample], context: Context) -> Outcome:
        """Try it with the program's delegates."""


class DamageCase(RobustnessCase):
    """Single damages to the blobs, or to the named data, of one program."""

    named = False

    def count(self, context: Context) -> int:
        """How many damages."""
        raise NotImplementedError

    def examples(self, context: Context) -> Sequence[Damage]:
        """The damages: half of them evenly spread, half towards the beginning, where formats have their headers."""
        source = random.Random(context.seed_of(self.name))
        found = []
        kind = "truncated" if self.kind.endswith("truncated") else "flipped"
        count = self.count(context)
        for number in range(count):
            place = (number // 2 + source.random()) / max(1, count / 2)
            if number % 2:
                place = place**3
            place = 0.0 if number == 0 and kind == "truncated" else min(place, 1.0)
            found.append(Damage(self.program, kind, round(place, 9), source.randrange(1 << 16), self.named))
        return found

    def attempt(self, example: Damage, items: Sequence[Sample], context: Context) -> Outcome:
        """Damage, load, run."""
        if self.named and not items[0].keys:
            return Outcome(Verdict.NOT_APPLICABLE, "the blobs have no named data")
        item = items[example.choice % len(items)]
        payload, what = damaged(item, example)
        return try_payload(payload, item, what, context)

    def snippet(self, example: Damage, context: Context) -> str:
        """A script that does the same damage."""
        options = f", options={dict(context.options)!r}" if context.options else ""
        return (
            "from delegatekit_conformance.cases.robustness import Damage, show\n"
            "from delegatekit_conformance.context import Context\n\n"
            f"show({example!r}, Context({context.backend!r}{options}))\n"
        )


class Truncated(DamageCase):
    """Blobs that end too early."""

    kind = "truncated"

    def count(self, context: Context) -> int:
        """As the profile says."""
        return context.profile.truncations


class Flipped(DamageCase):
    """Blobs with one bit flipped."""

    kind = "flipped"

    def count(self, context: Context) -> int:
        """As the profile says."""
        return context.profile.flips


class NamedTruncated(Truncated):
    """Named data that end too early."""

    kind = "named-data-truncated"
    named = True

    def count(self, context: Context) -> int:
        """Half as many as of blobs."""
        return max(4, context.profile.truncations // 2)


class NamedFlipped(Flipped):
    """Named data with one bit flipped."""

    kind = "named-data-flipped"
    named = True

    def count(self, context: Context) -> int:
        """A quarter of the blobs'."""
        return max(8, context.profile.flips // 4)


def damaged(item: Sample, damage: Damage) -> tuple[DelegatePayload, str]:
    """The payload with the damage done, and what was done in words."""
    payload = item.payload
    if not damage.named:
        blob, what = damage.apply(bytes(payload.blob))
        return changed(payload, blob), what
    key = item.keys[damage.choice // 7 % len(item.keys)]
    data, what = damage.apply(bytes(payload.named_data[key]))
    return changed(payload, named={key: data}), f"named data {key!r}: {what}"


def try_payload(payload: DelegatePayload, item: Sample, what: str, context: Context) -> Outcome:
    """Load and run a damaged payload: an error of DelegateKit's family, or the right answer."""
    backend = backend_of(context)
    runtime = backend.create_runtime()
    stage = "init"
    handle = None
    outputs = item.blank()
    try:
        handle = runtime.init(payload)
        stage = "execute"
        with torch.no_grad():
            runtime.execute(handle, [tensor.clone() for tensor in item.inputs], outputs)
        stage = "destroy"
    except DelegateKitError as error:
        if isinstance(error.__cause__, RuntimeDiedError):
            return Outcome(Verdict.CRASH, f"{what}: {stage}: {error.what}")
        return Outcome(Verdict.PASSED, f"{what}: refused by {stage}: {str(error).splitlines()[0]}")
    except Exception as error:
        return Outcome(Verdict.VIOLATION, f"{what}: {stage} raises {words(error)}, no error of DelegateKit's family")
    finally:
        if handle is not None:
            runtime.destroy(handle)
    if not same(outputs, item.outputs):
        return Outcome(Verdict.PASSED, f"{what}: the answer is right")
    references = [tensor.double() if tensor.is_floating_point() else tensor for tensor in item.outputs]
    accuracy = Accuracy(item.recipe.reduction_length, item.recipe.depth, item.recipe.exact)
    compared = compare(outputs, references, item.outputs, backend.compute_precision(context.options), accuracy)
    if compared.agrees:
        return Outcome(Verdict.PASSED, f"{what}: the answer is right", error=compared.error)
    if backend.description.integrity_check:
        text = f"{what}: no error, and {compared.difference}; the backend says that it has an integrity check"
        return Outcome(Verdict.VIOLATION, text, error=compared.error)
    return Outcome(Verdict.UNDETECTED, f"{what}: no error, and {compared.difference}", error=compared.error)


def show(damage: Damage, context: Context) -> None:
    """Print what a damage does; for snippets."""
    items = sample(damage.program, context)
    item = items[damage.choice % len(items)]
    payload, what = damaged(item, damage)
    print(what, flush=True)
    print(try_payload(payload, item, what, context))


# Cycles


@dataclass(frozen=True)
class Cycles:
    """How many times a handle is made, used and destroyed."""

    program: str
    count: int

    def describe(self) -> str:
        """One line."""
        return f"{self.program}: {self.count} times init, execute, destroy"


class CyclesCase(RobustnessCase):
    """Handles made and destroyed many times must leave no memory, open file or thread behind."""

    kind = "cycles"
    unit = "cycles"

    @property
    def cost(self) -> float:
        """A thousand handles."""
        return 5.0

    def examples(self, context: Context) -> Sequence[Cycles]:
        """One."""
        return (Cycles(self.program, context.profile.cycles),)

    def attempt(self, example: Cycles, items: Sequence[Sample], context: Context) -> Outcome:
        """As many cycles as asked for, or as fit into half the time limit."""
        runtime = backend_of(context).create_runtime()
        with self.repeated(runtime, items) as action:
            return self._judged(action, example, items, context)

    @contextmanager
    def repeated(self, runtime: DelegateRuntime, items: Sequence[Sample]) -> Iterator[Callable[[Sample], None]]:
        """What is done again and again with one of the program's delegates."""

        def cycle(item: Sample) -> None:
            handle = runtime.init(item.payload)
            try:
                runtime.execute(handle, item.inputs, item.blank())
            finally:
                runtime.destroy(handle)

        yield cycle

    def _judged(
        self, cycle: Callable[[Sample], None], example: Cycles, items: Sequence[Sample], context: Context
    ) -> Outcome:
        try:
            with torch.no_grad():
                grown, done = growth(cycle, items, example.count, context.timeout / 2)
        except Exception as error:
            return Outcome(Verdict.VIOLATION, f"fails after some {self.unit}: {words(error)}")
        if done < _FEWEST:
            return Outcome(Verdict.NOT_APPLICABLE, f"too slow: {done} {self.unit} in {context.timeout / 2:.0f} s")
        # What tells most about the cause comes first.
        bounds = {
            "open files": 2,
            "threads": 2,
            "Python objects": _OBJECTS + done // 4,
            "bytes of memory": _GROWTH + _GROWTH_PER_CYCLE * done,
        }
        for name, bound in bounds.items():
            if grown.get(name, 0) > bound:
                text = f"{done} {self.unit} leave {grown[name]} {name} behind, more than {bound}"
                return Outcome(Verdict.VIOLATION, text)
        shown = ", ".join(f"{value:+d} {name}" for name, value in grown.items())
        return Outcome(Verdict.PASSED, f"{done} {self.unit}: {shown}")

    def snippet(self, example: Cycles, context: Context) -> str:
        """A script that does the same cycles."""
        return (
            "from delegatekit_conformance.cases.robustness import CallsCase, Cycles, CyclesCase\n"
            "from delegatekit_conformance.context import Context\n\n"
            f"print({type(self).__name__}({self.program!r}).run({example!r}, Context({context.backend!r})))\n"
        )


class CallsCase(CyclesCase):
    """One handle that is called many times keeps no memory, and its last result is as right as its first."""

    kind = "calls"
    unit = "calls"

    @property
    def cost(self) -> float:
        """A thousand calls."""
        return 1.0

    @contextmanager
    def repeated(self, runtime: DelegateRuntime, items: Sequence[Sample]) -> Iterator[Callable[[Sample], None]]:
        """One call of a handle that stays."""
        handles = {id(item): runtime.init(item.payload) for item in items}

        def call(item: Sample) -> None:
            outputs = item.blank()
            runtime.execute(handles[id(item)], item.inputs, outputs)
            wrong = same(outputs, item.outputs)
            if wrong:
                raise ValueError(wrong)

        try:
            yield call
        finally:
            for handle in handles.values():
                runtime.destroy(handle)


_Item = TypeVar("_Item")


def growth(
    cycle: Callable[[_Item], None], items: Sequence[_Item], count: int, seconds: float, *, warm_up: int = _WARM_UP
) -> tuple[dict[str, int], int]:
    """What the process has more after the cycles than before, by name, and how many cycles there were.

    Steady growth counts: of four quarters the lowest but one, four times. A heap that grew once or twice, or
    memory that something else freed once, does not. No more cycles are made than fit into `seconds`.
    """
    frozen = gc.get_freeze_count()
    gc.collect()
    gc.freeze()  # what is there already need not be looked through each time that garbage is collected
    try:
        marks, done = _marks(cycle, items, count, seconds, warm_up)
    finally:
        if not frozen:
            gc.unfreeze()
    quarters = {
        name: sorted(after[name] - before[name] for before, after in itertools.pairwise(marks)) for name in marks[0]
    }
    return {name: max(0, 4 * growth[1]) for name, growth in quarters.items()}, done


def _marks(
    cycle: Callable[[_Item], None], items: Sequence[_Item], count: int, seconds: float, warm_up: int
) -> tuple[list[Mapping[str, int]], int]:
    """The state before the cycles and after each quarter of them, and how many there were."""
    start = time.monotonic()

    def cycles(most: int, share: float) -> int:
        """Up to this many, until this share of the time is over."""
        for number in range(most):
            if time.monotonic() > start + share * seconds:
                return number
            cycle(items[number % len(items)])
        return most

    cycles(warm_up, 0.2)
    _state()  # what looking for the first time allocates is not the backend's
    marks = [_state()]
    done = 0
    for quarter in range(1, 5):
        done += cycles(count * quarter // 4 - count * (quarter - 1) // 4, 0.2 + 0.2 * quarter)
        marks.append(_state())
    return marks, done


def _state() -> Mapping[str, int]:
    """What may leak, as far as the platform tells; also in processes that were started, as those of runtimes apart."""
    gc.collect()
    state = {"Python objects": sys.getallocatedblocks(), "threads": threading.active_count()}
    if sys.platform == "linux":
        this = psutil.Process()
        state |= {"bytes of memory": 0, "open files": 0}
        for process in (this, *this.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                state["bytes of memory"] += process.memory_info().rss
                state["open files"] += process.num_fds()
    return state


def cases() -> Iterator[Case]:
    """All damages of all programs, and the cycles."""
    kinds = (Truncated, Flipped, NamedTruncated, NamedFlipped, CyclesCase, CallsCase)
    for program in PROGRAMS:
        for kind in kinds:
            yield kind(program)
