"""Saves memory and copies: results that overwrite an operand, and values that are a piece of another one.

It starts from the emitter's output: every value that a kernel or a delegate computes has memory of its own, with
the steps in which it is in use. Three cases share memory:

* an elementwise kernel may write its result over an operand that is not read any more;
* a slice of leading rows is a part of what it is sliced from: no copy is needed;
* an operand of a concatenation along the leading sizes may be computed directly in the result.

The first always saves memory. The others save a copy and may save or cost memory, since the larger value is in use for
longer: they are applied if the peak load does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from delegatekit_api.nodes import is_dynamic

from ..edge.arguments import read_argument
from ..pte.kernels import IN_PLACE
from .memory import Request, is_least, plan_memory
from .storage import FOREVER, Storage

aten = torch.ops.aten

#: Up to this many values, plans with and without sharing are compared.
_TRIALS = 4096


@dataclass(frozen=True)
class _InPlace:
    """A kernel whose result may be written over an operand; `operands` in the order of preference."""

    step: int
    result: Storage
    candidates: tuple[Storage, ...]
    operands: tuple[Storage, ...]


@dataclass(frozen=True)
class _Copies:
    """An instruction that is not needed if `parts`, at these bytes, lie in `whole`."""

    step: int
    whole: Storage
    parts: tuple[tuple[Storage, int], ...]
    #: True if the instruction makes the whole (a cat), False if the part (a slice).
    joins: bool


class Reuse:
    """Collects candidates for sharing memory during emission, and decides at the end."""

    def __init__(self, *, in_place: bool = True, views: bool = True, alignment: int = 16) -> None:
        self._in_place = in_place
        self._views = views
        self._alignment = alignment
        self._found: list[_InPlace | _Copies] = []

    def offer(self, kernel: str, step: int, node: Node, result: Storage, operands: Sequence[tuple[Node, Any]]) -> None:
        """Examine a kernel call: `operands` are its tensor arguments, with their planned memory, or None."""
        planned = tuple(storage for _, storage in operands if storage is not None)
        if kernel in IN_PLACE:
            if self._in_place:
                # An operand that is the whole of a storage; broadcast ones are smaller than the result.
                same = tuple(s for operand, s in operands if s is not None and _same_layout(operand, node))
                self._found.append(_InPlace(step, result, same, planned))
        elif self._views and not is_dynamic(node.meta["val"]):
            if node.target in _ROWS and operands[0][1] is not None:
                offset = _ROWS[node.target](node)
                if offset is not None and offset % self._alignment == 0 and not is_dynamic(operands[0][0].meta["val"]):
                    self._found.append(_Copies(step, operands[0][1], ((result, offset),), joins=False))
            elif node.target is aten.cat.default and len(planned) == len(operands):
                self._offer_cat(step, node, result, operands)

    def _offer_cat(self, step: int, node: Node, result: Storage, operands: Sequence[tuple[Node, Any]]) -> None:
        shape = node.meta["val"].shape
        dim = read_argument(node, "dim") % len(shape)
        if math.prod(shape[:dim]) != 1 or len({id(storage) for _, storage in operands}) < len(operands):
            return
        parts: list[tuple[Storage, int]] = []
        offset = 0
        for operand, storage in operands:
            if is_dynamic(operand.meta["val"]) or operand.meta["val"].dtype != node.meta["val"].dtype:
                return
            parts.append((storage, offset))
            offset += storage.size
        if offset == result.size and not any(start % self._alignment for _, start in parts):
            self._found.append(_Copies(step, result, tuple(parts), joins=True))

    def apply(self, storages: Sequence[Storage], planner: str = "best") -> set[int]:
        """Put storages into others and return the steps whose instructions are not needed any more.

        A plan of fewer values with longer lifetimes may become larger, although it need not: then less is shared.
        """
        if not self._found:
            return set()
        if len(storages) > _TRIALS:
            return self._merge(storages, (_InPlace, _Copies))
        before = [(storage.first, storage.last) for storage in storages]
        choices: list[tuple[type, ...]] = [(_InPlace, _Copies), (_InPlace,), ()]
        sizes: list[int] = []
        for kinds in choices:
            needless = self._merge(storages, kinds)
            roots = [storage for storage in storages if storage.within is None]
            requests = [Request(root.size, root.first, root.last, self._alignment) for root in roots]
            plan = plan_memory(requests, planner)
            if not sizes and is_least(requests, plan):
                return needless
            sizes.append(plan.size)
            _reset(storages, before)
        return self._merge(storages, choices[sizes.index(min(sizes))])

    def _merge(self, storages: Sequence[Storage], kinds: tuple[type, ...]) -> set[int]:
        load = _Load(storages)
        needless: set[int] = set()
        for item in self._found:
            if isinstance(item, _InPlace) and _InPlace in kinds:
                self._take_over(item, load)
            elif isinstance(item, _Copies) and _Copies in kinds and self._share(item, load):
                needless.add(item.step)
        return needless

    def _take_over(self, item: _InPlace, load: _Load) -> None:
        for candidate in item.candidates:
            root, _ = candidate.root()
            if not _dies(root, item) or not _whole(candidate, root):
                continue
            # Another operand in the same memory must be read at exactly the places that are written.
            others = [operand for operand in item.operands if operand.root()[0] is root]
            if all(_whole(operand, root) for operand in others):
                load.change(root, -1)
                load.change(item.result, -1)
                item.result.put_into(root)
                load.change(root, 1)
                return

    def _share(self, item: _Copies, load: _Load) -> bool:
        """Put the parts into the whole, unless that is wrong or raises the peak load."""
        whole, base = item.whole.root()
        parts = [(part.root()[0], base + offset) for part, offset in item.parts]
        roots = {whole, *(root for root, _ in parts)}
        if (
            whole.rewritten
            or len(roots) <= len(parts)
            or not all(_is_free(part, root) for (part, _), (root, _) in zip(item.parts, parts, strict=True))
            or not (item.joins or parts[0][0].last < FOREVER)
        ):
            return False
        before = load.largest
        first, last = whole.first, whole.last
        for storage in (whole, *(part for part, _ in parts)):
            load.change(storage, -1)
        for part, offset in parts:
            part.put_into(whole, offset)
        load.change(whole, 1)
        if load.largest <= before:
            return True
        load.change(whole, -1)
        whole.first, whole.last = first, last
        for part, _ in parts:
            part.within, part.shift = None, 0
            load.change(part, 1)
        load.change(whole, 1)
        return False


def _reset(storages: Sequence[Storage], lives: Sequence[tuple[int, int]]) -> None:
    """Undo the placement of storages in each other."""
    for storage, (first, last) in zip(storages, lives, strict=True):
        storage.first, storage.last, storage.within, storage.shift = first, last, None, 0


def _dies(root: Storage, item: _InPlace) -> bool:
    """True if an operand's memory is not needed after the instruction, which is the only one to write the result."""
    result = item.result
    return (
        root.last == item.step == result.first
        and root.size == result.size > 0
        and not (root.rewritten or result.rewritten)
        and root is not result
        and result.within is None
    )


