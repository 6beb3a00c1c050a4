"""The walk over a partition: order, results of several tensors, constants, debug handles, merging."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from delegatekit_api import Call, LoweringError, Operand, ProgramView
from delegatekit_toolkit.building import DebugHandles, Merging, PartitionBuilder
from delegatekit_toolkit.support import Row, SupportTable, row
from delegatekit_toolkit.testing import view_of


class Numbered(PartitionBuilder[int]):
    """Values are numbers, in order of creation; `log` records what was made."""

    def __init__(self, program: ProgramView) -> None:
        super().__init__(program)
        self.log: list[str] = []

    def make(self, what: str) -> int:
        self.log.append(what)
        return len(self.log) - 1

    def make_input(self, operand: Operand) -> int:
        return self.make(f"input {tuple(operand.shape)}")

    def make_constant(self, operand: Operand, data: torch.Tensor) -> int:
        return self.make(f"constant {data.tolist()}")

    def make_output(self, value: int, operand: Operand) -> None:
        self.log.append(f"return {value}")


def plain(b: Numbered, call: Call) -> Any:
    numbers = b.values(call.operands)
    if len(call.results) == 1:
        return b.make(f"{call.operator} of {list(numbers)}")
    return tuple(b.make(f"{call.operator}[{result.index}] of {list(numbers)}") for result in call.results)


TABLE = SupportTable([row("add.Tensor mul.Tensor relu.default max.dim split.Tensor sym_size.int", plain)])


def built(model: Any, *inputs: torch.Tensor, **options: Any) -> list[str]:
    builder = Numbered(view_of(model, *inputs, **options))
    builder.build(TABLE)
    return builder.log


def test_calls_are_lowered_in_order_and_constants_where_they_are_first_used() -> None:
    weight = torch.tensor([1.0, 2.0])
    assert built(lambda x, y: (x + y) * weight + weight, torch.ones(3, 2), torch.ones(2)) == [
        "input (3, 2)",
        "input (2,)",
        "aten.add.Tensor of [0, 1]",
        "constant [1.0, 2.0]",
        "aten.mul.Tensor of [2, 3]",
        "aten.add.Tensor of [4, 3]",
        "return 5",
    ]


def test_each_of_several_results_is_a_value() -> None:
    assert built(lambda x: (x.max(1)[0].relu(), x.max(1)[1]), torch.ones(3, 2)) == [
        "input (3, 2)",
        "aten.max.dim[0] of [0]",
        "aten.max.dim[1] of [0]",
        "aten.relu.default of [1]",
        "aten.max.dim[0] of [0]",
        "aten.max.dim[1] of [0]",
        "return 3",
        "return 5",
    ]
    log = built(lambda x: x.split(2)[1], torch.ones(3, 2))
    assert log[1:] == ["aten.split.Tensor[0] of [0]", "aten.split.Tensor[1] of [0]", "return 2"]


def test_what_computes_sizes_is_no_call() -> None:
    dim = torch.export.Dim("n", max=8)
    log = built(lambda x: x.relu() * x.shape[0], torch.ones(3, 2), dynamic_shapes=(({0: dim},),))
    assert [line.partition(" ")[0] for line in log[:2]] == ["input", "aten.relu.default"]
    assert not any("sym_size" in line for line in log)


def test_calls_can_be_left_to_others() -> None:
    builder = Numbered(view_of(lambda x: (x + x).relu(), torch.ones(2)))

    def fused(b: Numbered, call: Call) -> int:
        inner = call["self"].producer
        return b.make(f"relu of {inner.operator} of {list(b.values(inner.operands))}")

    table = SupportTable([row("relu.default", fused)])
    builder.build(table, skip=lambda call: call.operator == "aten.add.Tensor")
    assert builder.log == ["input (2,)", "relu of aten.add.Tensor of [0]", "return 1"]


def test_what_cannot_be_lowered_is_named() -> None:
    with pytest.raises(LoweringError, match=r"aten\.sin\.default \(sin\).*: the backend has no lowering"):
        built(lambda x: x.sin(), torch.ones(2))
    builder = Numbered(view_of(lambda x: (x + x).relu(), torch.ones(2)))
    with pytest.raises(LoweringError, match=r"aten\.add\.Tensor \(add\).*: is used before it is lowered"):
        builder.build(TABLE, skip=lambda call: call.operator == "aten.add.Tensor")
    view = view_of(torch.relu, torch.ones(2))
    broken = ProgramView(view.graph, view.constants, view.inputs, (None,))
    with pytest.raises(LoweringError, match="outputs of the partition: returns something that is not computed"):
        Numbered(broken).build(TABLE)


def test_calls_begin_with_their_debug_handles() -> None:
    view = view_of(lambda x: (x + x).relu(), torch.ones(2))
    for place, call in enumerate(view.calls()):
        call.node.meta["debug_handle"] = 10 + place
    seen = []

    class Noting(Numbered):
        def begin(self, call: Call, entry: Row[Any]) -> None:
            super().begin(call, entry)
            seen.append((call.operator, self.debug_handle, entry is TABLE[call.operator]))

    Noting(view).build(TABLE)
    assert seen == [("aten.add.Tensor", 10, True), ("aten.relu.default", 11, True)]


def test_debug_handles_are_kept_once_in_order() -> None:
    handles = DebugHandles()
    handles.add("a", 3, None, 1)
    handles.add("a", 3)
    handles.add("b", None)
    assert handles.mapping == {"a": (3, 1)}


def test_equal_keys_are_made_once() -> None:
    made: list[int] = []
    merging: Merging[int] = Merging()

    def make() -> int:
        made.append(len(made))
        return made[-1]

    assert [merging.once(key, make) for key in ("a", "b", "a")] == [0, 1, 0]
    assert made == [0, 1]
