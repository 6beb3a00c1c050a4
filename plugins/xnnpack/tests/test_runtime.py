"""The runtime hook: blobs executed in this process, and its errors."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from delegatekit_api import ExecutionError, FormatError, RuntimeUnavailableError
from delegatekit_toolkit import stock
from delegatekit_toolkit.sizes import Dynamic
from delegatekit_xnnpack.ir import operators as ops
from delegatekit_xnnpack.ir.builder import GraphBuilder
from delegatekit_xnnpack.ir.types import DataType
from delegatekit_xnnpack.runtime import XnnpackRuntime


def _graph():
    builder = GraphBuilder()
    x, y = builder.input((2, 3)), builder.input((3,))
    total = builder.binary(ops.BinaryKind.ADD, x, y)
    builder.output(total)
    builder.output(builder.binary(ops.BinaryKind.MULTIPLY, total, builder.filled((), 2.0, DataType.FLOAT32)))
    return builder.graph


def test_the_runtime_is_available_here():
    assert XnnpackRuntime().is_available().available


def test_the_library_does_not_tell_how_it_counts_cpus():
    code = "from delegatekit_xnnpack.runtime import XnnpackRuntime; print(XnnpackRuntime().is_available().available)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n" and "cpuinfo" not in done.stderr


def test_a_delegate_writes_its_results_into_the_callers_tensors(payload_of):
    runtime = XnnpackRuntime()
    handle = runtime.init(payload_of(_graph()))
    outputs = [torch.empty(2, 3), torch.empty(2, 3)]
    for _ in range(3):
        x, y = torch.randn(2, 3), torch.randn(3)
        runtime.execute(handle, [x, y], outputs)
        assert torch.equal(outputs[0], x + y)
        assert torch.equal(outputs[1], (x + y) * 2.0)
    runtime.destroy(handle)


def test_results_have_the_sizes_of_the_call(payload_of):
    builder = GraphBuilder()
    rows, columns = Dynamic((5, 1, 2)), Dynamic((7, 1, 3))
    x, y = builder.input((rows, 1)), builder.input((columns,))
    builder.output(builder.binary(ops.BinaryKind.ADD, x, y))
    builder.output(builder.reshape(x, (rows,)))
    payload = payload_of(builder.graph)
    assert [spec.dynamic for spec in payload.outputs] == [True, True]
    runtime = XnnpackRuntime()
    handle = runtime.init(payload)
    memory = torch.zeros(5 * 7), torch.zeros(5)
    for n, m in ((5, 7), (1, 1), (2, 7), (5, 1), (3, 3), (5, 7)):
        # The caller passes tensors of the largest sizes, in memory of its own.
        outputs = memory[0].view(5, 7), memory[1].view(5)
        x, y = torch.randn(n, 1), torch.randn(m)
        runtime.execute(handle, [x, y], outputs)
        assert torch.equal(outputs[0], x + y)
        assert torch.equal(outputs[1], x[:, 0])
        assert outputs[0].data_ptr() == memory[0].data_ptr()
    with pytest.raises(ExecutionError, match="not supported"):
        runtime.execute(handle, [torch.randn(6, 1), torch.randn(7)], [torch.empty(5, 7), torch.empty(5)])
    with pytest.raises(ExecutionError, match=r"no elements, \(0, 1\)"):
        runtime.execute(handle, [torch.randn(0, 1), torch.randn(7)], [torch.empty(5, 7), torch.empty(5)])
    runtime.destroy(handle)


def test_a_destroyed_delegate_says_so_and_may_be_destroyed_again(payload_of):
    runtime = XnnpackRuntime()
    handle = runtime.init(payload_of(_graph()))
    runtime.destroy(handle)
    runtime.destroy(handle)
    with pytest.raises(ExecutionError, match="was destroyed"):
        runtime.execute(handle, [], [])


def test_wrong_inputs_give_an_execution_error(payload_of):
    runtime = XnnpackRuntime()
    handle = runtime.init(payload_of(_graph()))
    with pytest.raises(ExecutionError):
        runtime.execute(handle, [torch.randn(2, 4), torch.randn(3)], [torch.empty(2, 3), torch.empty(2, 3)])


def test_outputs_that_are_not_the_results_are_refused(payload_of):
    runtime = XnnpackRuntime()
    handle = runtime.init(payload_of(_graph()))
    inputs, good = [torch.randn(2, 3), torch.randn(3)], torch.empty(2, 3)
    for outputs, fault in (
        ([good], "has 2 outputs, got 1"),
        ([good, good, good], "got 3"),
        ([good, torch.empty(3, 2)], r"float32 \(3, 2\), the result float32 \(2, 3\)"),
        ([good, torch.empty(2, 3, dtype=torch.float64)], "an output is float64"),
    ):
        with pytest.raises(ExecutionError, match=fault):
            runtime.execute(handle, inputs, outputs)
    runtime.destroy(handle)


def test_a_corrupted_blob_never_reaches_the_library(payload_of):
    from dataclasses import replace

    def unreachable():
        raise AssertionError("the blob was handed on")

    payload = payload_of(_graph())
    for change in ({"blob": payload.blob[:60]}, {"named_data": {}}):
        with pytest.raises(FormatError):
            XnnpackRuntime().init(replace(payload, as_program=unreachable, **change))


def test_what_only_the_library_refuses_is_a_format_error_too(payload_of):
    from dataclasses import replace

    other = GraphBuilder()
    other.output(other.unary(ops.UnaryKind.EXP, other.input((7,))))
    broken = payload_of(other.graph).as_program([]).replace(b"XnnpackBackend", b"XnnpackBackenD")
    with pytest.raises(FormatError, match="does not load: not found"):
        XnnpackRuntime().init(replace(payload_of(_graph()), as_program=lambda keys: broken))


def test_without_the_library_the_reason_says_what_to_install(monkeypatch, payload_of):
    payload = payload_of(_graph())

    def missing():
        raise ImportError("No module named 'executorch'")

    monkeypatch.setattr(stock, "_binding", missing)
    availability = XnnpackRuntime().is_available()
    assert not availability.available
    assert "pip install 'delegatekit-xnnpack[runtime]'" in availability.reason
    with pytest.raises(RuntimeUnavailableError, match="No module named 'executorch'"):
        XnnpackRuntime().init(payload)


def test_using_the_runtime_does_not_import_the_stock_python_stack():
    code = (
        "import sys; from delegatekit_xnnpack.runtime import XnnpackRuntime\n"
        "assert XnnpackRuntime().is_available().available\n"
        "assert not any(name.startswith('executorch.exir') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