def _whole(storage: Storage, root: Storage) -> bool:
    return storage.size == root.size


def _is_free(storage: Storage, root: Storage) -> bool:
    """True if a value's memory may be moved: nothing else than it, or the values that it took over, is there."""
    return _whole(storage, root) and not root.rewritten and root.size > 0


def _same_layout(operand: Node, node: Node) -> bool:
    mine, its = node.meta["val"], operand.meta["val"]
    return mine.dtype == its.dtype and list(map(str, mine.shape)) == list(map(str, its.shape))


def _row_bytes(node: Node, dim: int) -> int | None:
    """Bytes from one row along `dim` to the next; None if sizes before it separate the rows."""
    operand: Any = node.args[0]
    value = operand.meta["val"]
    if is_dynamic(value) or math.prod(value.shape[:dim]) != 1:
        return None
    return int(math.prod(value.shape[dim + 1 :]) * value.element_size())


def _slice_offset(node: Node) -> int | None:
    operand: Any = node.args[0]
    dim = read_argument(node, "dim") % operand.meta["val"].dim()
    start, step = read_argument(node, "start") or 0, read_argument(node, "step")
    row = _row_bytes(node, dim)
    if row is None or step != 1 or not isinstance(start, int) or start < 0 or not node.meta["val"].numel():
        return None
    return start * row


def _select_offset(node: Node) -> int | None:
    operand: Any = node.args[0]
    dim, index = read_argument(node, "dim") % operand.meta["val"].dim(), read_argument(node, "index")
    row = _row_bytes(node, dim)
    if row is None or not isinstance(index, int) or index < 0 or not node.meta["val"].numel():
        return None
    return index * row


#: Operators that take consecutive rows -> the byte offset of these; None if they do not.
_ROWS = {aten.slice_copy.Tensor: _slice_offset, aten.select_copy.int: _select_offset}


class _Load:
    """Bytes in use at each step, as a segment tree with fast range addition and maximum."""

    def __init__(self, storages: Sequence[Storage]) -> None:
        end = max((s.last for s in storages if s.last < FOREVER), default=0)
        self._end = max(end, max((s.first for s in storages), default=0)) + 1
        self._leaves = 1 << self._end.bit_length()
        self._most = [0] * (2 * self._leaves)  # of the steps below a node, without additions above it
        self._added = [0] * (2 * self._leaves)
        for storage in storages:
            self.change(storage, 1)

    @property
    def largest(self) -> int:
        """Peak of the bytes in use."""
        return self._most[1]

    def change(self, storage: Storage, sign: int) -> None:
        """Add a storage's bytes, or with -1 subtract them."""
        amount = sign * storage.size
        low = storage.first + self._leaves
        high = min(storage.last, self._end) + self._leaves + 1
        touched = low, high - 1
        while low < high:
            if low & 1:
                self._add(low, amount)
                low += 1
            if high & 1:
                high -= 1
                self._add(high, amount)
            low, high = low // 2, high // 2
        for leaf in touched:
            node = leaf // 2
            while node:
                below = max(self._most[2 * node], self._most[2 * node + 1])
                self._most[node] = below + self._added[node]
                node //= 2

    def _add(self, node: int, amount: int) -> None:
        self._most[node] += amount
        self._added[node] += amount
