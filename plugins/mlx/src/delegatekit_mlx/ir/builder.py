"""The argument of lowering functions: the graph under construction, and the tensors of the program's calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import torch

from delegatekit_api import Call, LoweringError, NamedData, Operand, ProgramView
from delegatekit_toolkit.building import DebugHandles, Merging, PartitionBuilder
from delegatekit_toolkit.content import ConstantStore, storage_key
from delegatekit_toolkit.expressions import is_fixed, sizes_of
from delegatekit_toolkit.flatbuffer import Table
from delegatekit_toolkit.signature import Range, Signature, TensorType
from delegatekit_toolkit.support import Row
from delegatekit_toolkit.symbols import SizeBounds

from ..blob import schema
from ..blob.schema import Role, places
from ..blob.types import NUMBERS, key_of
from .sizes import Scalar, Size, SizeWriter, Terms

_WHERE: Final = "MLX lowering"
#: Integers beyond are constants: the graph has numbers as floating-point ones, which a runtime may hold in float32.
_EXACT: Final = 1 << 24


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the graph."""

    shape: tuple[Size, ...]
    dtype: torch.dtype

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """True for floating-point numbers."""
        return self.dtype.is_floating_point


@dataclass
class _Step:
    """An operator, with the values in its fields."""

    kind: type[Table]
    fields: dict[str, Any]
    debug_handle: int | None

    def reads(self) -> Iterator[Value | Scalar]:
        """The tensors and values that it reads."""
        for place in places(self.kind):
            found = self.fields.get(place.name)
            if place.role in (Role.WRITES, Role.WRITES_ALL, Role.WRITES_VALUE, Role.OTHER):
                continue
            for item in found if isinstance(found, list | tuple) else (found,):
                if isinstance(item, Value | Scalar):
                    yield item

    def writes(self) -> Iterator[Value | Scalar]:
        """The tensors and values that it computes."""
        for place in places(self.kind):
            if place.role in (Role.WRITES, Role.WRITES_ALL, Role.WRITES_VALUE):
                found = self.fields[place.name]
                yield from found if isinstance(found, list) else (found,)


@dataclass
class Finished:
    """A graph, and what belongs to it."""

    graph: schema.MLXGraph
    named_data: tuple[NamedData, ...]
    signature: Signature
    handles: DebugHandles = field(default_factory=DebugHandles)


