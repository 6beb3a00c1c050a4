"""A checked graph: its tensors by kind, and its chains, whose operators name only what exists."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delegatekit_api import FormatError
from delegatekit_toolkit.dataflow import element_count
from delegatekit_toolkit.flatbuffer import Table
from delegatekit_toolkit.signature import Extent, Range, TensorType

from . import schema
from .container import WHERE, unwrap
from .schema import Role, places
from .types import DTYPES

#: Kinds of terms with the number of a value, and of a tensor.
_VALUE: Final = 1
_TENSOR: Final = 2


@dataclass(frozen=True)
class Constant:
    """A constant tensor: its number, the key of its data, and its type."""

    number: int
    key: str
    kind: TensorType


@dataclass(frozen=True)
class Program:
    """The content of a blob. Tensors are numbers."""

    constants: tuple[Constant, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    #: The number and the type of each buffer.
    buffers: dict[int, TensorType]
    chains: tuple[tuple[Table, ...], ...]
    main: int
    #: The chain that runs once before, or None.
    first: int | None
    #: Sizes that change have bounds that do not count: those of the program do.
    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]


def read_program(blob: memoryview | bytes) -> Program:
    """The checked content of a blob, of ours or of stock's exporter. Raises FormatError."""
    return _Reader(unwrap(blob)).program()


def where_of(place: int, operator: Table) -> str:
    """An operator's name in messages."""
    return f"{WHERE}, operator {place} ({kind_of(operator)})"


def kind_of(operator: Table) -> str:
    """The operator's name: "Softmax".

    >>> kind_of(schema.SoftmaxNode())
    'Softmax'
    """
    return type(operator).__name__.removesuffix("Node")


@dataclass
class _Known:
    """The tensors and values that have been computed."""

    tensors: set[int] = field(default_factory=set)
    values: set[int] = field(default_factory=set)


