"""Planned memory of whole programs: what shares memory, spaces, reports; eager, engine and stock runtime agree."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from function_module import Function
from referee import StockProgram, check, same
from torch import nn

import delegatekit
from delegatekit import MemoryOptions, MemoryPlan
from delegatekit_api import LoweringError

PLAIN = MemoryOptions(in_place=False, views=False)


def kernels(program: Any) -> dict[str, int]:
    return dict(delegatekit.report(program).methods[0].fallback)


def both(function: Callable[..., Any], *shapes: tuple[int, ...], calls: int = 2, **options: Any) -> tuple[Any, Any]:
    """The function lowered with sharing and without, both checked in both runtimes."""
    examples = tuple(torch.rand(shape) for shape in shapes)
    inputs = [tuple(torch.randn(shape) for shape in shapes) for _ in range(calls)]
    shared = check(Function(function), examples, inputs, **options)
    plain = check(Function(function), examples, inputs, memory=PLAIN, **options)
    return shared, plain


def places(program: Any) -> list[set[str]]:
    """The values that share a place, for each place."""
    return [set(item.value.names) for item in program.emitted.placed["forward"]]


def arena(program: Any) -> int:
    return int(delegatekit.report(program).methods[0].arena_size)


# -- results in the place of operands --------------------------------------------------------------------------------


def test_a_chain_of_elementwise_operators_needs_one_place() -> None:
    shared, plain = both(lambda x: ((x * 2).relu().sigmoid() + 1).tanh(), (16, 16))
    assert (arena(shared), arena(plain)) == (1024, 2048)


def test_the_second_operand_may_be_written_over_and_one_that_is_still_needed_may_not() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = x * y  # over x or y: both are needed below
        b = a.exp() - y  # exp may not be over a
        return a / b

    shared, _ = both(function, (16, 16), (16, 16))
    assert arena(shared) == 3 * 1024


def test_a_broadcast_operand_is_not_written_over() -> None:
    shared, _ = both(lambda x, y: (x.exp() + y.exp()).exp(), (16, 16), (1, 16))
    assert arena(shared) == 1024 + 64


def test_the_result_does_not_go_where_another_operand_is_a_part_of_it() -> None:
    """The first row is broadcast over all rows; overwriting it would change it for the later rows."""

    def function(x: torch.Tensor) -> torch.Tensor:
        a = x.exp()
        return (a + a[0:1]).exp()

    shared, _ = both(function, (16, 16))
    assert "aten::slice_copy.Tensor_out" not in kernels(shared)
    assert arena(shared) == 2 * 1024


def test_results_of_another_dtype_or_with_several_readers_have_their_own_place() -> None:
    def function(x: torch.Tensor) -> Any:
        a = x.exp()
        return (a > 1).to(torch.float32), a.view(-1) + 1, a.sum(-1)

    shared, _ = both(function, (16, 16))
    # Only the input, which nothing else reads, is written over.
    alone = [{"gt_scalar"}, {"_to_copy_default"}, {"add_scalar"}, {"sum_dim_int_list"}]
    assert places(shared) == [{"inputs_0", "exp_default"}, *alone]


def test_inputs_and_views_of_them_are_written_over_and_the_caller_does_not_see_it() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.view(4, 64).neg().view(16, 16).exp()

    shared, _ = both(function, (16, 16))
    assert arena(shared) == 1024
    method = delegatekit.load(shared.buffer)["forward"]
    x = torch.randn(16, 16)
    before = x.clone()
    same(method(x), function(x))
    same(method(x), function(x))
    assert torch.equal(x, before)


def test_a_buffer_and_what_is_returned_are_not_written_over() -> None:
    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(16, 16))
            self.state: torch.Tensor

        def forward(self, x: torch.Tensor) -> Any:
            old = self.state.exp()
            kept = x.exp()
            self.state.add_(x)
            return old + 1, kept, kept.neg(), self.state.sin()

    check(Running(), (torch.rand(16, 16),), [(torch.randn(16, 16),) for _ in range(3)])


def test_attention_is_computed_in_the_place_of_the_scores() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        scores = x @ x.transpose(-1, -2)
        return torch.softmax(scores / 8.0, -1).relu()

    shared, plain = both(function, (4, 64, 16))
    assert arena(shared) == 4 * 64 * 64 * 4 + 2 * 4 * 64 * 16 * 4
    assert arena(plain) == 2 * 4 * 64 * 64 * 4


# -- parts of values -------------------------------------------------------------------------------------------------


def test_slices_and_rows_of_a_value_are_no_copies() -> None:
    def function(x: torch.Tensor) -> Any:
        a = x.exp()
        first, second, third = a.chunk(3)
        return first * second + third, a[2] * a[-1]

    shared, plain = both(function, (12, 8))
    copies = {"aten::slice_copy.Tensor_out", "aten::select_copy.int_out"}
    assert copies.isdisjoint(kernels(shared)) and copies <= kernels(plain).keys()
    assert arena(shared) <= arena(plain)


@pytest.mark.parametrize(
    ("take", "elided"),
    [
        (lambda x: x[2:7], True),
        (lambda x: x[:, 1:3], False),  # not leading
        (lambda x: x[::2], False),  # not contiguous
        (lambda x: x.view(1, 12, 8)[:, 3:5], True),  # after sizes of 1
        (lambda x: x[3:4][:, 4:8], True),  # within a row
        (lambda x: x[3:4][:, 3:5], False),  # not aligned
        (lambda x: x.view(6, 2, 8)[4][1], True),
        (lambda x: x[4:9][1:3][0], True),  # a part of a part
    ],
    ids=[
        "rows",
        "columns",
        "every other",
        "behind ones",
        "within a row",
        "unaligned",
        "rows of rows",
        "nested",
    ],
)
def test_what_is_a_part_and_what_is_not(take: Callable[[torch.Tensor], torch.Tensor], elided: bool) -> None:
    def function(x: torch.Tensor) -> Any:
        a = x.exp()
        return take(a).neg(), a.sum()

    shared, _ = both(function, (12, 8))
    copies = sum(count for name, count in kernels(shared).items() if "slice" in name or "select" in name)
    # Where slices follow one another, only those that are not parts are copies.
    assert (copies == 0) == elided


def test_a_part_that_is_returned_is_a_copy() -> None:
    def function(x: torch.Tensor) -> Any:
        a = x.exp()
        return a[1:3], a.sum()

    shared, _ = both(function, (4, 8))
    assert kernels(shared)["aten::slice_copy.Tensor_out"] == 1


def test_a_part_of_a_buffer_is_a_copy() -> None:
    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("history", torch.zeros(4, 8))
            self.history: torch.Tensor

        def forward(self, x: torch.Tensor) -> Any:
            last = self.history[1:]
            oldest = self.history[0]
            self.history.copy_(torch.cat([last, x]))
            return oldest * 2, last + 1

    check(Shift(), (torch.rand(1, 8),), [(torch.randn(1, 8),) for _ in range(6)])


def test_a_small_part_does_not_keep_a_large_value_alive_if_that_costs_memory() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        row = x.exp()[3]
        large = (x @ x).tanh() @ x
        return large + row

    shared, plain = both(function, (64, 64))
    assert arena(shared) <= arena(plain)


def test_what_is_concatenated_is_computed_where_the_result_is() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x @ x, y.exp(), x.sum(0, keepdim=True)])

    shared, plain = both(function, (16, 16), (4, 16))
    assert "aten::cat.out" not in kernels(shared) and "aten::cat.out" in kernels(plain)
    assert arena(shared) <= arena(plain)


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: torch.cat([a, a]),  # twice the same
        lambda a, b: torch.cat([a, b], 1),  # not leading
        lambda a, b: torch.cat([a.view(-1)[:3], b.view(-1)]),  # not aligned
        lambda a, b: torch.cat([a, torch.zeros(2, 8)]),  # a constant
        lambda a, b: torch.cat([a, b.to(torch.float64)]),  # another dtype
    ],
    ids=["twice", "columns", "unaligned", "constant", "dtype"],
)
def test_concatenations_that_are_copies(join: Callable[..., torch.Tensor]) -> None:
    shared, _ = both(lambda x: join(x.exp(), x.neg()), (4, 8))
    assert kernels(shared)["aten::cat.out"] == 1


def test_concatenations_within_each_other_and_of_parts() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        inner = torch.cat([x.exp(), y.neg()])
        outer = torch.cat([inner, x.sin(), y.cos()])
        low, high = outer.chunk(2)
        return torch.cat([high, low]).relu(), inner.sum(), outer * 2

    shared, _ = both(function, (4, 8), (4, 8))
    whole, crossed, total = places(shared)
    # The inner one, its parts and the halves of the outer one lie in the outer one; in another order they are copied.
    assert {"cat_default_1", "cat_default", "exp_default", "neg_default", "sin_default", "cos_default"} <= whole
    assert {"slice_copy_tensor", "slice_copy_tensor_1", "mul_scalar"} <= whole
    assert (crossed, total) == ({"cat_default_2", "relu_default"}, {"sum_dim_int_list"})


def test_inputs_are_concatenated_where_they_are_put() -> None:
    shared, _ = both(lambda x, y: torch.cat([x, y]).exp() + 1, (4, 8), (2, 8))
    assert "aten::cat.out" not in kernels(shared)
    assert arena(shared) == 6 * 8 * 4


@pytest.mark.parametrize("backends", [[], ["xnnpack"]], ids=["runtime", "xnnpack"])
def test_delegates_read_parts_and_write_into_wholes(backends: list[str]) -> None:
    weight = torch.nn.Parameter(torch.randn(8, 8))

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: torch.Tensor) -> Any:
            a = torch.atan(x)  # atan and cumsum are in no XNNPACK partitioner's table
            low, high = a[:4], a[4:]
            b = torch.cat([low @ self.weight, torch.cumsum(high, 0), (high - low) @ self.weight])
            return torch.atan(b), torch.cumsum(b[2:6] @ self.weight, 0), torch.atan(b[0] * 2)

    examples = [(torch.randn(8, 8),) for _ in range(3)]
    program = check(Parts(), examples[0], examples, backends=backends)
    assert bool(delegatekit.report(program).methods[0].delegates) == bool(backends)


def test_jumps_go_where_they_went_when_copies_in_front_of_them_are_left_out() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        a = x.exp()
        low, high = a[:4] * 2, a[4:] * 3
        joined = torch.cond(
            x.sum() > 0,
            lambda low, high: torch.cat([low + 1, high.sin()]).neg(),
            lambda low, high: torch.cat([high[:2], low[2:], high.cos()]),
            (low, high),
        )
        return joined[2:6].relu() + joined[0]

    calls = [(torch.rand(8, 8) * sign,) for sign in (1, -1, 1)]
    program = check(Function(function), calls[0], calls)
    plain = check(Function(function), calls[0], calls, memory=PLAIN)
    assert sum(kernels(program).values()) < sum(kernels(plain).values())


def test_loops_do_not_write_over_what_the_next_round_needs() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    def function(x: torch.Tensor) -> torch.Tensor:
        fixed = x.cos()

        def body(i: torch.Tensor, x: torch.Tensor) -> Any:
            low = x[:4].sin()
            return i + 1, torch.cat([low, (x[4:] + fixed[4:]).exp().neg()]) * fixed

        return while_loop(lambda i, x: i < 5, body, (torch.tensor(0), x))[1]

    calls = [(torch.rand(8, 8) * sign,) for sign in (1, -1)]
    check(Function(function), calls[0], calls)
    check(Function(function), calls[0], calls, memory=PLAIN)


@pytest.mark.parametrize("options", [MemoryOptions(), PLAIN], ids=["shared", "plain"])
def test_what_a_branch_reads_late_stays_until_then(options: MemoryOptions) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y, a = torch.sin(x), x * 2
        return torch.cond(
            x.sum() > 0,
            lambda y, a: y.view(-1) + a.view(-1),
            lambda y, a: torch.cos(torch.exp(torch.cos(torch.exp(a.reshape(-1))))) + y.reshape(-1),
            (y, a),
        )

    calls = [(torch.rand(3, 8) * sign,) for sign in (1, -1, 1)]
    check(Function(function), calls[0], calls, memory=options)


def random_program(seed: int) -> nn.Module:
    """Elementwise operators, slices, rows, views, concatenations and softmax on values of 8 columns."""
    chance = random.Random(seed)
    steps: list[tuple[Any, ...]] = []
    rows = [8, 4]  # of the values so far; the first two are inputs
    for _ in range(chance.randint(6, 24)):
        kind = chance.choice(["unary", "unary", "binary", "rows", "row", "view", "cat", "softmax", "spread", "product"])
        one = chance.randrange(len(rows))
        alike = [i for i, count in enumerate(rows) if count == rows[one]]
        if kind == "rows":
            start = chance.randrange(rows[one])
            end = chance.randint(start + 1, rows[one])
            steps.append((kind, one, start, end))
            rows.append(end - start)
        elif kind == "row":
            steps.append((kind, one, chance.randrange(rows[one])))
            rows.append(1)
        elif kind == "cat":
            parts = [chance.randrange(len(rows)) for _ in range(chance.randint(2, 3))]
            if sum(rows[part] for part in parts) > 64:
                continue
            steps.append((kind, parts))
            rows.append(sum(rows[part] for part in parts))
        elif kind == "spread":
            single = [i for i, count in enumerate(rows) if count == 1]
            if not single:
                continue
            steps.append((kind, one, chance.choice(single)))
            rows.append(rows[one])
        else:
            steps.append((kind, one, chance.choice(alike), chance.randrange(4)))
            rows.append(rows[one])
    returned = [len(rows) - 1, *(i for i in range(2, len(rows)) if chance.random() < 0.15)]
    unary = (torch.tanh, torch.neg, torch.sigmoid, lambda x: x * 0.5)
    binary = (torch.add, torch.mul, torch.sub, torch.maximum)

    def function(*inputs: torch.Tensor) -> Any:
        values = list(inputs)
        for kind, *rest in steps:
            if kind == "cat":
                values.append(torch.cat([values[i] for i in rest[0]]))
                continue
            x = values[rest[0]]
            if kind == "rows":
                values.append(x[rest[1] : rest[2]])
            elif kind == "row":
                values.append(x[rest[1]].unsqueeze(0))
            elif kind == "spread":
                values.append(x - values[rest[1]])
            elif kind == "unary":
                values.append(unary[rest[2]](x))
            elif kind == "binary":
                values.append(binary[rest[2]](x, values[rest[1]]))
            elif kind == "view":
                values.append(x.view(-1).view(x.shape[0], 2, 4).tanh().view(x.shape))
            elif kind == "product":
                values.append(torch.tanh(x @ inputs[0]))
            else:
                values.append(torch.softmax(x, -1))
        return tuple(values[i] for i in returned)

    return Function(function)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    module = random_program(seed)
    calls = [(torch.randn(8, 8), torch.randn(4, 8)) for _ in range(2)]
    program = check(module, calls[0], calls)
    plain = delegatekit.lower(module, calls[0], backends=[], memory=PLAIN)
    assert arena(program) <= arena(plain)
    assert sum(kernels(program).values()) <= sum(kernels(plain).values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 162))
def test_more_random_programs(seed: int) -> None:
    backends = ["xnnpack"] if seed % 3 == 0 else []
    calls = [(torch.randn(8, 8), torch.randn(4, 8)) for _ in range(2)]
    check(random_program(seed), calls[0], calls, backends=backends)


# -- options ---------------------------------------------------------------------------------------------------------


def network(x: torch.Tensor) -> Any:
    a = torch.relu(x @ x)
    b = a.sum(0, keepdim=True)
    return torch.cat([a @ x, b]) / 3, (x * b).tanh()


EXAMPLES: Sequence[tuple[torch.Tensor, ...]] = [(torch.randn(16, 16),) for _ in range(2)]


@pytest.mark.parametrize("planner", ["best", "greedy", "best-fit"])
@pytest.mark.parametrize("alignment", [16, 64, 4096])
def test_planners_and_alignments(planner: str, alignment: int) -> None:
    from delegatekit.pte import read

    program = check(Function(network), EXAMPLES[0], EXAMPLES, memory=MemoryOptions(planner, alignment))
    plan = read(program.buffer).program.execution_plan[0]
    places = [value.val.allocation_info for value in plan.values if hasattr(value.val, "allocation_info")]
    assert all(place.offset % alignment == 0 for place in places if place is not None)


def test_a_planner_of_the_users_own() -> None:
    def stack(requests: Sequence[Any]) -> MemoryPlan:
        offsets, end = [], 0
        for request in requests:
            offsets.append(end)
            end += request.span
        return MemoryPlan(tuple(offsets), end)

    check(Function(network), EXAMPLES[0], EXAMPLES, memory=MemoryOptions(stack))
    with pytest.raises(LoweringError, match=r"memory of method forward: the plan lets two values overlap.*value .*and"):
        delegatekit.lower(
            Function(network),
            EXAMPLES[0],
            backends=[],
            memory=MemoryOptions(lambda requests: MemoryPlan((0,) * len(requests), 1 << 20)),
        )


def test_spaces_of_the_users_choice_run_in_both_runtimes() -> None:
    seen: list[Any] = []

    def choose(value: Any) -> Any:
        seen.append(value)
        return ("sram", "dram") if value.size <= 1024 and not value.is_input else "dram"

    options = MemoryOptions(spaces=choose, capacities={"sram": 1100})
    program = check(Function(network), EXAMPLES[0], EXAMPLES, memory=options)
    arenas = {found.space: found for found in delegatekit.report(program).methods[0].arenas}
    assert arenas["sram"].memory_id == 1 and arenas["sram"].size <= 1100 and arenas["dram"].memory_id == 2
    assert {value.dtype for value in seen} == {"float32"}
    (given,) = (value for value in seen if value.is_input)
    assert given.shape == (16, 16) and given.writers[0] == "input" and "aten::mm.out" in given.readers
    assert sum(value.is_output for value in seen) == 2 and given.first == 0


def test_spaces_by_number_may_leave_numbers_out() -> None:
    options = MemoryOptions(spaces=lambda value: 3 if value.is_output else 1)
    program = check(Function(network), EXAMPLES[0], EXAMPLES, memory=options)
    assert [found.memory_id for found in delegatekit.report(program).methods[0].arenas] == [1, 3]


def test_a_space_that_is_too_small_names_method_space_and_values() -> None:
    options = MemoryOptions(spaces=lambda _: "sram", capacities={"sram": 512})
    with pytest.raises(LoweringError, match=r"memory of method forward: space sram has 512 bytes.*need \d+ bytes at"):
        delegatekit.lower(Function(network), EXAMPLES[0], backends=[], memory=options)


class Count(nn.Module):
    """Counts its calls in a buffer of its own, and adds up its inputs in one that others may have, too."""

    def __init__(self, total: torch.Tensor, step: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(5, dtype=torch.int64))
        self.total, self.step = nn.Buffer(total), step
        self.count: torch.Tensor

    def forward(self, x: torch.Tensor) -> Any:
        self.count.add_(self.step)
        self.total.add_(x.exp().sum(0))
        return self.count * 2, (x @ x.T).tanh() @ x + self.total


def test_methods_that_take_turns_keep_their_buffers_and_share_those_that_are_one() -> None:
    """The stock runtime's Python binding gives all methods one arena per memory_id, sized for the largest."""
    total = torch.zeros(8)
    modules: dict[str, nn.Module] = {"a": Count(total, 1), "b": Count(total, 10), "c": Function(network)}
    assert modules["a"].total.data_ptr() == modules["b"].total.data_ptr()
    examples = {"a": (torch.rand(4, 8),), "b": (torch.rand(20, 8),), "c": EXAMPLES[0]}
    programs = {name: torch.export.export(module, examples[name], strict=False) for name, module in modules.items()}
    program = delegatekit.lower(programs, backends=[])
    arenas = {m.name: {arena.space: arena.memory_id for arena in m.arenas} for m in delegatekit.report(program).methods}
    assert arenas == {"a": {"arena": 1, "state": 2}, "b": {"arena": 1, "state": 2}, "c": {"arena": 1}}
    ours, stock = delegatekit.load(program.buffer), StockProgram(program.buffer)
    for name in modules:  # loading a method sets its buffers to their initial values
        stock.method(name)
    for name in "acbbcaba":
        inputs = tuple(torch.rand(example.shape) for example in examples[name])
        with torch.no_grad():
            want = modules[name](*inputs)
        same(ours[name](*inputs), want)
        same(stock.method(name)(inputs), want)


# -- reports ---------------------------------------------------------------------------------------------------------


def test_the_report_shows_the_fullest_step() -> None:
    program = check(Function(network), EXAMPLES[0], EXAMPLES)
    (found,) = delegatekit.report(program).methods[0].arenas
    alive = [value for value in found.peak if value.first <= found.peak_step <= value.last]
    assert alive == list(found.peak) and sum(value.size for value in alive) == found.bound <= found.size
    assert found.excess == found.size / found.bound - 1
    text = delegatekit.report(program).memory()
    assert f"{found.size} bytes for {found.values} values, least possible {found.bound}" in text
    assert all(value.name in text for value in found.peak)


def test_alignment_waste_is_what_larger_alignment_costs_at_the_peak() -> None:
    program = delegatekit.lower(Function(network), EXAMPLES[0], backends=[], memory=MemoryOptions(alignment=4096))
    (found,) = delegatekit.report(program).methods[0].arenas
    assert found.alignment_waste == sum(-value.size % 4096 for value in found.peak)
