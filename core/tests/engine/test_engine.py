"""The Python engine on hand-built programs, against eager and the stock runtime on the same bytes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch
from handmade import both, build, number
from torch.utils._pytree import tree_flatten, treespec_dumps

import delegatekit
from delegatekit.engine import Method
from delegatekit.pte import write
from delegatekit.pte.schema import (
    AllocationDetails,
    Bool,
    Chain,
    ContainerMetadata,
    Double,
    EValue,
    ExtraTensorInfo,
    FreeCall,
    Instruction,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Null,
    OptionalTensorList,
    ScalarType,
    Tensor,
    TensorList,
)
from delegatekit_api import ExecutionError, FormatError, TensorSpec

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")

X = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0])
ALL = list(range(5))


# -- instructions ----------------------------------------------------------------------------------------------------


def test_a_kernel_computes_what_eager_computes() -> None:
    (result,) = both(handmade.add_program(), X)
    assert torch.equal(result, X + handmade.WEIGHT)


def test_a_kernel_with_several_results_writes_them_all() -> None:
    values = [
        handmade.tensor([2, 3], 0),
        number(1),
        EValue(Bool(True)),
        handmade.tensor([2, 1], 64),
        EValue(Tensor(ScalarType.LONG, sizes=[2, 1], dim_order=b"\0\1", allocation_info=AllocationDetails(1, 128, 0))),
        EValue(TensorList([3, 4])),
    ]
    data = build(values, [0], [3, 4], [KernelCall(0, [0, 1, 2, 3, 4, 5])], ["aten::max.dim_max"])
    x = torch.tensor([[1.0, 5.0, 2.0], [7.0, 0.0, 3.0]])
    maximum, position = both(data, x)
    assert torch.equal(maximum, x.max(1, keepdim=True).values)
    assert torch.equal(position, x.max(1, keepdim=True).indices)


def test_a_kernel_that_returns_a_list_fills_its_items() -> None:
    values = [
        handmade.tensor([4], 0),
        number(2),
        number(0),
        handmade.tensor([2], 64),
        handmade.tensor([2], 128),
        EValue(TensorList([3, 4])),
        EValue(TensorList([3, 4])),
    ]
    data = build(values, [0], [3, 4], [KernelCall(0, [0, 1, 2, 5, 6])], ["aten::split_copy.Tensor_out"])
    first, second = both(data, torch.arange(4.0))
    assert (first.tolist(), second.tolist()) == ([0.0, 1.0], [2.0, 3.0])


def test_lists_of_optional_tensors_may_have_holes() -> None:
    index = EValue(Tensor(ScalarType.LONG, sizes=[2], dim_order=b"\0", data_buffer_idx=1))
    values = [
        handmade.tensor([2, 3], 0),
        index,
        EValue(Null()),
        EValue(OptionalTensorList([-1, 1])),
        handmade.tensor([2, 2], 64),
    ]
    constants = (torch.tensor([2, 0]),)
    data = build(values, [0], [4], [KernelCall(0, [0, 3, 4, 4])], ["aten::index.Tensor_out"], constants=constants)
    x = torch.arange(6.0).reshape(2, 3)
    (result,) = both(data, x)
    assert torch.equal(result, x[:, [2, 0]])


def test_numbers_lists_and_nothing_are_passed_as_what_they_are() -> None:
    values = [
        handmade.tensor([2, 3], 0),
        number(1),
        EValue(IntList([1])),
        EValue(Bool(False)),
        EValue(Null()),
        handmade.tensor([2], 64),
        EValue(Double(0.5)),
        EValue(Null()),
        handmade.tensor([2], 128),
    ]
    calls = [KernelCall(0, [0, 2, 3, 4, 5, 5]), KernelCall(1, [5, 6, 7, 8, 8])]
    data = build(values, [0], [8], calls, ["aten::mean.out", "aten::clamp.out"])
    x = torch.tensor([[0.0, 0.3, 0.6], [1.0, 2.0, 3.0]])
    (result,) = both(data, x)
    torch.testing.assert_close(result, x.mean(1).clamp(min=0.5))


def test_a_dtype_is_passed_as_its_code() -> None:
    values = [
        handmade.tensor([2, 3], 0),
        EValue(IntList([2])),
        number(1),
        EValue(Bool(False)),
        number(ScalarType.FLOAT),
        handmade.tensor([2], 64),
    ]
    data = build(values, [0], [5], [KernelCall(0, [0, 1, 3, 4, 5, 5])], ["aten::mean.out"])
    x = torch.rand(2, 3)
    torch.testing.assert_close(both(data, x)[0], x.mean(1))


@pytest.mark.parametrize("x", [[1.0, 2.0], [-1.0, -2.0]])
def test_a_jump_takes_the_branch_of_the_condition(x: list[float]) -> None:
    flag = Tensor(ScalarType.BOOL, sizes=[], dim_order=b"", allocation_info=AllocationDetails(1, 64, 0))
    values = [
        handmade.tensor([2], 0),
        EValue(flag),
        handmade.tensor([2], 128),
        handmade.tensor([2], 192),
        handmade.tensor([2], 256),
        EValue(Bool(False)),
        number(0),
        handmade.tensor([], 320),
    ]
    calls = [
        KernelCall(3, [0, 9, 10, 8, 7, 7]),
        KernelCall(0, [7, 6, 1, 1]),
        JumpFalseCall(1, 6),
        KernelCall(1, [0, 2, 2]),
        MoveCall(2, 4),
        JumpFalseCall(5, 8),
        KernelCall(2, [0, 3, 3]),
        MoveCall(3, 4),
    ]
    values.append(EValue(Null()))  # 8: the sum's dtype
    names = ["aten::gt.Scalar_out", "aten::exp.out", "aten::neg.out", "aten::sum.IntList_out"]
    values += [EValue(IntList([])), EValue(Bool(False))]  # 9: axes, 10: keepdim
    given = torch.tensor(x)
    (result,) = both(build(values, [0], [4], calls, names), given, calls=2)
    torch.testing.assert_close(result, given.exp() if x[0] > 0 else -given)


def test_a_loop_runs_until_its_condition_holds() -> None:
    # do { y = y + x; n = n + 1 } while (!(n == 3)); n = n - 3
    values = [
        handmade.tensor([5], 0),
        handmade.tensor([5], 64, constant=1),
        number(1),
        number(0),
        number(3),
        EValue(Bool(False)),
    ]
    calls = [
        KernelCall(0, [1, 0, 2, 1, 1]),
        KernelCall(1, [3, 2, 3]),
        KernelCall(2, [3, 4, 5]),
        JumpFalseCall(5, 0),
        KernelCall(3, [3, 4, 3]),
    ]
    names = [
        "aten::add.out",
        "executorch_prim::add.Scalar",
        "executorch_prim::eq.Scalar",
        "executorch_prim::sub.Scalar",
    ]
    data = build(values, [0], [1], calls, names, mutable_state=(torch.zeros(5),))
    (result,) = both(data, X, calls=2)
    torch.testing.assert_close(result, 6 * X)


def test_an_endless_loop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegatekit.engine.instructions.INSTRUCTION_LIMIT", 1000)
    with pytest.raises(ExecutionError, match="no end after 1000 instructions"):
        delegatekit.load(handmade.endless())["forward"](X)


def test_a_call_is_stopped_at_its_time_limit() -> None:
    program = delegatekit.load(handmade.endless(), time_limit=0.05)
    with pytest.raises(ExecutionError, match=r"instruction \d \(\S+\): took longer than the time limit"):
        program["forward"](X)
    with pytest.raises(ExecutionError, match="took longer"):
        program.new_method("forward").run([X])


def test_the_time_limit_holds_without_jumps_and_for_each_call_anew() -> None:
    program = delegatekit.load(handmade.add_program(), time_limit=60)
    method = program["forward"]
    for _ in range(2):
        assert torch.equal(method(X), X + handmade.WEIGHT)
    method.time_limit = 0
    with pytest.raises(ExecutionError, match="took longer than the time limit"):
        method(X)
    method.time_limit = None
    assert torch.equal(method(X), X + handmade.WEIGHT)


@pytest.mark.parametrize("limit", [-1, float("nan"), "1", True])
def test_a_time_limit_that_is_no_number_of_seconds_is_refused(limit: Any) -> None:
    with pytest.raises(ExecutionError, match="time_limit"):
        delegatekit.load(handmade.add_program(), time_limit=limit)


def test_a_jump_on_a_number_that_was_moved_there_is_an_error() -> None:
    values = [handmade.tensor([5], 0), EValue(Bool(False)), number(1)]
    data = build(values, [0], [0], [MoveCall(2, 1), JumpFalseCall(1, 2)], [])
    with pytest.raises(ExecutionError, match=r"instruction 1 \(JumpFalseCall\): jumps on value 1, which is not a bool"):
        delegatekit.load(data)["forward"](X)


def test_chains_run_one_after_the_other_each_with_its_own_jump_targets() -> None:
    values = [handmade.tensor([5], 0), handmade.tensor([5], 64), handmade.tensor([5], 128), EValue(Bool(False))]
    first = Chain([], [], [Instruction(KernelCall(0, [0, 1, 1]))])
    skips = [JumpFalseCall(3, 2), KernelCall(0, [1, 1, 1]), KernelCall(0, [1, 2, 2])]
    second = Chain([], [], [Instruction(call) for call in skips])
    data = build(values, [0], [2], [], ["aten::neg.out"], chains=[first, second])
    (result,) = both(data, X)
    assert torch.equal(result, X)


def test_a_value_that_is_freed_needs_no_memory_here() -> None:
    values = [handmade.tensor([5], 0), handmade.tensor([5], 64)]
    data = build(values, [0], [1], [KernelCall(0, [0, 1, 1]), FreeCall(0)], ["aten::neg.out"])
    assert torch.equal(delegatekit.load(data)["forward"](X), -X)


def test_sizes_are_computed_from_tensors() -> None:
    values = [handmade.tensor([5], 0), number(0), number(0), number(2), number(0)]
    calls = [KernelCall(0, [0, 1, 2]), KernelCall(1, [2, 3, 4])]
    data = build(values, [0], [4], calls, ["aten::sym_size.int", "executorch_prim::mul.Scalar"])
    assert delegatekit.load(data)["forward"](X) == 10


def test_a_kernel_sees_a_size_that_was_computed_in_this_call() -> None:
    # y = full([n], 2.0), with n the size of x.
    values = [handmade.tensor([5], 0), number(0), number(0), EValue(IntList([2])), EValue(Double(2.0))]
    values.append(handmade.tensor([5], 64))
    data = build(
        values,
        [0],
        [5],
        [KernelCall(0, [0, 1, 2]), KernelCall(1, [3, 4, 5, 5])],
        ["aten::sym_size.int", "aten::full.out"],
    )
    (result,) = both(data, X)
    assert result.tolist() == [2.0] * 5


# -- values ----------------------------------------------------------------------------------------------------------


def test_state_keeps_its_value_from_call_to_call_and_each_method_has_its_own() -> None:
    values = [
        handmade.tensor([5], 0),
        handmade.tensor([5], 64, constant=1),
        number(1),
        EValue(Bool(False)),
        handmade.tensor([5], 128),
    ]
    calls = [KernelCall(0, [1, 0, 2, 4, 4]), KernelCall(1, [1, 4, 3, 1])]
    data = build(values, [0], [4], calls, ["aten::add.out", "aten::copy_"], mutable_state=(torch.full((5,), 100.0),))
    (result,) = both(data, torch.ones(5), calls=3)
    assert result.tolist() == [103.0] * 5
    program = delegatekit.load(data)
    program["forward"](torch.ones(5))
    assert program["forward"](torch.ones(5))[0] == 102.0
    assert program.new_method("forward")(torch.ones(5))[0] == 101.0


def channels_last(offset: int) -> EValue:
    place = AllocationDetails(1, offset, 0)
    return EValue(Tensor(6, sizes=[1, 2, 3, 4], dim_order=bytes([0, 2, 3, 1]), allocation_info=place))


def test_a_tensor_of_another_dim_order_has_the_strides_of_that_order() -> None:
    values = [channels_last(0), channels_last(128), handmade.tensor([1, 2, 3, 4], 256)]
    values += [EValue(Bool(False)), EValue(Null())]
    calls = [KernelCall(0, [0, 1, 1]), KernelCall(1, [1, 3, 4, 2, 2])]
    data = build(values, [0], [1, 2], calls, ["aten::neg.out", "dim_order_ops::_to_dim_order_copy.out"])
    x = torch.randn(1, 2, 3, 4)
    outputs = delegatekit.load(data)["forward"](x, clone_outputs=False)
    assert all(torch.equal(output, -x) for output in outputs)
    assert outputs[0].is_contiguous(memory_format=torch.channels_last)
    assert outputs[1].is_contiguous()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.int64, torch.bool])
def test_constants_of_every_type_reach_the_output(dtype: torch.dtype) -> None:
    from delegatekit.pte.dtypes import scalar_type

    constant = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    table = Tensor(scalar_type(dtype), sizes=[5], dim_order=b"\0", data_buffer_idx=1)
    data = build([EValue(table)], [], [0], [], [], constants=(constant,))
    result = delegatekit.load(data)["forward"]()
    assert result.dtype == dtype
    assert torch.equal(result, constant)


def test_constants_of_a_mapped_file_are_not_read_before_they_are_used(tmp_path: Path) -> None:
    write(handmade.add_image(), tmp_path / "add.pte")
    method = delegatekit.load(tmp_path / "add.pte")["forward"]
    (tmp_path / "add.pte").unlink()  # the mapping lives on
    assert torch.equal(method(X), X + handmade.WEIGHT)


def test_a_constant_that_lies_outside_the_file_is_refused_by_name() -> None:
    info = ExtraTensorInfo(fully_qualified_name="layer.weight", location=1)
    values = [EValue(Tensor(6, sizes=[5], dim_order=b"\0", extra_tensor_info=info))]
    with pytest.raises(FormatError, match=r"layer\.weight: its data"):
        _ = delegatekit.load(build(values, [], [0], [], []))["forward"]


def test_outputs_are_copies_unless_the_caller_wants_the_arena() -> None:
    method = delegatekit.load(handmade.add_program())["forward"]
    copy, view = method(X), method(X, clone_outputs=False)
    method(X + 1)
    assert torch.equal(copy, X + handmade.WEIGHT)
    assert torch.equal(view, X + 1 + handmade.WEIGHT)


def test_inputs_may_be_strided_and_may_want_gradients() -> None:
    method = delegatekit.load(handmade.add_program())["forward"]
    wide = torch.randn(5, 3, requires_grad=True)
    result = method(wide[:, 1])
    assert torch.equal(result, wide[:, 1].detach() + handmade.WEIGHT)
    assert not result.requires_grad


def test_arenas_are_aligned_for_vector_kernels() -> None:
    values = [handmade.tensor([5], 0), handmade.tensor([5], 64)]
    data = build(values, [0], [1], [KernelCall(0, [0, 1, 1])], ["aten::neg.out"])
    for _ in range(5):
        assert delegatekit.load(data)["forward"](X, clone_outputs=False).data_ptr() % 64 == 0


# -- the caller's side -----------------------------------------------------------------------------------------------


def add() -> Method:
    return delegatekit.load(handmade.add_program())["forward"]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ((), "method forward: takes 1 inputs, got 0"),
        ((X, X), "takes 1 inputs, got 2"),
        ((X.double(),), r"input 0: has dtype torch\.float64, not torch\.float32"),
        ((torch.ones(4),), r"input 0: has shape \(4,\), not \(5,\)"),
        ((torch.ones(1, 5),), r"input 0: has shape \(1, 5\), not \(5,\)"),
        (([1.0] * 5,), "input 0: is a list, not a tensor"),
        ((None,), "input 0: is None, not a tensor"),
    ],
)
def test_a_wrong_input_is_refused_by_name(inputs: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ExecutionError, match=words):
        add()(*inputs)


def test_a_number_must_be_the_one_that_the_method_was_lowered_for() -> None:
    data = build([handmade.tensor([5], 0), number(3)], [0, 1], [0], [], [])
    method = delegatekit.load(data)["forward"]
    assert torch.equal(method(X, 3), X)
    for wrong in (4, 3.0, True, torch.tensor(3)):
        with pytest.raises(ExecutionError, match="input 1: was lowered for the value 3"):
            method(X, wrong)


def structured(inputs: Any, outputs: Any) -> bytes:
    container = ContainerMetadata(treespec_dumps(tree_flatten(inputs)[1]), treespec_dumps(tree_flatten(outputs)[1]))
    values = [handmade.tensor([5], 0), handmade.tensor([5], 64), handmade.tensor([5], 128)]
    values.append(number(1))
    calls = [KernelCall(0, [0, 1, 3, 2, 2])]
    return build(values, [0, 1], [2, 0], calls, ["aten::sub.out"], container_meta_type=container)


def test_inputs_and_outputs_have_the_modules_own_structure() -> None:
    method = delegatekit.load(structured((({"a": 0, "b": 0},), {}), {"difference": 0, "rest": [0]}))["forward"]
    result = method({"a": X, "b": torch.ones(5)})
    assert torch.equal(result["difference"], X - 1)
    assert torch.equal(result["rest"][0], X)


def test_keyword_inputs_may_come_in_any_order() -> None:
    method = delegatekit.load(structured(((), {"left": 0, "right": 0}), (0, 0)))["forward"]
    assert torch.equal(method(right=torch.ones(5), left=X)[0], X - 1)
    with pytest.raises(ExecutionError, match="is missing right"):
        method(left=X)
    with pytest.raises(ExecutionError, match="takes 0 arguments by position, got 2"):
        method(X, torch.ones(5))


def test_a_structure_of_another_tool_that_does_not_fit_leaves_outputs_flat() -> None:
    container = ContainerMetadata("not json", treespec_dumps(tree_flatten((0, 0, 0))[1]))
    data = handmade.add_program(lambda plan: setattr(plan, "container_meta_type", container))
    assert torch.equal(delegatekit.load(data)["forward"](X), X + handmade.WEIGHT)


def test_a_program_is_a_mapping_of_its_methods() -> None:
    program = delegatekit.load(handmade.add_program())
    assert (list(program), len(program), "forward" in program, "other" in program) == (["forward"], 1, True, False)
    assert program["forward"] is program["forward"]
    with pytest.raises(ExecutionError, match=r"no method 'other' \(methods: forward\)"):
        program["other"]


def test_a_method_knows_its_inputs_outputs_and_memory() -> None:
    method = add()
    assert method.inputs == (TensorSpec("float32", (5,)),)
    assert method.outputs == (TensorSpec("float32", (5,)),)
    assert method.arena_size == 128


def test_instances_of_a_method_run_in_threads_of_their_own() -> None:
    program = delegatekit.load(handmade.add_program())
    wrong: list[int] = []

    def work(seed: int) -> None:
        method = program.new_method("forward")
        for step in range(200):
            x = torch.full((5,), float(seed * 1000 + step))
            if not torch.equal(method(x), x + handmade.WEIGHT):
                wrong.append(step)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_closed_method_says_so() -> None:
    with delegatekit.load(handmade.add_program()) as program:
        method = program["forward"]
        method(X)
    with pytest.raises(ExecutionError, match="was closed"):
        method(X)


def test_a_failing_kernel_is_named_with_its_instruction() -> None:
    values = [handmade.tensor([2, 3], 0), handmade.tensor([2, 3], 64), handmade.tensor([2, 2], 128)]
    data = build(
        values, [0], [2], [KernelCall(1, [0, 1, 1]), KernelCall(0, [0, 1, 2, 2])], ["aten::mm.out", "aten::neg.out"]
    )
    with pytest.raises(ExecutionError, match=r"method forward, instruction 1 \(aten::mm\.out\): failed: RuntimeError"):
        delegatekit.load(data)["forward"](torch.ones(2, 3))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_output_of_the_wrong_size_is_an_error_at_every_call() -> None:
    values = [handmade.tensor([5], 0), handmade.tensor([3], 64)]
    method = delegatekit.load(build(values, [0], [1], [KernelCall(0, [0, 1, 1])], ["aten::neg.out"]))["forward"]
    for _ in range(2):
        with pytest.raises(ExecutionError, match="resized value 1"):
            method(X)


def test_a_copy_between_sizes_that_differ_is_refused_when_loading() -> None:
    values = [handmade.tensor([5], 0), EValue(IntList([])), handmade.tensor([3], 64)]
    data = build(values, [0], [2], [KernelCall(0, [0, 1, 2])], ["executorch_prim::et_view.default"])
    with pytest.raises(FormatError, match=r"et_view\.default copies \(5,\) into \(3,\)"):
        _ = delegatekit.load(data)["forward"]


def test_a_damaged_file_is_refused_before_anything_runs() -> None:
    with pytest.raises(FormatError, match="cut off"):
        delegatekit.load(handmade.add_program()[:-1])
    with pytest.raises(FormatError, match=r"nowhere\.pte: does not exist"):
        delegatekit.load("nowhere.pte")
