"""The runtime: constants are checked, calls are checked, handles are independent."""

from __future__ import annotations

import threading

import pytest
import torch

from delegatekit_api import ExecutionError, FormatError
from delegatekit_reference.ir.graph import Constant, Graph, Ref, Step
from delegatekit_reference.runtime import Interpreter, ReferenceRuntime
from delegatekit_toolkit.content import content_key
from delegatekit_toolkit.signature import Range, TensorType

WEIGHT = torch.tensor([1.0, -2.0, 3.0])
DATA = {content_key(WEIGHT): WEIGHT.numpy().tobytes()}
#: x (2, 3) -> x + weight and its maximum along the last axis with the indices.
GRAPH = Graph(
    inputs=(TensorType("float32", (2, 3)),),
    constants=(Constant("float32", (3,), content_key(WEIGHT)),),
    steps=(
        Step("aten.add.Tensor", (Ref(0), Ref(1))),
        Step("aten.max.dim", (Ref(2), -1)),
        Step("getitem", (Ref(3), 0)),
        Step("getitem", (Ref(3), 1)),
    ),
    outputs=(2, 4, 5),
    results=(TensorType("float32", (2, 3)), TensorType("float32", (2,)), TensorType("int64", (2,))),
)
#: x (n, 3) -> x repeated along the first axis: (2 n, 3).
DYNAMIC = Graph(
    inputs=(TensorType("float32", (Range(0, 4, 0), 3)), TensorType("float32", (Range(0, 4, 0),))),
    constants=(),
    steps=(Step("aten.cat.default", ((Ref(0), Ref(0)), 0)), Step("aten.relu.default", (Ref(1),))),
    outputs=(2, 3),
    results=(TensorType("float32", (Range(0, 8, 1), 3)), TensorType("float32", (Range(0, 4, 0),))),
)


def _outputs(graph=GRAPH):
    sizes = [[size.high if isinstance(size, Range) else size for size in tensor.shape] for tensor in graph.results]
    return [
        torch.empty(size, dtype=getattr(torch, tensor.dtype)) for size, tensor in zip(sizes, graph.results, strict=True)
    ]


def test_results_are_written_into_the_callers_tensors(payload_of):
    runtime = ReferenceRuntime()
    assert runtime.is_available().available
    handle = runtime.init(payload_of(GRAPH, data=DATA))
    outputs = _outputs()
    places = [tensor.data_ptr() for tensor in outputs]
    for _ in range(3):
        x = torch.randn(2, 3)
        runtime.execute(handle, [x], outputs)
        largest, where = (x + WEIGHT).max(-1)
        assert torch.equal(outputs[0], x + WEIGHT)
        assert torch.equal(outputs[1], largest) and torch.equal(outputs[2], where)
    assert [tensor.data_ptr() for tensor in outputs] == places


