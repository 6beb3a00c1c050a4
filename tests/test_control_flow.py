"""torch.cond, while_loop and map: eager, the Python engine and the stock runtime agree on the same file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from referee import check
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.while_loop import while_loop

import delegatekit
from delegatekit_api import UnsupportedError

BACKENDS = pytest.mark.parametrize("backends", [[], ["xnnpack"]], ids=["runtime", "xnnpack"])


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any], **children: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def signed(*shape: int) -> list[tuple[torch.Tensor, ...]]:
    """Inputs whose sum is positive, negative, positive again."""
    return [(torch.rand(*shape) * sign,) for sign in (1, -1, 1, -1)]


@BACKENDS
def test_a_condition_runs_one_of_its_branches(backends: list[str]) -> None:
    module = Function(
        lambda m, x: torch.cond(
            x.sum() > 0, lambda x: (m.left(x).relu(), x + 1), lambda x: (m.right(x).sigmoid(), x * 2), (x,)
        ),
        left=nn.Linear(8, 4),
        right=nn.Linear(8, 4),
    )
    program = check(module, (torch.randn(3, 8),), signed(3, 8), backends=backends)
    # The sum, and the branches.
    assert len(delegatekit.report(program).methods[0].delegates) == (3 if backends else 0)


@BACKENDS
def test_conditions_nest_and_use_values_of_the_graphs_around(backends: list[str]) -> None:
    def forward(m: Any, x: torch.Tensor, n: torch.Tensor) -> Any:
        y = torch.sin(x)

        def outer(x: torch.Tensor, y: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
            inner = torch.cond(n.sum() > 3, lambda x, y: m.a(x) + y, lambda x, y: m.b(y) - x, (x, y))
            return inner * y

        return torch.cond(x.sum() > 0, outer, lambda x, y, n: x - y * n, (x, y, n)) + y

    module = Function(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    calls = [(*x, torch.tensor([n])) for x, n in zip(signed(3, 8), (4.0, 4.0, 2.0, 2.0), strict=True)]
    check(module, (torch.randn(3, 8), torch.tensor([4.0])), calls, backends=backends)


def test_a_condition_on_a_size() -> None:
    module = Function(lambda m, x: torch.cond(x.shape[0] > 2, lambda x: x * 2, lambda x: x + 1, (x,)))
    dim = torch.export.Dim("n", max=6)
    calls = [(torch.randn(n, 4),) for n in (3, 2, 6, 1, 5)]
    check(module, (torch.randn(3, 4),), calls, dynamic_shapes={"args": ({0: dim},)})


def test_a_condition_keeps_the_sizes_of_the_branch_that_ran() -> None:
    module = Function(lambda m, x: torch.cond(x.sum() > 0, lambda x: x.cos(), lambda x: x.exp() + x, (x,)) * 2)
    dim = torch.export.Dim("n", max=9)
    calls = [(torch.rand(n, 4) * sign,) for n, sign in ((3, 1), (9, -1), (1, 1), (1, -1), (4, -1))]
    check(module, (torch.randn(3, 4),), calls, dynamic_shapes={"args": ({0: dim},)})


def _nested(m: Any, x: torch.Tensor) -> torch.Tensor:
    def outer(x: torch.Tensor) -> torch.Tensor:
        inner = (lambda x: x * torch.tensor(2.0) + m.weight, lambda x: x - torch.tensor(2.0))
        return torch.cond(x.max() > torch.tensor(0.5), *inner, (x,))

    return torch.cond(x.sum() > 0, outer, lambda x: x * torch.tensor(2.0), (x,))


MADE_INSIDE: dict[str, Callable[..., Any]] = {
    "a scalar": lambda m, x: torch.cond(x.sum() > 0, lambda x: x * torch.tensor(2.0), lambda x: x + 1, (x,)),
    "in both branches and outside": lambda m, x: (
        torch.cond(
            x.sum() > 0, lambda x: x * torch.tensor([1.0, 2.0, 3.0]), lambda x: x - torch.tensor([1.0, 2.0, 3.0]), (x,)
        )
        * torch.tensor([1.0, 2.0, 3.0])
    ),
    "integers": lambda m, x: torch.cond(
        x.sum() > 0,
        lambda x: x.int() * torch.tensor(2, dtype=torch.int32),
        lambda x: torch.tensor([1, 2, 3], dtype=torch.int32) + x.int(),
        (x,),
    ),
    "an index and a mask": lambda m, x: torch.cond(
        x.sum() > 0,
        lambda x: x[torch.tensor([0, 1, 1])],
        lambda x: torch.where(torch.tensor([True, False, True]), x, torch.tensor(1.0)),
        (x,),
    ),
    "a result": lambda m, x: torch.cond(
        x.sum() > 0, lambda x: torch.tensor([1.0, 2.0, 3.0]), lambda x: torch.tensor([4.0, 5.0, 6.0]), (x,)
    ),
    "overwritten": lambda m, x: torch.cond(
        x.sum() > 0, lambda x: x * torch.tensor(2.0).add_(1), lambda x: x + torch.tensor([1.0, 2.0, 3.0]).mul_(2), (x,)
    ),
    "complex": lambda m, x: torch.cond(
        x.sum() > 0, lambda x: torch.view_as_real(x * torch.tensor(2 + 1j)).sum(-1), lambda x: x + 1, (x,)
    ),
    "beside a parameter, nested": _nested,
}


@pytest.mark.sweep
@BACKENDS
@pytest.mark.parametrize("forward", MADE_INSIDE.values(), ids=MADE_INSIDE.keys())
def test_a_branch_makes_tensors_of_numbers(forward: Callable[..., Any], backends: list[str]) -> None:
    module = Function(forward)
    module.weight = nn.Parameter(torch.randn(3))
    check(module, (torch.randn(3),), signed(3), backends=backends)


def test_where_pytorch_cannot_handle_tensors_made_inside_a_branch_a_buffer_does() -> None:
    def overwritten(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0] = 5.0
        return torch.cond(y.sum() > 0, lambda x: x * m.factor(), lambda x: x + 1, (y,))

    def made(forward: Callable[..., Any], factor: Callable[[], torch.Tensor]) -> nn.Module:
        module = Function(forward)
        module.register_buffer("two", torch.tensor(2.0))
        module.factor = factor
        return module

    with pytest.raises(UnsupportedError, match=r"(?s)inside control flow and writes in place.*register_buffer"):
        delegatekit.lower(made(overwritten, lambda: torch.tensor(2.0)), (torch.ones(3),), backends=[])
    module = made(overwritten, lambda: module.two)
    program = delegatekit.lower(module, (torch.ones(3),), backends=[])
    for (x,) in signed(3):
        torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](x), module(x))

    exported = torch.export.export(Function(MADE_INSIDE["a scalar"]), (torch.ones(3),), strict=False)
    with pytest.raises(UnsupportedError, match=r"(?s)elements torch\.export lost.*register_buffer"):
        delegatekit.lower(exported.module(), (torch.ones(3),), backends=[])


@BACKENDS
def test_bodies_of_loops_and_maps_make_tensors_of_numbers(backends: list[str]) -> None:
    def count(m: Any, n: torch.Tensor, x: torch.Tensor) -> Any:
        def body(n: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return n + torch.tensor(1), x * torch.tensor([2.0, 1.0, 3.0])

        return while_loop(lambda n, x: n < torch.tensor(3), body, (n, x))

    check(Function(count), (torch.tensor(0), torch.ones(3)), [(torch.tensor(n), torch.ones(3)) for n in (0, 2, 4)])
    rows = Function(lambda m, x, y: torch_map(lambda x, y: x * torch.tensor([2, 3, 4]) + y * torch.tensor(2.0), x, y))
    check(rows, (torch.randn(2, 3), torch.randn(3)), [(torch.randn(2, 3), torch.randn(3))], backends=backends)


@BACKENDS
def test_a_loop_carries_what_its_body_returns(backends: list[str]) -> None:
    module = Function(
        lambda m, n, x: while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, m.layer(x).tanh()), (n, x)),
        layer=nn.Linear(8, 8),
    )
    calls = [(torch.tensor(n), torch.randn(2, 8)) for n in (3, 0, 1, 7)]
    check(module, (torch.tensor(3), torch.randn(2, 8)), calls, backends=backends)


def test_a_loop_may_exchange_what_it_carries() -> None:
    module = Function(
        lambda m, a, b, n: while_loop(lambda a, b, n: n > 0, lambda a, b, n: (b.clone(), a + b, n - 1), (a, b, n))
    )
    check(
        module,
        (torch.zeros(3), torch.ones(3), torch.tensor(7)),
        [(torch.zeros(3), torch.ones(3), torch.tensor(n)) for n in (7, 0, 1, 12)],
    )


def test_a_loop_keeps_what_it_reads_from_outside() -> None:
    """Memory of values that only the loop's body reads must not be reused inside the loop."""

    def forward(m: Any, n: torch.Tensor, x: torch.Tensor) -> Any:
        scale = torch.sigmoid(x) + 1
        _, result = while_loop(
            lambda n, y: n > 0, lambda n, y: (n - 1, torch.cos(torch.sin(y * 3) + y.exp()) * scale), (n, x)
        )
        return result + 1

    calls = [(torch.tensor(n), torch.randn(5)) for n in (4, 1, 9)]
    check(Function(forward), (torch.tensor(3), torch.randn(5)), calls)


