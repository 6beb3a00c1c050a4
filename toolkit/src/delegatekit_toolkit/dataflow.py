"""Checks of a blob's values before a library trusts it: a single writer for each, sizes, data, memory.

    flow = Dataflow(inputs=graph.inputs, constants=graph.constants)
    for index, step in enumerate(graph.steps):
        flow.step(step.reads, step.writes, where=f"step {index}")
    flow.check_outputs(graph.outputs)

For readers of blobs, on data from the file. All raise FormatError.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from delegatekit_api import FormatError

#: The maximum size of a delegate's value, in bytes: the core's limit for all of a method.
MOST_BYTES: Final = 64 << 30


class Dataflow:
    """Follows a blob's steps in order: a value is defined before it is read, and only once.

    Values are named by anything hashable: numbers, names, objects.

    >>> flow = Dataflow(inputs=["x"], constants=["weight"], where="my blob")
    >>> flow.step(["x", "weight"], ["y"], "step 0")
    >>> flow.check_outputs(["y"])
    >>> flow.step(["y"], ["weight"], "step 1")
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.FormatError: step 1: writes 'weight', which is a constant
    """

    def __init__(
        self, inputs: Iterable[Hashable] = (), constants: Iterable[Hashable] = (), where: str = "blob"
    ) -> None:
        """Raises FormatError if two of the inputs and constants are one value."""
        self._where = where
        self._sources: dict[Hashable, str] = {}
        for values, source in ((inputs, "an input"), (constants, "a constant")):
            for value in values:
                self._define(value, source, f"has {source}", where)

    def step(self, reads: Iterable[Hashable], writes: Iterable[Hashable], where: str) -> None:
        """Check the next step, called `where` in messages."""
        for value in reads:
            if value not in self._sources:
                raise FormatError(f"reads {value!r:.80}, which is not computed before", where=where)
        for value in writes:
            self._define(value, f"the result of {where}", "writes", where)

    def check_outputs(self, outputs: Iterable[Hashable]) -> None:
        """Check, after the last step, that every output is defined."""
        for value in outputs:
            if value not in self._sources:
                raise FormatError(f"returns {value!r:.80}, which is never computed", where=self._where)

    def _define(self, value: Hashable, source: str, verb: str, where: str) -> None:
        if value in self._sources:
            raise FormatError(f"{verb} {value!r:.80}, which is {self._sources[value]}", where=where)
        self._sources[value] = source


def element_count(shape: Sequence[int], where: str, *, item_bytes: int = 1, least: int = 1) -> int:
    """The number of elements of a value, after checking its sizes: each at least `least`, in all at most `MOST_BYTES`.

    Libraries multiply sizes in 64 bits, where a product that is too large wraps to a small one.

    >>> element_count((2, 3), "value 0", item_bytes=4)
    6
    >>> element_count((2, 0), "value 0")
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.FormatError: value 0: has the sizes (2, 0): each must be at least 1
    """
    if min(shape, default=least) < least:
        raise FormatError(f"has the sizes {_short(shape)}: each must be at least {least}", where=where)
    count = math.prod(shape)
    # Sizes of 0 do not make the others harmless: some products omit them.
    if math.prod(max(size, 1) for size in shape) * item_bytes > MOST_BYTES:
        raise FormatError(f"has the sizes {_short(shape)}: more than {MOST_BYTES >> 30} GiB", where=where)
    return count


def section(data: memoryview, offset: int, size: int, where: str) -> memoryview:
    """The `size` bytes of `data` from `offset` on.

    >>> bytes(section(memoryview(b"weights"), 2, 3, "constant 1"))
    b'igh'
    >>> section(memoryview(b"weights"), 6, 1 << 64, "constant 1")
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.FormatError: constant 1: has 18446744073709551616 bytes from 6 on, of 7
    """
    if offset < 0 or size < 0 or offset + size > data.nbytes:
        raise FormatError(f"has {size} bytes from {offset} on, of {data.nbytes}", where=where)
    return data.cast("B")[offset : offset + size]


def check_disjoint(extents: Iterable[tuple[int, int, str]]) -> None:
    """Raise FormatError unless all extents (first byte, size in bytes, name for messages) are disjoint.

    >>> check_disjoint([(0, 16, "input 0"), (16, 4, "input 1")])
    >>> check_disjoint([(0, 16, "input 0"), (8, 16, "input 1")])
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.FormatError: input 1: lies over input 0, from byte 8 on
    """
    end, last = 0, ""
    for start, size, name in sorted(item for item in extents if item[1]):
        if last and start < end:
            raise FormatError(f"lies over {last}, from byte {start} on", where=name)
        end, last = start + size, name


def _short(shape: Sequence[int]) -> str:
    return str(tuple(shape)) if len(shape) <= 8 else f"({', '.join(map(str, shape[:8]))}, ...)"