class GraphBuilder(PartitionBuilder[Value]):
    """Writes operators of MLX's graph for calls of the edge dialect."""

    def __init__(self, program: ProgramView) -> None:
        super().__init__(program)
        self._steps: list[_Step] = []
        self._first_steps: list[_Step] = []
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []
        self._buffers: list[Value] = []
        self._constants: dict[Value, torch.Tensor] = {}
        self._made: Merging[Value] = Merging()
        #: The tensors that constants were made of: as long as they live, nothing else has their addresses.
        self._sources: list[torch.Tensor] = []
        self._sizes = SizeWriter(self.scalar)

    # -- the walk over the program -------------------------------------------------------------------------------------

    def build(self, table: Mapping[str, Row[Any]], *, skip: Callable[[Call], bool] = lambda call: False) -> None:
        """As the base class; buffers that the delegate keeps are written after all else."""
        for node, state in self.program.buffers.items():
            operand = self.program.operand(node)
            value = Value(tuple(state.initial.shape), state.initial.dtype)
            self._buffers.append(value)
            self.define(operand, value)
            if bool(state.initial.detach().reshape(-1).view(torch.uint8).any()):
                initial = self.constant(state.initial)
                self._first_steps.append(_Step(schema.IdCopyNode, {"x": initial, "out": value}, None))
        super().build(table, skip=skip)
        updated = [self.value(self.program.operand(state.updated)) for state in self.program.buffers.values()]
        # One buffer's new value may be another one, which is written, too.
        updated = [self.copied(value) if value in self._buffers else value for value in updated]
        for value, buffer in zip(updated, self._buffers, strict=True):
            self._steps.append(_Step(schema.IdCopyNode, {"x": value, "out": buffer}, None))

    def make_input(self, operand: Operand) -> Value:
        """The graph's next input."""
        value = Value(sizes_of(operand.shape), operand.dtype)
        self._inputs.append(value)
        self._sizes.note(value, value.shape)
        return value

    def make_constant(self, operand: Operand, data: torch.Tensor) -> Value:
        """A constant."""
        return self.constant(data)

    def make_output(self, value: Value, operand: Operand) -> None:
        """Return a value as the graph's next output: one that nothing else is."""
        taken = (*self._inputs, *self._outputs, *self._buffers)
        self._outputs.append(self.copied(value) if value in taken or value in self._constants else value)

    def define(self, operand: Operand, value: Value) -> None:
        """Set the value of a result. None is one that nothing uses.

        Raises LoweringError if type or shape are not the program's.
        """
        if value is None:
            return
        wanted = sizes_of(operand.shape)
        fits = len(wanted) == value.rank and all(
            size == found or not isinstance(size, int) or not isinstance(found, int)
            for size, found in zip(wanted, value.shape, strict=True)
        )
        if not fits or value.dtype is not operand.dtype:
            what = f"was lowered to {value.dtype} {value.shape}, not {operand.dtype} {operand.shape}"
            raise LoweringError(what, where=operand.description)
        super().define(operand, value)

    # -- what lowering functions write ---------------------------------------------------------------------------------

    def op(self, kind: type[Table], shape: Iterable[Any], dtype: torch.dtype, /, **fields: Any) -> Value:
        """The tensor that an operator computes, of these sizes and this type; its fields by name, without `out`.

        Tensors are values, integers numbers, SymInts, expressions or scalars.
        """
        out = Value(sizes_of(shape), dtype)
        self._write(kind, fields | {"out": out})
        return out

    def ops(
        self, kind: type[Table], shapes: Iterable[Iterable[Any]], dtype: torch.dtype, /, **fields: Any
    ) -> list[Value]:
        """The tensors that an operator with several results computes."""
        outs = [Value(sizes_of(shape), dtype) for shape in shapes]
        self._write(kind, fields | {"outs": outs})
        return outs

    def scalar(self, kind: type[Table], /, **fields: Any) -> Scalar:
        """The integer that an operator computes."""
        out = Scalar()
        self._write(kind, fields | {"out": out})
        return out

    def _write(self, kind: type[Table], fields: dict[str, Any]) -> None:
        for place in places(kind):
            if place.role is Role.TERM and not isinstance(fields.get(place.name), Value | Scalar | float | None):
                (fields[place.name],) = self.terms([fields[place.name]])
            elif place.role is Role.TERMS:
                fields[place.name] = list(self.terms(fields[place.name]))
        self._steps.append(_Step(kind, fields, self.debug_handle))

    def terms(self, sizes: Iterable[Any]) -> Terms:
        """Sizes as integers of the graph, computed where they change."""
        found: list[int | Scalar] = []
        for size in sizes:
            found += [size] if isinstance(size, Scalar) else self._sizes.vector([size])
        return tuple(found)

    def constant(self, data: torch.Tensor) -> Value:
        """A constant, made once for equal memory."""

        def make() -> Value:
            self._sources.append(data)
            value = Value(tuple(data.shape), data.dtype)
            self._constants[value] = data.detach()
            return value

        return self._made.once(storage_key(data), make)

    def once(self, source: torch.Tensor, make: Callable[[], torch.Tensor], *settings: Hashable) -> Value:
        """A constant that is computed of another one, made once for equal memory and settings."""

        def made() -> Value:
            self._sources.append(source)
            return self.constant(make().contiguous())

        return self._made.once((storage_key(source), *settings, "computed"), made)

    def number(self, number: float, dtype: torch.dtype) -> Value:
        """A number of a type, without axes."""
        if not dtype.is_floating_point and abs(number) > _EXACT:
            return self._made.once(
                ("constant", repr(number), dtype), lambda: self.constant(torch.tensor(number, dtype=dtype))
            )
        # repr tells zeros of both signs, and NaN, apart.
        return self._made.once(("number", repr(number), dtype), lambda: self.full((), float(number), dtype))

    def full(self, shape: Iterable[Any], number: Any, dtype: torch.dtype) -> Value:
        """A tensor of one number, or of a size."""
        sizes = tuple(shape)
        term = number if isinstance(number, float) else self.terms([number])[0]
        term = float(term) if isinstance(term, int) else term
        return self.op(schema.FullNode, sizes, dtype, shape=sizes, v=term, scalar_type=NUMBERS[dtype])

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """A value in another type; itself if it has it."""
        if value.dtype is dtype:
            return value
        return self.op(schema.AsTypeNode, value.shape, dtype, x=value, scalar_type=NUMBERS[dtype])

    def copied(self, value: Value) -> Value:
        """The same tensor as a value of its own."""
        return self.op(schema.IdCopyNode, value.shape, value.dtype, x=value)

    def reshape(self, value: Value, shape: Iterable[Any]) -> Value:
        """The elements in another shape."""
        wanted = sizes_of(shape)
        if wanted == value.shape:
            return value
        return self.op(schema.ReshapeNode, wanted, value.dtype, x=value, shape=wanted)

    # -- the graph -----------------------------------------------------------------------------------------------------

    def finish(self) -> Finished:
        """The graph with numbered tensors, its constants, and its signature."""
        steps = self._needed()
        store, names = _Keys(), _Numbers()
        used = dict.fromkeys(item for step in (*self._first_steps, *steps) for item in step.reads())
        #: Key -> the first of the constants that have it.
        constants: dict[str, Value] = {}
        for value in used:
            if isinstance(value, Value) and value in self._constants:
                first = constants.setdefault(store.add(self._constants[value]), value)
                names.number(first)
                names.same(value, first)
        for value in (*self._inputs, *self._outputs, *self._buffers):
            names.number(value)
        chains = [self._numbered(steps, names)]
        if self._first_steps:
            chains.append(self._numbered(self._first_steps, names))
        bounds = SizeBounds()
        program = self.program
        signature = Signature(
            tuple(bounds.type_of(program.operand(node)) for node in program.inputs),
            tuple(bounds.type_of(program.operand(node)) for node in program.outputs if node is not None),
        )
        metas = [
            *map(_meta_of, constants.values()),
            *map(_meta, (*signature.inputs, *signature.outputs)),
            *map(_meta_of, self._buffers),
        ]
        graph = schema.MLXGraph(
            version=schema.VERSION,
            num_constant_tensors=len(constants),
            num_input_tensors=len(self._inputs),
            num_output_tensors=len(self._outputs),
            num_mutable_buffer_tensors=len(self._buffers),
            num_temp_tensors=names.tensors - len(metas),
            num_values=names.values,
            instruction_chains=[schema.InstructionChain(instructions=chain) for chain in chains],
            main_chain_idx=0,
            init_chain_idx=1 if self._first_steps else -1,
            input_map=_slots(self._inputs, names),
            output_map=_slots(self._outputs, names),
            mutable_buffer_map=_slots(self._buffers, names),
            named_slots=[
                schema.NamedSlot(name=key, slot=schema.SlotVariant(idx=names[value]))
                for key, value in constants.items()
            ],
            tensor_meta=metas,
        )
        handles = DebugHandles()
        for number, step in enumerate(steps):
            handles.add(number, step.debug_handle)
        return Finished(graph, store.named_data, signature, handles)

    def _needed(self) -> list[_Step]:
        """The steps whose results something reads."""
        needed: set[Value | Scalar] = {*self._outputs, *self._buffers}
        found = []
        for step in reversed(self._steps):
            if any(item in needed for item in step.writes()):
                needed.update(step.reads())
                found.append(step)
        return found[::-1]

    def _numbered(self, steps: Sequence[_Step], names: _Numbers) -> list[schema.Instruction]:
        """The instructions of some steps: temporary tensors have the numbers of earlier ones that are read no more."""
        last: dict[Any, int] = {}
        for place, step in enumerate(steps):
            for item in (*step.reads(), *step.writes()):
                last[item] = place
        found = []
        for place, step in enumerate(steps):
            for item in step.writes():
                names.number(item, reused=True)
            found.append(schema.Instruction(op=_written(step, names)))
            for item in dict.fromkeys((*step.reads(), *step.writes())):
                if last[item] == place:
                    names.release(item)
        return found