@BACKENDS
def test_a_map_runs_its_body_for_each_row(backends: list[str]) -> None:
    module = Function(lambda m, xs, y: torch_map(lambda x, y: m.layer(x) * y, xs, y) + 1, layer=nn.Linear(8, 8))
    dim = torch.export.Dim("n", min=1, max=6)
    calls = [(torch.randn(n, 4, 8), torch.randn(8)) for n in (3, 6, 1, 2, 6)]
    check(module, (torch.randn(3, 4, 8), torch.randn(8)), calls, dynamic_shapes={"args": ({0: dim}, None)}, backends=[])
    check(module, (torch.randn(3, 4, 8), torch.randn(8)), [calls[0]] * 2, backends=backends)


def test_explain_tells_who_runs_the_branches() -> None:
    module = Function(lambda m, x: torch.cond(x.sum() > 0, lambda x: x.exp() * x, lambda x: x.cos(), (x,)))
    rows = delegatekit.explain(module, (torch.randn(3, 3),), backends=["xnnpack"]).rows
    assert {
        row.operator: row.backend or row.kernel for row in rows if row.operator in ("cond", "aten.exp.default")
    } == {
        "cond": "jumps",
        "aten.exp.default": "xnnpack",
    }


def test_other_control_flow_is_refused_by_name() -> None:
    from torch._higher_order_ops.scan import scan

    module = Function(lambda m, x: scan(lambda c, x: (c + x, c * x), torch.zeros(4), x, dim=0))
    with pytest.raises(UnsupportedError, match=r"scan.*\n?.*torch\.cond"):
        delegatekit.lower(module, (torch.randn(3, 4),), backends=[])


