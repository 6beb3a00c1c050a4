"""The tables of the .pte format, as the ExecuTorch 1.5 runtime reads them; field order is vtable order."""

from __future__ import annotations

import math
from enum import IntEnum

from delegatekit_toolkit.flatbuffer import (
    Table,
    bool_,
    f64,
    i8,
    i32,
    i64,
    ref,
    string,
    tables,
    u32,
    u64,
    union,
    vector,
)

#: File identifier of a .pte.
PTE_IDENTIFIER = b"ET12"


class ScalarType(IntEnum):
    """Element type codes."""

    BYTE = 0
    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    QUINT4X2 = 16
    QUINT2X4 = 17
    BITS16 = 22
    FLOAT8E5M2 = 23
    FLOAT8E4M3FN = 24
    FLOAT8E5M2FNUZ = 25
    FLOAT8E4M3FNUZ = 26
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29


#: Bytes per element.
ELEMENT_SIZE: dict[ScalarType, int] = {
    ScalarType.BYTE: 1,
    ScalarType.CHAR: 1,
    ScalarType.SHORT: 2,
    ScalarType.INT: 4,
    ScalarType.LONG: 8,
    ScalarType.HALF: 2,
    ScalarType.FLOAT: 4,
    ScalarType.DOUBLE: 8,
    ScalarType.BOOL: 1,
    ScalarType.QINT8: 1,
    ScalarType.QUINT8: 1,
    ScalarType.QINT32: 4,
    ScalarType.BFLOAT16: 2,
    ScalarType.QUINT4X2: 1,
    ScalarType.QUINT2X4: 1,
    ScalarType.BITS16: 2,
    ScalarType.FLOAT8E5M2: 1,
    ScalarType.FLOAT8E4M3FN: 1,
    ScalarType.FLOAT8E5M2FNUZ: 1,
    ScalarType.FLOAT8E4M3FNUZ: 1,
    ScalarType.UINT16: 2,
    ScalarType.UINT32: 4,
    ScalarType.UINT64: 8,
}


#: The runtime's limit of tensor dimensions.
LARGEST_RANK = 16


class TensorShapeDynamism(IntEnum):
    """Change of sizes: static, up to the given sizes, or unbounded (which the runtime refuses)."""

    STATIC = 0
    DYNAMIC_BOUND = 1
    DYNAMIC_UNBOUND = 2


class DataLocation(IntEnum):
    """The location of a delegate's blob: in the flatbuffer, or in a segment after it."""

    INLINE = 0
    SEGMENT = 1


class TensorDataLocation(IntEnum):
    """The location of a constant's data: in a segment of this file, or in a .ptd."""

    SEGMENT = 0
    EXTERNAL = 1


class AllocationDetails(Table):
    """Place in a planned buffer; `memory_id` counts from 1."""

    memory_id: int = u32()
    memory_offset_low: int = u32()
    memory_offset_high: int = u32()

    @property
    def offset(self) -> int:
        """Offset in the buffer, in bytes."""
        return self.memory_offset_low | self.memory_offset_high << 32


class ExtraTensorInfo(Table):
    """Name and location of tensors that are state or live outside the file."""

    mutable_data_segments_idx: int = u64()
    fully_qualified_name: str | None = string()
    location: int = i8()
    device_type: int = i8()
    device_index: int = i8()


class Tensor(Table):
    """A tensor value: constant (data_buffer_idx > 0, no allocation), planned (allocation), or supplied later."""

    scalar_type: int = i8()
    storage_offset: int = i32()
    sizes: list[int] | None = vector("i32")
    dim_order: bytes | None = vector("u8")
    requires_grad: bool = bool_()
    data_buffer_idx: int = u32()
    allocation_info: AllocationDetails | None = ref(lambda: AllocationDetails)
    layout: int = i8()
    shape_dynamism: int = i8()
    extra_tensor_info: ExtraTensorInfo | None = ref(lambda: ExtraTensorInfo)

    @property
    def nbytes(self) -> int:
        """Bytes of the content; of the largest one, if sizes are bounds."""
        return math.prod(self.sizes or ()) * ELEMENT_SIZE[ScalarType(self.scalar_type)]


def is_external(value: object) -> bool:
    """True if a value is a tensor whose data is in a .ptd, under its fully qualified name."""
    if not isinstance(value, Tensor) or value.extra_tensor_info is None:
        return False
    return value.extra_tensor_info.location == TensorDataLocation.EXTERNAL


def layout_fault(scalar_type: int, sizes: list[int] | None, dim_order: bytes | None) -> str | None:
    """The fault of a tensor's element type, sizes and dim order, in words; None if there is none."""
    if scalar_type not in ELEMENT_SIZE:
        return f"element type {scalar_type} is unknown"
    if sizes is None or dim_order is None:
        return "has no sizes or no dim order"
    if len(sizes) > LARGEST_RANK:
        return f"has {len(sizes)} dimensions, more than {LARGEST_RANK}"
    if any(size < 0 for size in sizes):
        return f"has a negative size: {sizes}"
    if sorted(dim_order) != list(range(len(sizes))):
        return f"dim order {list(dim_order)} is not a permutation of {len(sizes)} dimensions"
    return None


class Null(Table):
    """None."""


class Int(Table):
    """An integer; also dtype, layout and memory format codes."""

    int_val: int = i64()


class Bool(Table):
    """A boolean."""

    bool_val: bool = bool_()


class Double(Table):
    """A floating-point number."""

    double_val: float = f64()


class String(Table):
    """A string."""

    string_val: str | None = string()


class IntList(Table):
    """Integers, as indices of Int values."""

    items: list[int] | None = vector("i64")


class DoubleList(Table):
    """Floating-point numbers."""

    items: list[float] | None = vector("f64")