def test_results_have_the_sizes_of_the_call(payload_of):
    runtime = ReferenceRuntime()
    handle = runtime.init(payload_of(DYNAMIC))
    memory = torch.zeros(24), torch.zeros(4)
    for n in (4, 1, 0, 3, 4):
        outputs = memory[0].view(8, 3), memory[1].view(4)
        x, y = torch.randn(n, 3), torch.randn(n)
        runtime.execute(handle, [x, y], outputs)
        assert torch.equal(outputs[0], torch.cat([x, x])) and torch.equal(outputs[1], y.relu())
        assert not n or outputs[0].data_ptr() == memory[0].data_ptr()
    wrong = (torch.randn(5, 3), torch.randn(5)), (torch.randn(2, 3), torch.randn(3)), (torch.randn(3), torch.randn(3))
    for inputs in wrong:
        with pytest.raises(ExecutionError, match=r"input [01] is float32 .*, not float32 \(s0=0..4"):
            runtime.execute(handle, inputs, _outputs(DYNAMIC))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "0 inputs: it has 1"),
        ([torch.zeros(2, 3)] * 2, "2 inputs: it has 1"),
        ([torch.zeros(3, 2)], r"input 0 is float32 \(3, 2\), not float32 \(2, 3\)"),
        ([torch.zeros(6)], r"input 0 is float32 \(6,\)"),
        ([torch.zeros(2, 3, dtype=torch.float64)], "input 0 is float64"),
        ([torch.zeros(2, 3, device="meta")], "input 0 is not a CPU tensor"),
        ([3.0], "input 0 is not a CPU tensor"),
    ],
)
def test_wrong_inputs_give_an_execution_error(payload_of, inputs, message):
    runtime = ReferenceRuntime()
    handle = runtime.init(payload_of(GRAPH, data=DATA))
    outputs = _outputs()
    for output in outputs:
        output.fill_(7)
    with pytest.raises(ExecutionError, match=message):
        runtime.execute(handle, inputs, outputs)
    assert all(bool((output == 7).all()) for output in outputs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda outputs: outputs[:2], "2 outputs: it has 3"),
        (lambda outputs: [*outputs, outputs[0]], "4 outputs: it has 3"),
        (lambda outputs: [outputs[0].t(), *outputs[1:]], r"output 0 is float32 \(3, 2\)"),
        (lambda outputs: [*outputs[:2], outputs[2].int()], "output 2 is int32"),
    ],
)
def test_wrong_outputs_give_an_execution_error(payload_of, change, message):
    runtime = ReferenceRuntime()
    handle = runtime.init(payload_of(GRAPH, data=DATA))
    with pytest.raises(ExecutionError, match=message):
        runtime.execute(handle, [torch.zeros(2, 3)], change(_outputs()))


def test_a_result_of_another_shape_than_declared_is_an_error_and_nothing_is_written(payload_of):
    wrong = Graph(
        GRAPH.inputs,
        (),
        (Step("aten.sum.dim_IntList", (Ref(0), (1,))), Step("aten.sum.dim_IntList", (Ref(0), (0,)))),
        (1, 2),
        (TensorType("float32", (2,)), TensorType("float32", (2,))),
    )
    runtime = ReferenceRuntime()
    outputs = _outputs(wrong)
    outputs[0].fill_(7)
    with pytest.raises(ExecutionError, match=r"result 1 is float32 \(3,\), not float32 \(2\)"):
        runtime.execute(runtime.init(payload_of(wrong)), [torch.zeros(2, 3)], outputs)
    assert bool((outputs[0] == 7).all())


def test_a_step_that_fails_is_named(payload_of):
    wrong = Graph(
        GRAPH.inputs, (), (Step("aten.mm.default", (Ref(0), Ref(0))),), (1,), (TensorType("float32", (2, 3)),)
    )
    runtime = ReferenceRuntime()
    with pytest.raises(ExecutionError, match=r"step 0, aten.mm.default: RuntimeError: mat1 and mat2"):
        runtime.execute(runtime.init(payload_of(wrong)), [torch.zeros(2, 3)], [torch.zeros(2, 3)])


def test_a_destroyed_delegate_says_so_and_may_be_destroyed_again(payload_of):
    runtime = ReferenceRuntime()
    handle = runtime.init(payload_of(GRAPH, data=DATA))
    runtime.destroy(handle)
    runtime.destroy(handle)
    with pytest.raises(ExecutionError, match="was destroyed"):
        runtime.execute(handle, [torch.zeros(2, 3)], _outputs())


def test_handles_do_not_know_of_each_other(payload_of):
    runtime = ReferenceRuntime()
    handles = [runtime.init(payload_of(GRAPH, data=DATA)) for _ in range(50)]
    for handle in handles[::2]:
        runtime.destroy(handle)
    found = {}

    def work(number):
        for _ in range(20):
            outputs = _outputs()
            runtime.execute(handles[number], [torch.full((2, 3), float(number))], outputs)
            found.setdefault(number, []).append(outputs[0])

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [1, 3, 5, 7]
    for number, results in found.items():
        assert len(results) == 20
        assert all(torch.equal(result, number + WEIGHT.expand(2, 3)) for result in results)


