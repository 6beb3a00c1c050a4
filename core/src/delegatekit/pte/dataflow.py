"""The reads and writes of each instruction of a method, also those that the file does not list.

Two things must be inferred. The file lists a delegate's arguments without marking where the outputs begin. And writers
may omit views: then a value that no instruction writes is another value's memory under another shape.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from delegatekit_api import FormatError

from . import schema
from .signatures import signature, written

#: Limit of list items that are examined in any method; larger for longer lists.
_LIST_ITEMS = 1 << 20


@dataclass(frozen=True)
class Effect:
    """Values by index. Those in `updates` are written in place, and are among `reads`, too.

    `through` are values that `reads` access under another name, in the same memory.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    updates: tuple[int, ...] = ()
    through: tuple[int, ...] = ()


def calls(plan: schema.ExecutionPlan) -> list[Any]:
    """The instructions of all chains, one after the other."""
    return [instruction.instr_args for chain in plan.chains or () for instruction in chain.instructions or ()]


def callee(plan: schema.ExecutionPlan, call: Any) -> str:
    """The callee of an instruction: "aten::add.out", "delegate 0", "MoveCall"."""
    if isinstance(call, schema.KernelCall):
        return (plan.operators or [])[call.op_index].full_name
    if isinstance(call, schema.DelegateCall):
        return f"delegate {call.delegate_index}"
    return type(call).__name__


def effects(plan: schema.ExecutionPlan, delegate_outputs: Mapping[int, int] | None = None) -> tuple[Effect, ...]:
    """The effect of each instruction of `calls(plan)`; one more at the end reads the method's outputs.

    `delegate_outputs` has the number of outputs of each delegate, by index, as far as known.
    The plan's indices must have been checked. Raises FormatError for a delegate whose inputs and outputs are mixed up.
    """
    return tuple(_Flow(plan, delegate_outputs or {}).run())