class _Keys:
    """Collects constants under keys that tell type, sizes and content: each is one tensor of the graph."""

    def __init__(self) -> None:
        self._stores: dict[str, ConstantStore] = {}

    def add(self, data: torch.Tensor) -> str:
        """The key of a constant."""
        beginning = key_of(data.dtype, data.shape)
        return self._stores.setdefault(beginning, ConstantStore(beginning)).add(data)

    @property
    def named_data(self) -> tuple[NamedData, ...]:
        """The data of all constants."""
        return tuple(item for store in self._stores.values() for item in store.named_data)


class _Numbers:
    """The numbers of tensors and values."""

    def __init__(self) -> None:
        self.tensors = 0
        self.values = 0
        self._found: dict[Value | Scalar, int] = {}
        self._temporary: set[Value] = set()
        self._free: list[int] = []

    def __getitem__(self, item: Value | Scalar) -> int:
        return self._found[item]

    def number(self, item: Value | Scalar, *, reused: bool = False) -> None:
        """Give a number to what has none."""
        if item in self._found:
            return
        if isinstance(item, Scalar):
            self._found[item] = self.values
            self.values += 1
            return
        if reused:
            self._temporary.add(item)
            if self._free:
                self._found[item] = self._free.pop()
                return
        self._found[item] = self.tensors
        self.tensors += 1

    def same(self, item: Value, other: Value) -> None:
        """Give a tensor the number of an equal one."""
        self._found[item] = self._found[other]

    def release(self, item: Value | Scalar) -> None:
        """Let another temporary tensor have the number of this one."""
        if item in self._temporary:
            self._free.append(self._found[item])


