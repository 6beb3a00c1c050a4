"""The walk over a partition: lowers each operator call by its row and records the value of each tensor.

A backend derives its graph builder from `PartitionBuilder`, defines how inputs, constants and outputs are made, and
passes in the support table: rows join operators and lowering functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from operator import getitem
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from delegatekit_api import Call, LoweringError, Operand, ProgramView

from .spilling import spilled
from .support import Row

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

#: The backend graph's counterpart of a tensor.
ValueT = TypeVar("ValueT")
#: A node, a value, or whatever else is to be made only once.
MadeT = TypeVar("MadeT")


class DebugHandles:
    """The program's operators behind each instruction of a blob, in the form of `PreprocessResult`.

    >>> handles = DebugHandles()
    >>> handles.add(0, 7); handles.add(0, 5); handles.add(0, 7); handles.add("conv", None)
    >>> handles.mapping
    {0: (7, 5)}
    """

    def __init__(self) -> None:
        self._found: dict[int | str, dict[int, None]] = {}

    def add(self, instruction: int | str, *handles: int | None) -> None:
        """Record that an instruction came (also) from calls with these handles; None is ignored."""
        known = [handle for handle in handles if handle is not None]
        if known:
            self._found.setdefault(instruction, {}).update(dict.fromkeys(known))

    def joined(self, reads: Mapping[str, Iterable[str]], executed: Collection[str]) -> DebugHandles:
        """The handles by the nodes that a library executes, which joined some of a graph's into one.

        `reads` has the nodes that each node reads, in execution order; `executed` are those that are left. Another one
        was joined with what reads it, or else with what it reads.

        >>> handles = DebugHandles()
        >>> for handle, name in enumerate(("scale", "product", "bias", "relu")):
        ...     handles.add(name, handle)
        >>> reads = {"scale": [], "product": ["scale"], "bias": ["product"], "relu": ["bias"]}
        >>> handles.joined(reads, {"product", "bias"}).mapping
        {'product': (0, 1), 'bias': (2, 3)}
        """
        places = {name: name for name in reads if name in executed}
        for name in reversed(list(reads)):
            for read in reads[name]:
                if name in places:
                    places.setdefault(read, places[name])
        for name, before in reads.items():
            place = next((places[read] for read in before if read in places), None)
            if place is not None:
                places.setdefault(name, place)
        found = DebugHandles()
        for instruction, handles in self.mapping.items():
            if instruction in places:
                found.add(places[str(instruction)], *handles)
        return found

    @property
    def mapping(self) -> dict[int | str, tuple[int, ...]]:
        """The content of `PreprocessResult.debug_handle_map`."""
        return {instruction: tuple(handles) for instruction, handles in self._found.items()}


class Merging(Generic[MadeT]):
    """Makes equal things once: `key` has everything that distinguishes them.

    >>> nodes: Merging[list[str]] = Merging()
    >>> first = nodes.once(("add", 0, 1), lambda: ["a node"])
    >>> nodes.once(("add", 0, 1), lambda: ["another"]) is first
    True
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, MadeT] = {}

    def once(self, key: Hashable, make: Callable[[], MadeT]) -> MadeT:
        """The item made earlier for an equal key, or a new one."""
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make()
        return found


