"""Determinism: compiled code depends on the program and its options only, not on anything before, beside or around it.

Conversely, two different things never have one name, nor one blob.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import CodeType, FrameType
from typing import Any

import torch

from delegatekit_api import OptionError, PartitionProgram, RuntimeUnavailableError, UnsupportedError

from ...context import Context
from ...insides import bytes_of
from ...recipe import Recipe, Ref
from ...trial import words
from ..base import Broken, Late, NotApplicable
from ..fresh import in_fresh_process
from ..keeping import choices, keeping
from ..look_alikes import CHAIN
from ..sessions.library import Library, Wanted, library_of
from ..sessions.library import content as files
from ..sessions.programs import KINDS
from ..specimens import (
    SPECIMENS,
    delegates,
    digest,
    lower,
    partitions,
    preprocess,
    recipe_of,
    taken,
    tensor_of,
)
from .compiler import content, differs
from .rules import Rules

RULES = Rules()

_LOWER = """
import hashlib, os, time, torch
os.environ["TZ"] = given["zone"]
if hasattr(time, "tzset"):
    time.tzset()
torch.set_num_threads(given["threads"])
from delegatekit_conformance.cases.contract.determinism import with_options
from delegatekit_conformance.cases.specimens import delegates, digest, lower, reasons
from delegatekit_conformance.insides import bytes_of
context = given["context"]
for name in given["order"]:
    recipe = given["programs"][name]
    if name in given["strangers"]:
        lower(recipe.reseeded(), context).buffer  # another program with the same operators, just before
    program = lower(recipe, context)
    mine = [item for delegate in delegates(program, context.backend) for item in delegate.named_data]
    named = {item.key: digest(bytes_of(item.data)) for item in mine}
    answer[name] = hashlib.sha256(program.buffer).hexdigest(), named