def _written(step: _Step, names: _Numbers) -> Table:
    made: dict[str, Any] = {}
    for place in places(step.kind):
        found = step.fields.get(place.name)
        if place.name not in step.fields:
            continue
        if place.role is Role.TERM:
            made[place.name] = _term(step.kind, place.name, found, names)
        elif place.role is Role.TERMS:
            made[place.name] = [_integer(item, names) for item in found or ()]
        elif place.role in (Role.READS_ALL, Role.WRITES_ALL):
            made[place.name] = [names[item] for item in found or ()]
        elif place.role is not Role.OTHER and found is not None:
            made[place.name] = names[found]
        else:
            made[place.name] = found
    return step.kind(**made)


def _integer(term: int | Scalar, names: _Numbers) -> schema.IntOrVid:
    if isinstance(term, Scalar):
        return schema.IntOrVid(vid=names[term], is_vid=True)
    return schema.IntOrVid(literal=term)


def _term(kind: type[Table], name: str, term: Any, names: _Numbers) -> Table | None:
    if kind is schema.TakeNode:
        if isinstance(term, Value):
            return schema.IntOrVidOrTid(tid=names[term], kind=2)
        if isinstance(term, Scalar):
            return schema.IntOrVidOrTid(vid=names[term], kind=1)
        return schema.IntOrVidOrTid(literal=term)
    if kind in (schema.FullNode, schema.FullLikeNode):
        if isinstance(term, Scalar):
            return schema.FloatOrVid(vid=names[term], is_vid=True)
        return schema.FloatOrVid(literal=term)
    assert not isinstance(term, Value | float), f"{kind.__name__}.{name} = {term}"
    return None if term is None else _integer(term, names)


def _slots(values: Iterable[Value], names: _Numbers) -> list[schema.SlotVariant]:
    return [schema.SlotVariant(idx=names[value]) for value in values]


def _meta_of(value: Value) -> schema.TensorMeta:
    assert all(map(is_fixed, value.shape))
    name = str(value.dtype).removeprefix("torch.")
    return _meta(TensorType(name, tuple(int(size) for size in value.shape)))


def _meta(kind: TensorType) -> schema.TensorMeta:
    shape = [
        schema.ShapeDim(value=-1, min_value=size.low, max_value=size.high)
        if isinstance(size, Range)
        else schema.ShapeDim(value=size)
        for size in kind.shape
    ]
    order = bytes(range(len(shape))) or None
    return schema.TensorMeta(shape=shape, scalar_type=NUMBERS[getattr(torch, kind.dtype)], dim_order=order)


def product_of(sizes: Iterable[Any]) -> Any:
    """The product of sizes."""
    return math.prod(sizes_of(sizes))


#: What a call becomes: a value, or several where an operator has several results (None: nothing uses it).
Made: TypeAlias = "Value | tuple[Value | None, ...]"
#: Lowers one call of the program: writes what computes it and returns its value, or several.
Lower: TypeAlias = Callable[[GraphBuilder, Call], Made]