class _Flow:
    def __init__(self, plan: schema.ExecutionPlan, delegate_outputs: Mapping[int, int]) -> None:
        self.plan = plan
        self.delegate_outputs = delegate_outputs
        self.values = [value.val for value in plan.values or ()]
        self.calls = calls(plan)
        # Many calls may share one long list, but not so many that work and memory explode.
        self.budget = _LIST_ITEMS + 16 * sum(len(getattr(value, "items", None) or ()) for value in self.values)
        self.last_mention = self._find_last_mentions()
        self.defined: set[int] = set()
        self.read: set[int] = set()
        #: Memory -> the last value written there.
        self.owners: dict[tuple[int, int], int] = {}
        #: Buffer -> the spans of these values that are not overwritten, as (begin, end, value), sorted.
        self.spans: dict[int, list[tuple[int, int, int]]] = {}

    def run(self) -> Iterator[Effect]:
        inputs = set(self.plan.inputs or ())
        for index, value in enumerate(self.values):
            if index in inputs or not _is_computed(value):
                self.define(index)
        for step, call in enumerate(self.calls):
            yield self.settled(self.effect(step, call))
        yield self.settled(Effect(tuple(self.plan.outputs or ()), ()))

    def settled(self, effect: Effect) -> Effect:
        """The effect including aliases of its reads, after which its values are read and written."""
        unwritten = (index for index in effect.reads if index not in self.defined)
        through = tuple(dict.fromkeys(owner for index in unwritten for owner in self.seen(index)))
        self.read.update(effect.reads, through)
        for index in effect.writes:
            self.define(index)
        return replace(effect, through=through)

    def define(self, index: int) -> None:
        self.defined.add(index)
        self.read.discard(index)
        place = _place(self.values[index])
        if place is not None:
            self.owners[place] = index
            spans = self.spans.setdefault(place[0], [])
            end = place[1] + _size(self.values[index])
            low, high = _overlapping(spans, place[1], end)
            spans[low:high] = [(place[1], end, index)] if end > place[1] else []

    def seen(self, index: int) -> list[int]:
        """The values that share this one's memory: the same, a larger one that contains it, or its parts."""
        place = _place(self.values[index])
        if place is None:
            return []
        spans = self.spans.get(place[0], [])
        low, high = _overlapping(spans, place[1], place[1] + _size(self.values[index]))
        self.spend(high - low)
        return [owner for _, _, owner in spans[low:high]]

    def owner(self, index: int) -> int | None:
        """The value that owns this one's memory."""
        place = _place(self.values[index])
        return None if place is None else self.owners.get(place)

    def effect(self, step: int, call: Any) -> Effect:
        if isinstance(call, schema.KernelCall):
            return self.kernel(step, call)
        if isinstance(call, schema.DelegateCall):
            return self.delegate(step, call)
        if isinstance(call, schema.MoveCall):
            return Effect((call.move_from,), (call.move_to,))
        if isinstance(call, schema.JumpFalseCall):
            return Effect((call.cond_value_index,), ())
        return Effect((), ())

    def kernel(self, step: int, call: schema.KernelCall) -> Effect:
        name = (self.plan.operators or [])[call.op_index].full_name
        arguments = call.args or []
        known = signature(name)
        outputs, updates = (known.outputs, known.updates) if known is not None else (written(call, self.values), ())
        writes = dict.fromkeys(item for position in outputs for item in self.tensors(arguments[position]))
        if known is None:
            writes |= dict.fromkeys(index for index in arguments if self.is_scratch(step, index))
        updated = dict.fromkeys(item for position in updates for item in self.tensors(arguments[position]))
        reads = dict.fromkeys(item for argument in arguments for item in self.tensors(argument) if item not in writes)
        if name == "executorch_prim::et_view.default" and self.same_place(arguments[0], arguments[2]):
            writes = {}  # a view in the memory of its operand: nothing is written
        return Effect(tuple(reads), tuple(writes), tuple(updated))

    def is_scratch(self, step: int, index: int) -> bool:
        """True if a library's argument is memory for its call: it has no value, and is no view of one."""
        if index in self.defined or _place(self.values[index]) is None:
            return False
        size = _size(self.values[index])
        return not any(
            self.last_mention[owner] > step or (self.same_place(owner, index) and _size(self.values[owner]) == size)
            for owner in self.seen(index)
        )

    def delegate(self, step: int, call: schema.DelegateCall) -> Effect:
        arguments = call.args or []
        stated = self.delegate_outputs.get(call.delegate_index)
        if stated is not None and 0 < stated <= len(arguments):
            return Effect(tuple(arguments[:-stated]), tuple(arguments[-stated:]))
        all_arguments = set(arguments)
        known = [self.is_input(step, index, all_arguments) for index in arguments]
        # Inputs come first: an argument before an input is one.
        last_input = max((position for position, is_input in enumerate(known) if is_input), default=-1)
        first_output = next((position for position, is_input in enumerate(known) if is_input is False), len(known))
        if first_output < last_input:
            raise FormatError(
                f"inputs and outputs are mixed up: argument {first_output} has no value yet",
                where=f"method {self.plan.name}, instruction {step}",
            )
        border = next(
            (
                position
                for position in range(last_input + 1, first_output)
                if self.last_mention[arguments[position]] > step
            ),
            first_output,
        )
        if border == len(arguments) > last_input + 1:
            border -= 1  # a delegate has at least one output
        return Effect(tuple(arguments[:border]), tuple(arguments[border:]))

    def is_input(self, step: int, index: int, arguments: Collection[int]) -> bool | None:
        """True if a delegate's argument is an input; None if its memory holds a value that it may be a view of."""
        if index in self.defined or index in self.read:
            return True
        owner = self.owner(index)
        if owner is None or _size(self.values[owner]) != _size(self.values[index]):
            return False
        # An output may overwrite a value that was read already and is not needed any more.
        if owner not in self.read or self.last_mention[owner] > step or owner in arguments:
            return True
        return None

    def same_place(self, first: int, second: int) -> bool:
        place = _place(self.values[first])
        return place is not None and place == _place(self.values[second])

    def tensors(self, index: int) -> Sequence[int]:
        """The value itself; of a list of tensors, its items."""
        value = self.values[index]
        if isinstance(value, schema.TensorList | schema.OptionalTensorList):
            self.spend(len(value.items or ()))
            return [item for item in value.items or () if item >= 0]
        return (index,)

    def spend(self, items: int) -> None:
        self.budget -= items
        if self.budget < 0:
            raise FormatError(
                "its lists of tensors unfold to far more than the file holds", where=f"method {self.plan.name}"
            )

    def _find_last_mentions(self) -> list[int]:
        last = [-1] * len(self.values)
        for step, call in enumerate(self.calls):
            if isinstance(call, schema.KernelCall | schema.DelegateCall):
                for argument in call.args or ():
                    for index in self.tensors(argument):
                        last[index] = step
            elif isinstance(call, schema.MoveCall):
                last[call.move_from] = step
        for index in self.plan.outputs or ():
            last[index] = len(self.calls)
        return last


def _is_computed(value: Any) -> bool:
    """True if a value is a tensor whose content an instruction must compute."""
    if not isinstance(value, schema.Tensor):
        return False
    extra = value.extra_tensor_info
    return not value.data_buffer_idx and not (extra is not None and extra.location)


def _place(value: Any) -> tuple[int, int] | None:
    if not isinstance(value, schema.Tensor) or value.allocation_info is None:
        return None
    return value.allocation_info.memory_id, value.allocation_info.offset


def _size(value: Any) -> int:
    return value.nbytes if isinstance(value, schema.Tensor) else 0


def _overlapping(spans: Sequence[tuple[int, int, int]], begin: int, end: int) -> tuple[int, int]:
    """The range of the sorted, disjoint spans that overlap the bytes from `begin` to `end`."""
    low = bisect.bisect_left(spans, (begin, -1, -1))
    if low and spans[low - 1][1] > begin:
        low -= 1
    return low, max(low, bisect.bisect_left(spans, (end, -1, -1)))