class _Reader:
    def __init__(self, graph: schema.MLXGraph) -> None:
        self.graph = graph
        counts = (
            graph.num_constant_tensors,
            graph.num_input_tensors,
            graph.num_output_tensors,
            graph.num_mutable_buffer_tensors,
            graph.num_temp_tensors,
        )
        starts = [sum(counts[:place]) for place in range(6)]
        self.constants, self.inputs, self.outputs, self.buffers, _ = (
            range(start, end) for start, end in itertools.pairwise(starts)
        )
        self.count = starts[-1]
        self.called: set[int] = set()
        #: What must not be written.
        self.fixed: tuple[range, ...] = (self.inputs,)

    def program(self) -> Program:
        graph = self.graph
        if graph.version != schema.VERSION:
            raise self._wrong(f"has version {graph.version!r:.40} of the format, not {schema.VERSION!r}")
        kinds = self._kinds()
        inputs = self._slots("input", graph.input_map, self.inputs)
        outputs = self._slots("output", graph.output_map, self.outputs)
        buffers = self._slots("buffer", graph.mutable_buffer_map, self.buffers)
        for number in (*self.constants, *buffers):
            if kinds[number].is_dynamic:
                raise self._wrong(f"has a constant or buffer of changing size, {kinds[number]}")
        chains = tuple(self._operators(number) for number in range(len(graph.instruction_chains or ())))
        known = _Known({*self.constants, *self.buffers})
        first = None if graph.init_chain_idx == -1 else graph.init_chain_idx
        if first is not None:
            # Stock's exporter has constants computed there.
            self._run(first, chains, known)
            known.tensors &= {*self.constants, *self.buffers}
        known.tensors |= set(self.inputs)
        self.fixed = (self.constants, self.inputs)
        self._run(graph.main_chain_idx, chains, known)
        for number in outputs:
            if number not in known.tensors:
                raise self._wrong(f"returns tensor {number}, which is never computed")
        return Program(
            self._constants(kinds),
            inputs,
            outputs,
            {number: kinds[number] for number in buffers},
            chains,
            graph.main_chain_idx,
            first,
            tuple(kinds[number] for number in inputs),
            tuple(kinds[number] for number in outputs),
        )

    def _kinds(self) -> list[TensorType]:
        """The types of all tensors that are not temporary."""
        metas = self.graph.tensor_meta or []
        if len(metas) != self.buffers.stop:
            raise self._wrong(f"describes {len(metas)} of {self.buffers.stop} tensors")
        return [self._kind(number, meta) for number, meta in enumerate(metas)]

    def _kind(self, number: int, meta: schema.TensorMeta) -> TensorType:
        where = f"{WHERE}, tensor {number}"
        dtype = DTYPES.get(meta.scalar_type)
        if dtype is None:
            raise FormatError(f"has elements of type {meta.scalar_type}, which is unknown", where=where)
        if meta.shape is None:
            raise FormatError("has no sizes", where=where)
        shape: list[Extent] = []
        for axis, size in enumerate(meta.shape):
            if size.value >= 0:
                shape.append(size.value)
            elif size.value == -1:
                # The bounds tell the exporter's guesses: the program's own count.
                shape.append(Range(0, size.max_value, number * 64 + axis))
            else:
                raise FormatError(f"has a size {size.value}", where=where)
        kind = TensorType(str(dtype).removeprefix("torch."), tuple(shape))
        if not kind.is_dynamic:
            element_count(kind.largest, where, item_bytes=dtype.itemsize, least=0)
        return kind

    def _slots(self, what: str, slots: list[schema.SlotVariant] | None, space: range) -> tuple[int, ...]:
        found = tuple(slot.idx for slot in slots or ())
        if any(slot.slot_type != schema.TENSOR for slot in slots or ()):
            raise self._wrong(f"has an {what} that is a number: tensors are taken")
        if sorted(found) != list(space):
            raise self._wrong(f"lists the {what}s {found!r:.80}, which are not {space.start} to {space.stop - 1}")
        return found

    def _constants(self, kinds: Sequence[TensorType]) -> tuple[Constant, ...]:
        names: dict[int, str] = {}
        for item in self.graph.named_slots or ():
            if item.slot is None or item.name is None:
                raise self._wrong("has a name without a tensor, or a tensor without a name")
            if item.slot.slot_type == schema.TENSOR and item.slot.idx in self.constants:
                if item.slot.idx in names:
                    raise self._wrong(f"names constant {item.slot.idx} twice")
                names[item.slot.idx] = item.name
        missing = next((number for number in self.constants if number not in names), None)
        if missing is not None:
            raise self._wrong(f"does not name constant {missing}")
        return tuple(Constant(number, names[number], kinds[number]) for number in self.constants)

    # -- chains --------------------------------------------------------------------------------------------------------

    def _operators(self, chain: int) -> tuple[Table, ...]:
        found: list[Table] = []
        assert self.graph.instruction_chains is not None
        for place, item in enumerate(self.graph.instruction_chains[chain].instructions or ()):
            if item.op is None:
                raise FormatError("has no operator", where=f"{WHERE}, chain {chain}, instruction {place}")
            found.append(item.op)
        return tuple(found)

    def _run(self, chain: int, chains: Sequence[Sequence[Table]], known: _Known) -> None:
        """Check a chain's operators in order. A chain belongs to one operator, so that none runs itself."""
        if not 0 <= chain < len(chains):
            raise self._wrong(f"runs chain {chain} of {len(chains)}")
        if chain in self.called:
            raise self._wrong(f"runs chain {chain} from two places")
        self.called.add(chain)
        for place, operator in enumerate(chains[chain]):
            where = where_of(place, operator)
            self._check_fields(operator, known, where)
            if isinstance(operator, schema.IfNode):
                branches = []
                for number in (operator.then_chain_idx, operator.else_chain_idx):
                    branches.append(_Known(set(known.tensors), set(known.values)))
                    self._run(number, chains, branches[-1])
                known.tensors |= branches[0].tensors & branches[1].tensors
                known.values |= branches[0].values & branches[1].values
            elif isinstance(operator, schema.ScanNode):
                inside = _Known(known.tensors | set(operator.sliced), set(known.values))
                self._run(operator.body_chain_idx, chains, inside)
                for number in operator.outputs:
                    if number not in inside.tensors:
                        raise FormatError(f"gathers tensor {number}, which its chain does not compute", where=where)
            for role, number in written(operator):
                self._define(role, number, known, where)

    def _check_fields(self, operator: Table, known: _Known, where: str) -> None:
        for place in places(type(operator)):
            if place.required and getattr(operator, place.name) is None:
                raise FormatError(f"has no {place.name}", where=where)
        for role, number in read(operator):
            among = known.tensors if role is Role.READS else known.values
            if number not in among:
                what = "tensor" if role is Role.READS else "value"
                raise FormatError(f"reads {what} {number}, which is not computed before", where=where)

    def _define(self, role: Role, number: int, known: _Known, where: str) -> None:
        if role is Role.WRITES_VALUE:
            if number >= self.graph.num_values:
                raise FormatError(f"writes value {number} of {self.graph.num_values}", where=where)
            known.values.add(number)
            return
        if number >= self.count or any(number in space for space in self.fixed):
            raise FormatError(f"writes tensor {number}, which is a constant, an input, or none", where=where)
        known.tensors.add(number)

    def _wrong(self, what: str) -> FormatError:
        return FormatError(what, where=WHERE)


def read(operator: Table) -> Iterator[tuple[Role, int]]:
    """The tensors (READS) and values (READS_VALUE) that an operator reads."""
    for place in places(type(operator)):
        found: Any = getattr(operator, place.name)
        if found is None:
            continue
        if place.role in (Role.READS, Role.READS_VALUE):
            yield place.role, found
        elif place.role is Role.READS_ALL:
            yield from ((Role.READS, number) for number in found)
        elif place.role is Role.TERM:
            yield from _term(found, operator)
        elif place.role is Role.TERMS:
            for term in found:
                yield from _term(term, operator)


def _term(term: Any, operator: Table) -> Iterator[tuple[Role, int]]:
    """What a term reads. Raises FormatError for one that says that it reads, and not what."""
    kind = term.kind if isinstance(term, schema.IntOrVidOrTid) else _VALUE if term.is_vid else 0
    if isinstance(term, schema.VidOrTid) and not kind:
        kind = _TENSOR
    if kind == 0:
        return
    number = term.vid if kind == _VALUE else term.tid if kind == _TENSOR else None
    if number is None:
        raise FormatError("has a term that is neither a number nor anything that exists", where=kind_of(operator))
    yield (Role.READS_VALUE if kind == _VALUE else Role.READS), number


def written(operator: Table) -> Iterator[tuple[Role, int]]:
    """The tensors (WRITES) and values (WRITES_VALUE) that an operator computes."""
    for place in places(type(operator)):
        found = getattr(operator, place.name)
        if place.role in (Role.WRITES, Role.WRITES_VALUE):
            yield place.role, found
        elif place.role is Role.WRITES_ALL:
            yield from ((Role.WRITES, number) for number in found)
