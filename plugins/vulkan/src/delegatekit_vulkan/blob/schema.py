"""The flatbuffer tables of a Vulkan delegate blob, as ExecuTorch's Vulkan delegate (1.5) reads them.

Slots, numbers and names follow that delegate's schema (file identifier VK00).
"""

from __future__ import annotations

from typing import Any, Final

from delegatekit_toolkit import flatbuffer as fb

#: Offset of a constant that is stored in the named data of the program.
NAMED: Final = 0xFFFFFFFFFFFFFFFF
#: A storage type, a memory layout, or a tag that was not set.
DEFAULT: Final = 255
#: A data type that was not set.
UNSET: Final = 127


class Null(fb.Table):
    """No value."""


class Int(fb.Table):
    """An integer."""

    int_val: int = fb.i64()


class Double(fb.Table):
    """A floating-point number."""

    double_val: float = fb.f64()


class Bool(fb.Table):
    """A boolean."""

    bool_val: bool = fb.bool_()


class VkTensor(fb.Table):
    """A tensor; `constant_id` is the position among the graph's constants, or negative."""

    datatype: int = fb.i8()
    dims: list[int] | None = fb.vector("u32")
    constant_id: int = fb.i32()
    mem_obj_id: int = fb.i32()
    storage_type: int = fb.u8(DEFAULT)
    memory_layout: int = fb.u8(DEFAULT)
    staging_datatype: int = fb.i8(UNSET)


class IntList(fb.Table):
    """Integers."""

    items: list[int] | None = fb.vector("i64")


class DoubleList(fb.Table):
    """Floating-point numbers."""

    items: list[float] | None = fb.vector("f64")


class BoolList(fb.Table):
    """Booleans."""

    items: list[bool] | None = fb.vector("bool")


class ValueList(fb.Table):
    """Positions of values."""

    items: list[int] | None = fb.vector("i32")


class String(fb.Table):
    """A text."""

    string_val: str | None = fb.string()


class SymInt(fb.Table):
    """A number that is computed in each call."""

    value: int = fb.i32()


#: The members of the union of values; the code in the file is the position, from 1.
VALUES: Final = (Null, Int, Double, Bool, VkTensor, IntList, DoubleList, BoolList, ValueList, String, SymInt)


class VkValue(fb.Table):
    """One value."""

    value: Any = fb.union(lambda: VALUES)


class OperatorCall(fb.Table):
    """A call: positions of the values of its arguments, the result last."""

    node_id: int = fb.u32()
    name: str | None = fb.string()
    args: list[int] | None = fb.vector("i32")


class VkBytes(fb.Table):
    """A constant: a part of the section of constants, or named data."""

    offset: int = fb.u64()
    length: int = fb.u64()
    named_key: str | None = fb.string()


class VkGraph(fb.Table):
    """The root table."""

    version: str | None = fb.string()
    chain: list[OperatorCall] | None = fb.tables(lambda: OperatorCall)
    values: list[VkValue] | None = fb.tables(lambda: VkValue)
    input_ids: list[int] | None = fb.vector("u32")
    output_ids: list[int] | None = fb.vector("u32")
    constants: list[VkBytes] | None = fb.tables(lambda: VkBytes)
    shaders: list[VkBytes] | None = fb.tables(lambda: VkBytes)
    storage_type_override: int = fb.u8(DEFAULT)
    memory_layout_override: int = fb.u8(DEFAULT)