class PartitionBuilder(Generic[ValueT]):
    """Base of a graph builder. A subclass has `make_input`, `make_constant` and `make_output`, and the methods that
    lowering functions call; these are called as `lower(builder, call)` and return the value of the call's result (a
    tuple for several results). The names `program`, the partition's program, and `debug_handle`, that of the call which
    is being lowered, are the base's.

    >>> from delegatekit_toolkit.support import SupportTable, row
    >>> from delegatekit_toolkit.testing import view_of
    >>> class Lines(PartitionBuilder[str]):
    ...     def make_input(self, operand):
    ...         return f"in{operand.rank}"
    ...     def make_constant(self, operand, data):
    ...         return f"constant{tuple(data.shape)}"
    ...     def make_output(self, value, operand):
    ...         print("return", value)
    ...
    >>> def product(b, call):
    ...     return f"{b.value(call['self'])} * {b.value(call['other'])}"
    ...
    >>> import torch
    >>> weight = torch.ones(3)
    >>> view = view_of(lambda x: x * weight, torch.ones(2, 3))
    >>> Lines(view).build(SupportTable([row("mul.Tensor", product)]))
    return in2 * constant(3,)
    """

    #: True if large constants that are computed when they are read go to temporary files, where all are at hand.
    spills: ClassVar[bool] = False

    def __init__(self, program: ProgramView) -> None:
        #: The partition's program.
        self.program: Final = program
        self._spilled: dict[Node, torch.Tensor] = {}
        #: The debug handle of the call that is being lowered.
        self.debug_handle: int | None = None
        self._values: dict[Operand, ValueT] = {}

    # -- what a backend defines --------------------------------------------------------------------------------------

    def make_input(self, operand: Operand) -> ValueT:
        """The value of the partition's next input."""
        raise NotImplementedError

    def make_constant(self, operand: Operand, data: torch.Tensor) -> ValueT:
        """The value of a constant that is used for the first time."""
        raise NotImplementedError

    def make_output(self, value: ValueT, operand: Operand) -> None:
        """Return a value as the partition's next output."""
        raise NotImplementedError

    def begin(self, call: Call, entry: Row[Any]) -> None:
        """Called before a call is lowered by this row. Overrides must call this one."""
        self.debug_handle = call.debug_handle

    # -- what lowering functions use ----------------------------------------------------------------------------------

    def value(self, operand: Operand) -> ValueT:
        """The value of an input, a constant, or a result. Raises LoweringError for others."""
        place = place_of(operand)
        found = self._values.get(place)
        if found is None:
            data = self.known(place)
            if data is None:
                raise LoweringError("is used before it is lowered", where=operand.description)
            found = self._values[place] = self.make_constant(place, data)
        return found

    def known(self, operand: Operand) -> torch.Tensor | None:
        """The elements of a constant, None if it is none; with `spills` computed ones may be on a file.

        Raises LoweringError if there is no room for the file.
        """
        node = operand.node
        if node in self._spilled:
            return self._spilled[node]
        data = operand.constant
        if self.spills and data is not None and self.program.release(node):
            data = self._spilled[node] = spilled(data)
        return data

    def release(self, call: Call) -> None:
        """Free the constants that a call reads, which were written elsewhere in another form."""
        for operand in call.operands:
            if operand.is_constant:
                self.program.release(operand.node)

    def values(self, operands: Iterable[Operand]) -> tuple[ValueT, ...]:
        """The values of several tensors."""
        return tuple(map(self.value, operands))

    def define(self, operand: Operand, value: ValueT) -> None:
        """Set the value of a tensor. The walk does it for results; an override may check the shape."""
        self._values[place_of(operand)] = value

    # -- the walk -----------------------------------------------------------------------------------------------------

    def build(self, table: Mapping[str, Row[Any]], *, skip: Callable[[Call], bool] = lambda call: False) -> None:
        """Lower inputs, calls in execution order, outputs. Calls for which `skip` is true belong to another lowering.

        Raises LoweringError for an operator that has no row, and for an output that is not computed.
        """
        program = self.program
        for node in program.inputs:
            operand = program.operand(node)
            self.define(operand, self.make_input(operand))
        self.lower(program.calls(), table, skip=skip)
        for result_node in program.outputs:
            if result_node is None:
                raise LoweringError("returns something that is not computed", where="outputs of the partition")
            operand = program.operand(result_node)
            self.make_output(self.value(operand), operand)

    def lower(
        self,
        calls: Iterable[Call],
        table: Mapping[str, Row[Any]],
        *,
        skip: Callable[[Call], bool] = lambda call: False,
    ) -> None:
        """Lower some calls, in execution order, whose operands are defined or constants. Raises LoweringError."""
        for call in calls:
            if skip(call):
                continue
            entry = table.get(call.operator)
            if entry is None:
                raise LoweringError("the backend has no lowering for this operator", where=call.description)
            self.begin(call, entry)
            made = entry.lower(self, call)
            results = call.results
            if not results:
                raise LoweringError("has a number as its result: a delegate returns tensors", where=call.description)
            if len(results) == 1 and results[0].index is None:
                self.define(results[0], made)
            else:
                for result in results:
                    self.define(result, made[result.index])


def place_of(operand: Operand) -> Operand:
    """One of several results as a result of the call, even if a `getitem` reads it."""
    node = operand.node
    if node.target is not getitem:
        return operand
    source, index = node.args
    return Operand(source, operand.program, index)  # type: ignore[arg-type]
