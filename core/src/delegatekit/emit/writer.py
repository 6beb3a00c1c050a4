"""Writes into a method's plan: values and instructions, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from ..pte import schema
from .instructions import InstructionList
from .reuse import Reuse
from .values import Values


@dataclass(frozen=True)
class Writer:
    """The output of writing a method. Each method below begins a step of its own, or several."""

    values: Values
    code: InstructionList
    #: Candidates for sharing memory.
    reuse: Reuse

    def begin(self) -> None:
        """Start the next instruction, which uses and makes the following values."""
        self.values.step = len(self.code) + 1

    def operand(self, item: Any) -> int:
        """The index of a node or of a literal, in use at the next step."""
        self.begin()
        if isinstance(item, Node) or item in self.values:
            return self.values.used(item)
        return self.values.literal(item)

    def copy(self, source: int, target: int) -> None:
        """Copy a tensor into a planned one, with its sizes."""
        self.code.kernel("aten::clone", "out", [source, self.values.literal(None), target, target])

    def copy_into(self, target: int, item: Any) -> None:
        """Copy a node's value (or the value `item` of the file) into a planned one, with its sizes."""
        source = self.operand(item) if isinstance(item, Node) else item
        home = self.values.home(target)
        if home is not None:
            home.last = max(home.last, self.values.step)
        if source != target:
            self.copy(source, target)

    def kept(self, item: Any, among: list[Any]) -> int:
        """The value of `item`, or a copy of it if it is one of `among`, which are about to change."""
        index = self.operand(item)
        home = self.values.storage(item)
        if home is None or home not in [self.values.home(place) for place in among]:
            return index
        copy = self.values.planned((item, "kept", self.values.step), item.meta["val"])
        self.copy_into(copy, index)
        place = self.values.home(copy)
        assert place is not None
        place.last = self.values.step + len(among)
        return copy

    def planned_results(self, node: Node, *, dynamic: bool = False) -> list[Any]:
        """Memory for the results of a control flow operator; None for a result that is not a tensor."""
        self.begin()
        results: list[Any] = []
        for number, value in enumerate(node.meta["val"]):
            if not isinstance(value, torch.Tensor):
                results.append(None)
                continue
            index = self.values.planned((node, number), value)
            if dynamic:
                self.values.tensor(index).shape_dynamism = schema.TensorShapeDynamism.DYNAMIC_BOUND
            results.append(index)
            # Written within a loop: the lifetime begins at the first use here, and jumps may come back.
            home = self.values.home(index)
            assert home is not None
            self.values.touch(home)
            home.rewritten = True
        return results

    def row_count(self, node: Node) -> int:
        """The number of rows of a tensor."""
        rows = node.meta["val"].shape[0]
        if isinstance(rows, int):
            return self.values.literal(rows)
        count = self.values.number(0)
        self.code.kernel("aten::sym_size", "int", [self.operand(node), self.values.literal(0), count])
        return count

    def select_row(self, node: Node, row: int) -> int:
        """A tensor's row, copied."""
        source = self.operand(node)
        result = self.values.planned((node, "row", self.values.step), node.meta["val"][0])
        self.code.kernel("aten::select_copy", "int_out", [source, self.values.literal(0), row, result, result])
        return result

    def jump(self, destination: int = 0) -> schema.JumpFalseCall:
        """Jump unconditionally."""
        return self.code.jump_if_false(self.values.literal(False), destination)

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Instructions that may run repeatedly: values from before that they use must stay until the last of them."""
        start = len(self.code)
        with self.values.loop() as used:
            yield
        for storage in used:
            if storage.first <= start + 1:
                storage.last = max(storage.last, len(self.code) + 1)