@BACKENDS
def test_loops_and_conditions_nest_either_way(backends: list[str]) -> None:
    def loop_in_branch(m: Any, x: torch.Tensor, n: torch.Tensor) -> Any:
        def run(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
            return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, m.layer(y)), (n, x))[1]

        return torch.cond(x.sum() > 0, run, lambda x, n: x.clone(), (x, n))

    def branch_in_loop(m: Any, x: torch.Tensor, n: torch.Tensor) -> Any:
        def body(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, torch.cond(y.sum() > 0, lambda y: m.layer(y) - 1, lambda y: y + 1, (y,))

        return while_loop(lambda i, y: i < 5, body, (n, x))

    calls = [(*x, torch.tensor(n)) for x, n in zip(signed(3, 4), (0, 1, 2, 0), strict=True)]
    for forward in (loop_in_branch, branch_in_loop):
        check(Function(forward, layer=nn.Linear(4, 4)), calls[0], calls, backends=backends)


def test_a_map_over_several_tensors_with_structured_results() -> None:
    module = Function(lambda m, xs, ys: torch_map(lambda t: {"product": t[0] * t[1], "sum": t[0].sum()}, (xs, ys)))
    calls = [(torch.randn(3, 2), torch.randn(3, 2)) for _ in range(3)]
    check(module, calls[0], calls)


def test_a_condition_reads_a_buffer_that_the_method_updates() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(x[0])
            return torch.cond(self.seen.sum() > 1, lambda x, n: x * n, lambda x, n: x - n, (x, self.seen))

    calls = [(torch.randn(3, 4) + shift,) for shift in (-1, 1, 1, -2, 3)]
    check(Counting(), calls[0], calls)


def test_a_number_that_a_loop_carries_is_refused_with_the_way_out() -> None:
    module = Function(lambda m, x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (0, x)))
    with pytest.raises(UnsupportedError, match=r"(?s)carries 0.*torch\.tensor"):
        delegatekit.lower(module, (torch.randn(3),), backends=[])
