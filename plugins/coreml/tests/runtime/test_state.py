"""State between calls, in a program written by coremltools' builder."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
import torch

from delegatekit_api import FormatError, TensorSpec
from delegatekit_coreml.blob.package import Package, write_package
from delegatekit_coreml.ir.tools import tools
from delegatekit_coreml.runtime import CoreMLRuntime
from delegatekit_toolkit.testing import payload_of


@pytest.fixture(scope="module")
def blob() -> bytes:
    """A running sum in float16: the state is added to, and returned."""
    library = tools()
    from coremltools.converters.mil.backend.mil.load import load

    types, builder = library.types, library.builder
    inputs = {
        "x": library.program.Placeholder((3,), dtype=types.fp32),
        "total": library.program.StateTensorPlaceholder((3,), dtype=types.fp16),
    }
    program = library.program.Program()
    with library.program.Function(inputs, opset_version=library.coremltools.target.iOS18) as function:
        x = builder.cast(x=function.inputs["x"], dtype="fp16", name="half")
        read = builder.read_state(input=function.inputs["total"], name="read")
        added = builder.add(x=read, y=x, name="added")
        new = builder.coreml_update_state(state=function.inputs["total"], value=added, name="new")
        function.set_outputs([builder.cast(x=new, dtype="fp32", name="result")])
    program.add_function("main", function)
    with tempfile.TemporaryDirectory() as folder:
        model: Any = load(program, weights_dir=folder, specification_version=9)
    package = Package(memoryview(model.SerializeToString()), memoryview(b""), ("x",), ("result",))
    return b"".join(map(bytes, write_package(package)))


def test_state_stays_from_call_to_call_and_begins_with_zeros(blob: bytes) -> None:
    spec, runtime = [TensorSpec("float32", (3,))], CoreMLRuntime()
    x, result = torch.tensor([1.0, 2.0, -0.5]), torch.empty(3)
    handles = [runtime.init(payload_of(blob, spec, spec)) for _ in range(2)]
    for count in (1, 2, 3):
        runtime.execute(handles[0], [x], [result])
        assert torch.equal(result, count * x)
    runtime.execute(handles[1], [x], [result])
    assert torch.equal(result, x)


def test_a_program_that_writes_no_state_is_refused(blob: bytes) -> None:
    spec = [TensorSpec("float32", (3,))]
    # The names of an input and of the state have the same length: now the state is read, and the input written.
    with pytest.raises(FormatError):
        CoreMLRuntime().init(payload_of(blob.replace(b"\x05total", b"\x05added"), spec, spec))