def test_constants_are_checked_bit_by_bit(payload_of):
    runtime = ReferenceRuntime()
    (key,) = DATA
    for bit in range(8 * len(DATA[key])):
        damaged = bytearray(DATA[key])
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError, match="is damaged"):
            runtime.init(payload_of(GRAPH, data={key: bytes(damaged)}))
    with pytest.raises(FormatError, match="11 bytes instead of 12"):
        runtime.init(payload_of(GRAPH, data={key: DATA[key][:11]}))
    with pytest.raises(FormatError, match=f"no data '{key}'"):
        runtime.init(payload_of(GRAPH))


def test_constants_may_lie_anywhere_in_memory(payload_of):
    runtime = ReferenceRuntime()
    (key,) = DATA
    for shift in range(5):
        payload = payload_of(GRAPH, data={key: b""})
        moved = memoryview(b"x" * shift + DATA[key])[shift:]
        payload.named_data[key] = moved
        handle = runtime.init(payload)
        outputs = _outputs()
        runtime.execute(handle, [torch.zeros(2, 3)], outputs)
        assert torch.equal(outputs[0], WEIGHT.expand(2, 3))


def test_kernels_see_every_input_at_the_same_alignment(payload_of):
    seen = []

    class Looking(Interpreter):
        def step(self, index, step, args, kwargs):
            seen.extend(value.data_ptr() % 64 for value in args if isinstance(value, torch.Tensor))
            return super().step(index, step, args, kwargs)

    class Runtime(ReferenceRuntime):
        def interpreter(self, graph, constants):
            return Looking(graph, constants)

    runtime = Runtime()
    graph = Graph(GRAPH.inputs, (), (Step("aten.relu.default", (Ref(0),)),), (1,), GRAPH.inputs)
    handle = runtime.init(payload_of(graph))
    for offset in range(4):
        inputs = [torch.randn(6 + offset)[offset:].view(2, 3)]
        outputs = _outputs(graph)
        runtime.execute(handle, inputs, outputs)
        assert torch.equal(outputs[0], inputs[0].relu())
    assert seen == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (Graph((), (), (), (), GRAPH.results), "has 1 inputs, the program calls it with 0"),
        (Graph((TensorType("float64", (2, 3)),), (), (), (), GRAPH.results), "input 0 is float32"),
        (Graph((TensorType("float32", (2, 4)),), (), (), (), GRAPH.results), "input 0 is float32"),
        (Graph(GRAPH.inputs, (), (), (), GRAPH.results[:2]), "has 3 outputs, the program calls it with 2"),
        (Graph(GRAPH.inputs, (), (), (), (*GRAPH.results[:2], TensorType("int64", ()))), "output 2 is int64"),
    ],
)
def test_a_blob_in_a_program_that_it_was_not_made_for_is_refused(payload_of, like, message):
    with pytest.raises(FormatError, match=message):
        ReferenceRuntime().init(payload_of(GRAPH, like=like, data=DATA))


def test_an_operator_that_this_torch_lacks_is_named(payload_of, monkeypatch):
    monkeypatch.setattr("delegatekit_reference.blob.form.OPERATORS", {"aten.no_such.default"})
    monkeypatch.setattr("delegatekit_reference.runtime.interpreter.OPERATORS", {"aten.no_such.default"})
    graph = Graph(GRAPH.inputs, (), (Step("aten.no_such.default", (Ref(0),)),), (), ())
    with pytest.raises(FormatError, match=r"has no operator aten.no_such.default"):
        ReferenceRuntime().init(payload_of(graph))


def test_a_fault_can_be_put_between_the_steps(payload_of):
    class Faulty(Interpreter):
        def step(self, index, step, args, kwargs):
            result = super().step(index, step, args, kwargs)
            return result + 1 if step.operator == "aten.add.Tensor" else result

    class FaultyRuntime(ReferenceRuntime):
        def interpreter(self, graph, constants):
            return Faulty(graph, constants)

    runtime = FaultyRuntime()
    outputs = _outputs()
    runtime.execute(runtime.init(payload_of(GRAPH, data=DATA)), [torch.zeros(2, 3)], outputs)
    assert torch.equal(outputs[0], (WEIGHT + 1).expand(2, 3))