class BoolList(Table):
    """Booleans."""

    items: list[bool] | None = vector("bool")


class TensorList(Table):
    """Tensors, as indices of values."""

    items: list[int] | None = vector("i32")


class OptionalTensorList(Table):
    """Tensors, as indices of values; -1 is None."""

    items: list[int] | None = vector("i32")


#: The possible types of a value; the order gives the codes in the file.
KERNEL_TYPES = (Null, Int, Bool, Double, Tensor, String, IntList, DoubleList, BoolList, TensorList, OptionalTensorList)


class EValue(Table):
    """One value of a method."""

    val: Table | None = union(lambda: KERNEL_TYPES)


class Operator(Table):
    """A kernel's name in the runtime's registry: "aten::add" and "out"."""

    name: str | None = string()
    overload: str | None = string()

    @property
    def full_name(self) -> str:
        """The name in the registry: "aten::add.out"."""
        return f"{self.name}.{self.overload}" if self.overload else str(self.name)


class KernelCall(Table):
    """Calls operator `op_index`: its arguments, outputs included, then the return values."""

    op_index: int = i32()
    args: list[int] | None = vector("i32")


class DelegateCall(Table):
    """Calls delegate `delegate_index`: all inputs, then all outputs."""

    delegate_index: int = i32()
    args: list[int] | None = vector("i32")


class MoveCall(Table):
    """Makes value `move_to` the value `move_from` (no bytes move)."""

    move_from: int = i32()
    move_to: int = i32()


class JumpFalseCall(Table):
    """Jumps to an instruction of the chain if the condition is false."""

    cond_value_index: int = i32()
    destination_instruction: int = i32()


class FreeCall(Table):
    """Releases a dynamically allocated value."""

    value_index: int = i32()


#: The possible types of an instruction; the order gives the codes in the file.
INSTRUCTION_TYPES = (KernelCall, DelegateCall, MoveCall, JumpFalseCall, FreeCall)


class Instruction(Table):
    """One step of a chain."""

    instr_args: Table | None = union(lambda: INSTRUCTION_TYPES)


class Frame(Table):
    """A line of the user's source."""

    filename: str | None = string()
    lineno: int = i32()
    name: str | None = string()
    context: str | None = string()


class FrameList(Table):
    """A stack trace."""

    items: list[Frame] | None = tables(lambda: Frame)


class Chain(Table):
    """A sequence of instructions."""

    inputs: list[int] | None = vector("i32")
    outputs: list[int] | None = vector("i32")
    instructions: list[Instruction] | None = tables(lambda: Instruction)
    stacktrace: list[FrameList] | None = tables(lambda: FrameList)


class CompileSpec(Table):
    """A setting for a delegate's runtime. The runtime crashes if key or value is absent."""

    key: str | None = string()
    value: bytes | None = vector("u8")


class BackendDelegateDataReference(Table):
    """The location of a blob: index into the inline data, or into the segments."""

    location: int = i8()
    index: int = u32()


class BackendDelegate(Table):
    """A delegate: backend id, blob and compile specs."""

    id: str | None = string()
    processed: BackendDelegateDataReference | None = ref(lambda: BackendDelegateDataReference)
    compile_specs: list[CompileSpec] | None = tables(lambda: CompileSpec)


class ContainerMetadata(Table):
    """Structure of inputs and outputs as pytree JSON."""

    encoded_inp_str: str | None = string()
    encoded_out_str: str | None = string()


class NonConstBufferDevice(Table):
    """Device of a planned buffer."""

    buffer_idx: int = i32()
    device_type: int = i8()
    device_index: int = i8()


class ExecutionPlan(Table):
    """A method."""

    name: str | None = string()
    container_meta_type: ContainerMetadata | None = ref(lambda: ContainerMetadata)
    values: list[EValue] | None = tables(lambda: EValue)
    inputs: list[int] | None = vector("i32")
    outputs: list[int] | None = vector("i32")
    chains: list[Chain] | None = tables(lambda: Chain)
    operators: list[Operator] | None = tables(lambda: Operator)
    delegates: list[BackendDelegate] | None = tables(lambda: BackendDelegate)
    #: Sizes of the planned buffers in bytes; entry 0 is reserved.
    non_const_buffer_sizes: list[int] | None = vector("i64")
    non_const_buffer_device: list[NonConstBufferDevice] | None = tables(lambda: NonConstBufferDevice)


class Buffer(Table):
    """Inline constant data (superseded by the constant segment)."""

    storage: bytes | None = vector("u8", align=16)


class BackendDelegateInlineData(Table):
    """An inline blob."""

    data: bytes | None = vector("u8", align=16)


class DataSegment(Table):
    """A segment; `offset` counts from the segment base."""

    offset: int = u64()
    size: int = u64()


class SubsegmentOffsets(Table):
    """Offsets of tensors within a segment; entry 0 is reserved."""

    segment_index: int = u32()
    offsets: list[int] | None = vector("u64")


class NamedData(Table):
    """A key and the segment that holds its data."""

    key: str | None = string()
    segment_index: int = u32()


class Program(Table):
    """The root table."""

    version: int = u32()
    execution_plan: list[ExecutionPlan] | None = tables(lambda: ExecutionPlan)
    constant_buffer: list[Buffer] | None = tables(lambda: Buffer)
    backend_delegate_data: list[BackendDelegateInlineData] | None = tables(lambda: BackendDelegateInlineData)
    segments: list[DataSegment] | None = tables(lambda: DataSegment)
    constant_segment: SubsegmentOffsets | None = ref(lambda: SubsegmentOffsets)
    mutable_data_segments: list[SubsegmentOffsets] | None = tables(lambda: SubsegmentOffsets)
    named_data: list[NamedData] | None = tables(lambda: NamedData)
