"""Writes and opens a .bpte: a .pte with inputs and expected outputs for its methods.

Layout (ExecuTorch 1.5): a flatbuffer, at whose end the .pte is, aligned as its own segments are.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from delegatekit.files import Source, open_view
from delegatekit.pte import (
    BUNDLE_IDENTIFIER,
    BUNDLE_VERSION,
    SEGMENT_ALIGNMENT,
    bundled_program,
    is_bundle,
    round_up,
    schema,
)
from delegatekit_api import FormatError
from delegatekit_toolkit.flatbuffer import parse, serialize

from . import schema as tables

_DAMAGED: Final = "the file is damaged, or was written by a faulty tool"
#: Offsets in a flatbuffer reach so far.
_LARGEST: Final = (1 << 31) - 1
#: Position of the field `program` among the fields of the root table.
_PROGRAM_SLOT: Final = 2


@dataclass(frozen=True)
class Bundle:
    """A program, and the cases of each of its methods in the order of the file."""

    #: The .pte. A view of the opened file, which it keeps alive.
    program: memoryview
    cases: Mapping[str, Sequence[tables.TestCase]]


def read_bundle(source: Source, *, copy: bool = False) -> Bundle:
    """Open a bundle (mapped, or with `copy` read into memory) or its bytes; the program in it is not looked at.

    Raises FormatError for anything that is not a whole .bpte.
    """
    view = open_view(source, copy=copy)
    if not is_bundle(view):
        raise FormatError("is no bundled program (.bpte)", hint="`delegatekit bundle` makes one of a .pte and inputs")
    program = bundled_program(view)
    root = parse(tables.BundledProgram, view, (BUNDLE_IDENTIFIER,))
    cases: dict[str, Sequence[tables.TestCase]] = {}
    for index, suite in enumerate(root.method_test_suites or ()):
        if not suite.method_name:
            raise FormatError("names no method", where=f"test suite {index}", hint=_DAMAGED)
        if suite.method_name in cases:
            raise FormatError("has test cases in two places", where=f"method {suite.method_name}", hint=_DAMAGED)
        cases[suite.method_name] = suite.test_cases or ()
        for number, case in enumerate(cases[suite.method_name]):
            _check_case(case, f"method {suite.method_name}, case {number}")
    return Bundle(program, cases)


def write_bundle(bundle: Bundle, file: BinaryIO) -> None:
    """Write the bytes of a bundle, front to back; the program is streamed from where it is.

    Raises FormatError for what does not fit in the format's 2 GiB.
    """
    # ExecuTorch's own writer puts the methods into this order, too.
    suites = [tables.TestSuite(name, list(bundle.cases[name])) for name in sorted(bundle.cases)]
    root = tables.BundledProgram(BUNDLE_VERSION, suites, b"")
    head = bytearray(serialize(root, BUNDLE_IDENTIFIER))
    start = round_up(len(head) + 4, SEGMENT_ALIGNMENT)
    size = start + len(bundle.program)
    if size > _LARGEST:
        raise FormatError(
            f"would have {size:,} bytes, more than the format can hold ({_LARGEST:,})",
            where="bundle",
            hint="keep the weights outside the .pte: `lower --external '*'`",
        )
    _point_to(head, start - 4)
    file.write(head)
    file.write(b"\0" * (start - 4 - len(head)))
    file.write(struct.pack("<I", len(bundle.program)))
    file.write(bundle.program)


def _point_to(head: bytearray, position: int) -> None:
    """Make the root table's field `program` point to a vector that follows the rest."""
    (root,) = struct.unpack_from("<I", head)
    (back,) = struct.unpack_from("<i", head, root)
    (entry,) = struct.unpack_from("<H", head, root - back + 4 + 2 * _PROGRAM_SLOT)
    struct.pack_into("<I", head, root + entry, position - (root + entry))


def _check_case(case: tables.TestCase, where: str) -> None:
    for kind, values in (("input", case.inputs), ("expected output", case.expected_outputs)):
        for index, value in enumerate(values or ()):
            if isinstance(value.val, tables.Tensor):
                _check_tensor(value.val, f"{where}, {kind} {index}")


def _check_tensor(tensor: tables.Tensor, where: str) -> None:
    # Writers leave out the vectors of a tensor without dimensions, and the data of one without elements.
    sizes, order, content = tensor.sizes or [], tensor.dim_order or b"", tensor.data or b""
    fault = schema.layout_fault(tensor.scalar_type, sizes, order)
    if fault is not None:
        raise FormatError(fault, where=where, hint=_DAMAGED)
    if tensor.nbytes != len(content):
        raise FormatError(
            f"has {len(content)} bytes, but sizes {sizes} and its element type take {tensor.nbytes}",
            where=where,
            hint=_DAMAGED,
        )
