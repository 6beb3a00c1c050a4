"""Sizes that change, on hand-built programs: cases that stock lowering does not write, and faults of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import handmade
import pytest
import torch
from handmade import both, build, number

import delegatekit
from delegatekit.pte import PteImage, schema, to_bytes
from delegatekit.pte.schema import (
    Bool,
    Double,
    EValue,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Null,
    ScalarType,
    TensorList,
)
from delegatekit_api import Availability, ExecutionError


@pytest.fixture(autouse=True)
def no_warnings(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """PyTorch writes its warning about a resized result to stderr, not through Python."""
    yield
    assert "resized" not in capfd.readouterr().err


def dynamic(sizes: list[int], offset: int, dtype: ScalarType = ScalarType.FLOAT) -> EValue:
    value = handmade.tensor(sizes, offset)
    assert isinstance(value.val, schema.Tensor)
    value.val.shape_dynamism = schema.TensorShapeDynamism.DYNAMIC_BOUND
    value.val.scalar_type = dtype
    return value


def test_a_result_above_its_bound_is_an_error_that_names_the_instruction_and_touches_nothing() -> None:
    # z = -x, where the file has room for 3 only; the buffer lies right after z.
    values = [dynamic([4], 0), dynamic([3], 64), handmade.tensor([5], 76, constant=1)]
    state = torch.arange(5.0)
    data = build(values, [0], [1], [KernelCall(0, [0, 1, 1])], ["aten::neg.out"], mutable_state=(state,))
    method = delegatekit.load(data)["forward"]
    for _ in range(2):
        with pytest.raises(
            ExecutionError,
            match=r"instruction 0 \(aten::neg\.out\): resized value 1 to \(4,\), but in the file it has \(3,\) at most",
        ):
            method(torch.ones(4))
        assert torch.equal(method(torch.ones(2)), -torch.ones(2))
    assert torch.equal(method.state["value 2"], state)


def test_a_result_of_another_rank_is_an_error() -> None:
    values = [dynamic([4], 0), dynamic([2, 2], 64), number(0)]
    data = build(values, [0], [1], [KernelCall(0, [0, 2, 1, 1])], ["aten::unsqueeze_copy.out"])
    assert delegatekit.load(data)["forward"](torch.ones(2)).shape == (1, 2)
    values[1] = dynamic([4], 64)
    data = build(values, [0], [1], [KernelCall(0, [0, 2, 1, 1])], ["aten::unsqueeze_copy.out"])
    with pytest.raises(ExecutionError, match=r"instruction 0 .*resized value 1 to \(1, 2\), .* \(4,\) at most"):
        delegatekit.load(data)["forward"](torch.ones(2))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_static_result_that_a_later_call_would_resize_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    values = [dynamic([4], 0), handmade.tensor([3], 64)]
    method = delegatekit.load(build(values, [0], [1], [KernelCall(0, [0, 1, 1])], ["aten::neg.out"]))["forward"]
    assert torch.equal(method(torch.ones(3)), -torch.ones(3))
    with pytest.raises(ExecutionError, match="resized value 1"):
        method(torch.ones(2))
    capfd.readouterr()  # PyTorch may warn here, before it is an error
    assert torch.equal(method(torch.ones(3)), -torch.ones(3))


def test_a_value_may_be_operand_and_result_of_one_call() -> None:
    values = [dynamic([6], 0), dynamic([6], 64), number(1)]
    calls = [KernelCall(0, [0, 1, 1]), KernelCall(1, [1, 0, 2, 1, 1]), KernelCall(1, [0, 1, 2, 1, 1])]
    data = build(values, [0], [1], calls, ["aten::neg.out", "aten::add.out"])
    for n in (3, 6, 1, 1, 4):
        x = torch.randn(n)
        assert torch.equal(both(data, x, calls=2)[0], x)


def test_a_view_copies_where_the_memory_is_another() -> None:
    values = [dynamic([6], 0), dynamic([3, 2], 64), number(-1), number(2), EValue(IntList([2, 3])), dynamic([3, 2], 0)]
    calls = [KernelCall(0, [0, 4, 1]), KernelCall(0, [0, 4, 5])]
    data = build(values, [0], [1, 5], calls, ["executorch_prim::et_view.default"])
    method = delegatekit.load(data)["forward"]
    for n in (4, 6, 2, 2):
        x = torch.randn(n)
        for result in method(x):
            assert torch.equal(result, x.view(-1, 2))


def test_the_rows_of_a_loop_are_those_of_this_call() -> None:
    # i = 0; do { out[i] = -x[i]; i = i + 1 } while (i != n), with n the rows of x
    values = [dynamic([4, 3], 0), dynamic([4, 3], 64), handmade.tensor([3], 128), handmade.tensor([3], 192)]
    values += [number(0), number(0), number(0), number(1), EValue(Bool(False)), EValue(Null())]
    out, row, negative, i, n, zero, one, done = 1, 2, 3, 4, 5, 6, 7, 8
    names = [
        *("aten::sym_size.int", "aten::select_copy.int_out", "aten::neg.out", "executorch_prim::et_copy_index.tensor"),
        *("executorch_prim::add.Scalar", "executorch_prim::eq.Scalar"),
    ]
    calls = [
        MoveCall(zero, i),
        KernelCall(0, [0, zero, n]),
        KernelCall(1, [0, zero, i, row, row]),
        KernelCall(2, [row, negative, negative]),
        KernelCall(3, [out, negative, i]),
        KernelCall(4, [i, one, i]),
        KernelCall(5, [i, n, done]),
        JumpFalseCall(done, 2),
    ]
    data = build(values, [0], [out], calls, names)
    method = delegatekit.load(data)["forward"]
    for rows in (3, 4, 1, 2):
        x = torch.randn(rows, 3)
        assert torch.equal(both(data, x)[0], -x)
        assert torch.equal(method(x), -x)


def test_a_value_may_grow_in_a_loop() -> None:
    # y = x; repeat { y = cat(y, x); i = i + 1 } until i = 3
    values = [dynamic([3], 0), dynamic([12], 64), dynamic([12], 128), EValue(TensorList([1, 0]))]
    values += [number(0), number(0), number(1), number(3), EValue(Bool(False)), EValue(Null())]
    names = ["aten::clone.out", "aten::cat.out", "executorch_prim::add.Scalar", "executorch_prim::eq.Scalar"]
    calls = [
        MoveCall(5, 4),
        KernelCall(0, [0, 9, 1, 1]),
        KernelCall(1, [3, 5, 2, 2]),
        KernelCall(0, [2, 9, 1, 1]),
        KernelCall(2, [4, 6, 4]),
        KernelCall(3, [4, 7, 8]),
        JumpFalseCall(8, 2),
    ]
    data = build(values, [0], [1], calls, names)
    for n in (2, 3, 1):
        x = torch.randn(n)
        assert torch.equal(both(data, x, calls=2)[0], x.repeat(4))


def test_sizes_that_follow_from_the_content_may_differ_while_the_inputs_sizes_stay() -> None:
    values = [handmade.tensor([5], 0), dynamic([5, 1], 64, ScalarType.LONG), dynamic([5, 1], 128, ScalarType.LONG)]
    data = build(
        values, [0], [2], [KernelCall(0, [0, 1, 1]), KernelCall(1, [1, 2, 2])], ["aten::nonzero.out", "aten::neg.out"]
    )
    method = delegatekit.load(data)["forward"]
    for x in ([1, 0, 1, 0, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]):
        given = torch.tensor(x, dtype=torch.float32)
        assert torch.equal(method(given), -given.nonzero())


def test_a_size_may_be_read_from_a_tensor() -> None:
    values = [
        EValue(
            schema.Tensor(ScalarType.LONG, sizes=[], dim_order=b"", allocation_info=schema.AllocationDetails(1, 0, 0))
        ),
        number(0),
        EValue(IntList([1])),
        EValue(Double(2.0)),
        dynamic([6], 64),
        dynamic([6], 128),
    ]
    calls = [KernelCall(0, [0, 1]), KernelCall(1, [2, 3, 4, 4]), KernelCall(2, [4, 5, 5])]
    data = build(values, [0], [5], calls, ["aten::_local_scalar_dense", "aten::full.out", "aten::neg.out"])
    for n in (2, 6, 6, 0, 1):
        assert both(data, torch.tensor(n), calls=2)[0].tolist() == [-2.0] * n


def test_a_number_may_change_from_call_to_call() -> None:
    # n = n + 1 stays from call to call; y = full([n], 2.0)
    values = [number(0), number(1), EValue(IntList([0])), EValue(Double(2.0)), dynamic([6], 64), dynamic([6], 128)]
    calls = [KernelCall(0, [0, 1, 0]), KernelCall(1, [2, 3, 4, 4]), KernelCall(2, [4, 5, 5])]
    data = build(values, [], [5], calls, ["executorch_prim::add.Scalar", "aten::full.out", "aten::neg.out"])
    method = delegatekit.load(data)["forward"]
    for start in range(2):
        assert [method().shape[0] for _ in range(3)] == [1, 2, 3], start
        method.reset()
    both(data, calls=6)


class Halving:
    """A runtime whose result has half the elements, or as many as `wanted`."""

    def __init__(self) -> None:
        self.wanted: Callable[[torch.Tensor], int] = lambda x: x.shape[0] // 2
        self.largest: list[tuple[int, ...]] = []

    def is_available(self) -> Availability:
        return Availability(True)

    def init(self, payload: Any) -> Any:
        assert payload.inputs[0].dynamic and payload.outputs[0].dynamic
        return payload

    def execute(self, handle: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        (x,), (output,) = inputs, outputs
        self.largest.append(tuple(output.shape))
        output.resize_(self.wanted(x)).fill_(float(x.shape[0]))

    def destroy(self, handle: Any) -> None:
        pass


def test_a_delegate_gives_its_results_the_sizes_of_the_call() -> None:
    values = [dynamic([8], 0), dynamic([4], 64), dynamic([4], 128)]
    delegates = [schema.BackendDelegate("Test", schema.BackendDelegateDataReference(1, 0), [])]
    plan = handmade.plan(
        values,
        [0],
        [2],
        [schema.DelegateCall(0, [0, 1]), KernelCall(0, [1, 2, 2])],
        delegates=delegates,
        operators=[schema.Operator("aten::neg", "out")],
        non_const_buffer_sizes=[0, 512],
    )
    runtime = Halving()
    found = SimpleNamespace(
        name="test", runtime_availability=lambda: Availability(True), create_runtime=lambda: runtime
    )
    data = to_bytes(PteImage((plan,), delegate_blobs=(b"blob",)))
    method = delegatekit.load(data, find_backend=lambda name: found)["forward"]  # type: ignore[arg-type, return-value]
    for n in (4, 8, 8, 2, 6):
        assert method(torch.ones(n)).tolist() == [-float(n)] * (n // 2)
    assert set(runtime.largest) == {(4,)}
    # Other results for inputs of the same sizes.
    runtime.wanted = lambda x: 3
    assert method(torch.ones(6)).tolist() == [-6.0] * 3
    runtime.wanted = lambda x: 1
    assert method(torch.ones(6)).tolist() == [-6.0]
    runtime.wanted = lambda x: 5
    with pytest.raises(ExecutionError, match="method forward, delegate Test: failed: RuntimeError"):
        method(torch.ones(6))
    runtime.wanted = lambda x: 2
    assert method(torch.ones(6)).tolist() == [-6.0] * 2
