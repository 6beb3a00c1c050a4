"""The tables of the .bpte format, as the ExecuTorch 1.5 runtime reads them; field order is vtable order."""

from __future__ import annotations

import math

from delegatekit.pte import schema
from delegatekit_toolkit.flatbuffer import Table, bool_, data, f64, i8, i64, string, tables, u32, union, vector


class Tensor(Table):
    """A tensor with its content."""

    scalar_type: int = i8()
    sizes: list[int] | None = vector("i32")
    data: memoryview | bytes | None = data(align=16)
    dim_order: bytes | None = vector("u8")

    @property
    def nbytes(self) -> int:
        """Required size of the content in bytes."""
        return math.prod(self.sizes or ()) * schema.ELEMENT_SIZE[schema.ScalarType(self.scalar_type)]


class Int(Table):
    """An integer."""

    int_val: int = i64()


class Bool(Table):
    """A boolean."""

    bool_val: bool = bool_()


class Double(Table):
    """A floating-point number."""

    double_val: float = f64()


#: The possible types of a value; the order gives the codes in the file.
VALUE_TYPES = (Tensor, Int, Bool, Double)


class Value(Table):
    """An input or an expected output. None is a value without a type."""

    val: Table | None = union(lambda: VALUE_TYPES)


class TestCase(Table):
    """One call: flat inputs, and flat outputs; no outputs if nothing is expected."""

    __test__ = False

    inputs: list[Value] | None = tables(lambda: Value)
    expected_outputs: list[Value] | None = tables(lambda: Value)


class TestSuite(Table):
    """The cases of one method."""

    __test__ = False

    method_name: str | None = string()
    test_cases: list[TestCase] | None = tables(lambda: TestCase)


class BundledProgram(Table):
    """The root table. `program` is a whole .pte."""

    version: int = u32()
    method_test_suites: list[TestSuite] | None = tables(lambda: TestSuite)
    program: memoryview | bytes | None = data(align=32)