answer["reasons"] = reasons(context)
answer["with options"] = with_options(context, given["with options"], backwards=given["backwards"])
"""
#: The date differs between these zones at every moment, and so may the number of threads.
_ELSEWHERE = ({"zone": "UTC+12", "threads": 1}, {"zone": "UTC-14", "threads": 2})


def _long(context: Context) -> dict[str, Recipe]:
    """The long program, if it can be lowered."""
    try:
        lower(CHAIN, context)
    except Exception:
        return {}
    return {"a long chain": CHAIN}


@RULES.costing(12.0)
def same_bytes_elsewhere(context: Context) -> str:
    """Fresh processes with other hash seeds, dates, folders, threads and programs before write the same files."""
    known = taken(context)
    programs = {name: SPECIMENS[name] for name in known} | _long(context)
    order = list(programs)
    strangers = [name for name in order if any(tensor.constant for _, tensor in programs[name].tensors)]
    ways = (
        {"order": order, "strangers": [], "backwards": False},
        {"order": order[::-1], "strangers": strangers, "backwards": True},
    )
    more = _with_options(context)
    given = [
        {"programs": programs, "context": context, "with options": more, **place, **way}
        for place, way in zip(_ELSEWHERE, ways, strict=True)
    ]
    first, second = (
        in_fresh_process(_LOWER, context, place, hash_seed=seed).answer
        for place, seed in zip(given, (1, 4242), strict=True)
    )
    for name in programs:
        if first[name][1] != second[name][1]:
            raise Broken(f"{name}: two processes{_BETWEEN} give its named data different keys or bytes")
        if first[name][0] != second[name][0]:
            raise Broken(f"{name}: two processes{_BETWEEN} write different files")
    for (name, options), one, other in zip(more, first["with options"], second["with options"], strict=True):
        if one != other:
            raise Broken(f"{name} with {dict(options)}: two processes{_BETWEEN} write different files")
        if one.startswith(_FAILED):
            raise Broken(f"{name} with {dict(options)}: {one}")
    for one, other in zip(first["reasons"], second["reasons"], strict=True):
        if one != other:
            raise Broken(f"two processes give different reasons: {one!r}, and {other!r}")
    for name, program in known.items():
        here = {item.key: digest(bytes_of(item.data)) for item in _named(program, context)}
        if here != first[name][1]:
            raise Broken(
                f"{name}: this process, in which other programs were lowered before, gives it other named data"
            )
    return f"{len(programs)} programs, {len(more)} with options, several methods or state"


_BETWEEN = " with different hash seeds, dates, threads and orders of lowering"

#: CPU seconds, those of compilers included, in which each process lowers programs with options, by profile.
_LOWERING = {"quick": 1.0, "default": 6.0, "thorough": 60.0}
#: Start of the outcome of a program that was neither lowered nor refused.
_FAILED = "cannot be lowered: "
#: The program that is lowered with every value: it has several methods, state, and a constant that they share.
_WHOLE = "methods-of-own-state"


def _with_options(context: Context) -> list[tuple[str, Mapping[str, Any]]]:
    """Programs of the sequences, by name, with options: methods and state as they are, and with every value.

    As many as can be lowered in some seconds, judging by the first one; none if the backend takes nothing of it.
    """
    kinds = [kind.name for kind in KINDS.values() if kind.traits & {"methods", "stateful"}]
    library, whole = library_of(context, runnable=False), Wanted(KINDS[_WHOLE], 0)
    try:
        if not library.lowered(whole).delegates:
            return []
        start = sum(os.times()[:4])
        library.lower(whole)
        seconds = sum(os.times()[:4]) - start
    except Exception:  # the rooms of state and of sessions report it
        return []
    found: list[tuple[str, Mapping[str, Any]]] = []
    with suppress(NotApplicable):
        kept = keeping(context).options
        found += [(name, kept) for name in kinds]
    plain = [(name, context.options) for name in kinds]
    valued = [(_WHOLE, options) for options in choices(context)]
    random.Random(context.seed_of("options in two processes")).shuffle(valued)
    for item in (*plain, *valued):
        if item not in found:
            found.append(item)
    return found[: int(_LOWERING.get(context.profile.name, 6.0) / max(seconds, 0.02))]


def with_options(context: Context, wanted: Sequence[tuple[str, Mapping[str, Any]]], *, backwards: bool) -> list[str]:
    """Digests of the files of programs with options; the kind of error where one is refused, all of another error."""
    library, found = Library(context, (context.backend,)), {}
    for number in range(len(wanted))[:: -1 if backwards else 1]:
        name, options = wanted[number]
        try:
            found[number] = files(library.lower(Wanted(KINDS[name], 0), options))
        except (OptionError, RuntimeUnavailableError, UnsupportedError) as error:  # must be refused in each process
            found[number] = type(error).__name__
        except Exception as error:
            found[number] = f"{_FAILED}{words(error)}"
    return [found[number] for number in range(len(wanted))]


def _named(program: Any, context: Context) -> list[Any]:
    return [item for delegate in delegates(program, context.backend) for item in delegate.named_data]


# Different things

_X = Ref("x")


def _hunted() -> Mapping[str, Recipe]:
    """Programs whose constants are easily confused: large ones, and the same numbers in other forms."""
    found = {
        "a large layer": recipe_of(
            {"x": tensor_of(2, 256), "w": tensor_of(192, 256, constant=True, seed=5)},
            ("l", "aten.linear.default", _X, Ref("w")),
        ),
        "a large product": recipe_of(
            {"x": tensor_of(96, 256), "w": tensor_of(96, 256, constant=True, seed=5)},
            ("m", "aten.mul.Tensor", _X, Ref("w")),
        ),
        "a matrix": recipe_of(
            {"x": tensor_of(3, 16), "w": tensor_of(16, 8, constant=True, seed=1)},
            ("m", "aten.mm.default", _X, Ref("w")),
        ),
    }
    for rows, columns in ((8, 16), (16, 8)):
        found[f"a layer of {rows}"] = recipe_of(
            {"x": tensor_of(2, columns), "w": tensor_of(rows, columns, constant=True, seed=1)},
            ("l", "aten.linear.default", _X, Ref("w")),
        )
        for dtype in ("float32", "float16", "int32"):
            whole: dict[str, Any] = {"dtype": dtype, "values": ("integers", -9, 9)}
            found[f"a product of {rows} rows of {dtype}"] = recipe_of(
                {"x": tensor_of(rows, columns, **whole), "w": tensor_of(rows, columns, constant=True, seed=1, **whole)},
                ("m", "aten.mul.Tensor", _X, Ref("w")),
                exact=True,
            )
    return found


#: CPU seconds for the hunt, by profile.
_SECONDS = {"quick": 2.5, "default": 10.0, "thorough": 90.0}


@RULES.costing(8.0)
def different_things_have_different_names(context: Context) -> str:
    """Weights that differ in one element anywhere, in shape, dtype or layout are compiled to other bytes and keys."""
    source = random.Random(context.seed_of("different things"))
    end = time.process_time() + min(_SECONDS.get(context.profile.name, 10.0), context.timeout / 3)
    found = _hunting_grounds(context)
    if not found:
        raise NotApplicable("the backend takes no program with constants")
    keys: dict[str, tuple[str, str]] = {}
    bases = []
    for name, partition in found:
        bases.append(content(preprocess(partition, context)))
        _enter(keys, bases[-1], name)
    streams = [_places(partition, source) for _, partition in found]
    tried = 0
    for round_ in range(_PLACES):
        for (name, partition), base, places in zip(found, bases, streams, strict=True):
            place = next(places, None)
            if place is None or (round_ and time.process_time() > end):
                continue
            tensor, index = place
            what = f"{name} with another number at {index} of the {tensor.numel()} of a constant"
            with changed_at(tensor, index):
                other = content(preprocess(partition, context))
            _enter(keys, other, what)
            if not differs(base, other):
                raise Broken(f"{what}: it is compiled to the same bytes")
            tried += 1
    for (name, partition), base in zip(found[:3], bases, strict=False):
        wrong = differs(base, content(preprocess(partition, context)))
        if wrong:
            raise Broken(f"{name}: compiled once more after others, it has different {wrong}")
    return f"{tried} changes, {len(keys)} keys"


#: Elements of each partition's constants that are changed, at most.
_PLACES = 40


def _hunting_grounds(context: Context) -> list[tuple[str, PartitionProgram]]:
    """Partitions with constants: of the specimens, and of programs made for this."""
    known = dict(taken(context))
    for name, recipe in _hunted().items():
        try:
            known[name] = lower(recipe, context)
        except Exception:  # the operator cases report it
            continue
    return [
        (name, partition)
        for name, program in sorted(known.items(), key=lambda item: "large" not in item[0])
        for partition, _ in partitions(program, context.backend)
        if any(tensor.numel() for tensor in partition.view.constants.values())
    ]


def _enter(keys: dict[str, tuple[str, str]], made: Mapping[str, Any], what: str) -> None:
    """Record the named data of a compiled partition. Raises Broken if a key stands for other bytes."""
    for key, _, found in made["named data"]:
        first, bytes_ = keys.setdefault(key, (what, found))
        if bytes_ != found:
            raise Broken(f"the key {key!r} stands for other bytes in {first} than in {what}")


def _places(partition: PartitionProgram, source: random.Random) -> Iterator[tuple[torch.Tensor, int]]:
    """Elements of the constants: the last, the first, one in the middle, their neighbors, and any.

    Zero points are left out: a backend may have taken the program because they are 0.
    """
    zero_points = {
        item.node
        for call in partition.view.calls()
        if call.operator.partition(".")[0] in ("quantized_decomposed", "torchao")
        for item in call.operands[1:]
        if not item.dtype.is_floating_point
    }
    constants = partition.view.constants.items()
    tensors = [tensor for node, tensor in constants if tensor.numel() and node not in zero_points]
    for choice in range(_PLACES):
        for tensor in tensors:
            last = tensor.numel() - 1
            some = (last, last // 2, 0, last * 2 // 3, max(0, last - 1), min(1, last), last // 2 + last % 2)
            yield tensor, some[choice] if choice < len(some) else source.randrange(last + 1)


@contextmanager
def changed_at(tensor: torch.Tensor, index: int) -> Iterator[None]:
    """The tensor with another number in one place: of the other sign, or another integer, which no rounding hides.

    Where all numbers are positive, as scales must be, it is twice as large.
    """
    place = tuple(int(item) for item in torch.unravel_index(torch.tensor(index), tensor.shape))
    data = tensor.detach()
    before = data[place].clone()
    if tensor.is_floating_point():
        other = 2 * before if bool((data > 0).all()) else -before
        data[place] = other if abs(float(before)) > 1e-3 else 1.0
    elif tensor.dtype == torch.bool:
        data[place] = not bool(before)
    else:
        data[place] = before - 1 if int(before) > 0 else before + 1
    try:
        yield
    finally:
        data[place] = before


# At the same time

#: Threads that compile at a time, the least number of rounds of each, and its seconds.
_THREADS, _ROUNDS, _WHILE = 4, 2, 2.0
#: Seconds that a thread waits at most for another to compile something.
_REST = 0.1
#: Packages in which no thread pauses: they are not the backend's.
_NOT_THE_BACKENDS = sys.stdlib_module_names | {"delegatekit", "delegatekit_conformance", "numpy", "torch"}


@RULES.costing(6.0)
def several_at_once(context: Context) -> str:
    """Several programs that are compiled at once, in threads, give the same bytes as one after another."""
    found = []
    for name, program in taken(context).items():
        for recipe_name, made in ((name, program), *_with_other_weights(name, context)):
            found += [(recipe_name, partition) for partition, _ in partitions(made, context.backend)]
    start = time.process_time()
    expected = [content(preprocess(partition, context)) for _, partition in found]
    seconds = time.process_time() - start
    most = context.timeout / 6
    if seconds * _THREADS * _ROUNDS > most:
        count = int(len(found) * most / (seconds * _THREADS * _ROUNDS))
        if count < 2:
            raise NotApplicable(f"too slow: a partition takes {seconds / len(found):.1f} CPU seconds")
        found, expected = found[:count], expected[:count]
    wrong = _in_threads(found, expected, context)
    if wrong:
        raise Broken(wrong[0])
    return f"{_THREADS} threads, {len(found)} partitions"


def _with_other_weights(name: str, context: Context) -> list[tuple[str, Any]]:
    recipe = SPECIMENS[name]
    if not any(tensor.constant for _, tensor in recipe.tensors):
        return []
    return [(f"{name} with other weights", lower(recipe.reseeded(), context))]


def _in_threads(
    found: list[tuple[str, PartitionProgram]], expected: list[dict[str, Any]], context: Context
) -> list[str]:
    wrong: list[str] = []
    barrier = threading.Barrier(_THREADS)
    schedule = _Schedule()

    def work(number: int) -> None:
        order = list(range(len(found)))
        random.Random(number).shuffle(order)
        barrier.wait()
        start, rounds = time.monotonic(), 0
        while not wrong and (rounds < _ROUNDS or time.monotonic() - start < _WHILE):
            rounds += 1
            for index in order:
                name, partition = found[index]
                try:
                    with schedule.of_a_compilation(random.Random(f"{number}/{rounds}/{index}")):
                        compiled = preprocess(partition, context)
                    difference = differs(expected[index], content(compiled))
                except Exception as error:  # the rule reports any exception of a plugin
                    wrong.append(
                        f"{name}: compiled beside others in threads, it raises {type(error).__name__}: {error}"
                    )
                    return
                if difference:
                    wrong.append(f"{name}: compiled beside others in threads, it has different {difference}")
                    return

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(context.timeout)
        if thread.is_alive():
            raise Late(f"{_THREADS} threads that compile do not finish within {context.timeout:.0f} s")
    return wrong


class _Schedule:
    """Schedule of threads: in each compilation one pauses at one line of the backend, until another compiled something.

    Without it, two threads meet inside one function by chance only: hardly ever on a busy machine.
    """

    def __init__(self) -> None:
        self._lines: set[tuple[CodeType, int]] = set()
        self._rested: Counter[tuple[CodeType, int]] = Counter()
        self._resting = threading.Lock()
        self._compiled = threading.Semaphore(0)

    @contextmanager
    def of_a_compilation(self, draw: random.Random) -> Iterator[None]:
        """One compilation, which pauses at a line where few paused before and no other thread pauses now."""
        left = None
        if self._lines:
            lines = list(self._lines)
            left = min(draw.choices(lines, k=8), key=self._rested.__getitem__)

        def line(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if event == "line":
                place = (frame.f_code, frame.f_lineno)
                self._lines.add(place)
                if place == left and self._resting.acquire(blocking=False):
                    left = None
                    self._rested[place] += 1
                    while self._compiled.acquire(blocking=False):
                        pass  # what others compiled before
                    self._compiled.acquire(timeout=_REST)
                    self._resting.release()
            return line

        def call(frame: FrameType, _: str, __: Any) -> Any:
            package = str(frame.f_globals.get("__name__")).partition(".")[0]
            return None if package in _NOT_THE_BACKENDS else line

        before = sys.gettrace()
        sys.settrace(call)
        try:
            yield
        finally:
            sys.settrace(before)
            self._compiled.release()
