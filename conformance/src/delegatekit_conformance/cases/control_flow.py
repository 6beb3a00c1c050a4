"""Control flow with operators for the backend inside: both branches of `torch.cond`, loops, and one in the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .base import Case
from .subjects import Built, Register

flow = Register("control-flow", cost=1.0)


@flow("cond")
def cond() -> Built:
    """Two branches, chosen by an input."""

    class Model(nn.Module):
        def forward(self, flag: torch.Tensor, x: torch.Tensor) -> Any:
            return torch.cond(flag, lambda x: (x * 2 + 1).relu(), lambda x: x.tanh() - 3, (x,))

    calls = [(torch.tensor(flag), torch.randn(2, 3)) for flag in (True, False, True, False)]
    return Model(), calls


@flow("cond-with-weights")
def cond_with_weights() -> Built:
    """Each branch has a layer of its own; work before and after."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> Any:
            x = x.tanh()
            positive = x.sum() > 0
            y = torch.cond(
                positive, lambda x: nn.functional.relu(self.first(x)), lambda x: self.second(x).sigmoid(), (x,)
            )
            return self.head(y + x)

    x = torch.rand(3, 4) + 0.5
    return Model(), [(x,), (-x,), (x * 2,), (-x * 2,)]


@flow("cond-several-results")
def cond_several_results() -> Built:
    """Branches with two results, which they give in different orders, and a copy of an operand."""

    class Model(nn.Module):
        def forward(self, flag: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
            a, b = torch.cond(flag, lambda x, y: (x + y, x.clone()), lambda x, y: (y.clone(), x * y), (x, y))
            return a - b, b

    return Model(), [(torch.tensor(flag), torch.randn(3), torch.randn(3)) for flag in (True, False, True)]


@flow("cond-nested")
def cond_nested() -> Built:
    """Nested branches."""

    class Model(nn.Module):
        def forward(self, first: torch.Tensor, second: torch.Tensor, x: torch.Tensor) -> Any:
            def inner(x: Any) -> Any:
                return torch.cond(second, lambda x: x * 2, lambda x: x.exp(), (x,)) + 1

            return torch.cond(first, inner, lambda x: -x, (x,))

    flags = ((True, True), (True, False), (False, True), (True, True))
    return Model(), [(torch.tensor(a), torch.tensor(b), torch.randn(2, 2)) for a, b in flags]


@flow("cond-convolution")
def cond_convolution() -> Built:
    """A cheap branch and one with convolutions, as in networks with early exits."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.deep = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, flag: torch.Tensor, x: torch.Tensor) -> Any:
            y = nn.functional.relu(self.stem(x))
            return torch.cond(
                flag, lambda y: y.mean((2, 3)), lambda y: nn.functional.relu(self.deep(y)).amax((2, 3)), (y,)
            )

    return Model(), [(torch.tensor(flag), torch.randn(1, 3, 7, 7)) for flag in (True, False, True)]


@flow("cond-changing-size")
def cond_changing_size() -> Built:
    """Branches over a size that changes."""

    class Model(nn.Module):
        def forward(self, flag: torch.Tensor, x: torch.Tensor) -> Any:
            return torch.cond(flag, lambda x: x.softmax(0), lambda x: x - x.mean(0), (x,))

    rows = torch.export.Dim("rows", min=2, max=9)
    calls = [(torch.tensor(n % 2 == 0), torch.randn(n, 3)) for n in (4, 3, 9, 2, 5)]
    return Model(), calls, (None, {0: rows})


@flow("while-loop", loops=9)
def loop_with_a_layer() -> Built:
    """A loop whose number of rounds is an input, with a linear layer inside."""
    from torch._higher_order_ops.while_loop import while_loop

    loop: Any = while_loop

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, rounds: torch.Tensor, x: torch.Tensor) -> Any:
            def more(step: Any, x: Any) -> Any:
                return step < rounds

            def body(step: Any, x: Any) -> Any:
                return step + 1, torch.tanh(self.layer(x)) + 0.1

            return loop(more, body, (torch.zeros((), dtype=torch.int64), x))

    return Model(), [(torch.tensor(n), torch.randn(2, 4)) for n in (3, 0, 9, 1)]


@flow("while-loop-stops-by-value", loops=30)
def while_loop_stops_by_value() -> Built:
    """Halved until it is small: how often depends on the numbers."""
    from torch._higher_order_ops.while_loop import while_loop

    loop: Any = while_loop

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            count, value = loop(
                lambda count, x: x.abs().max() > 1.0,
                lambda count, x: (count + 1, x * 0.5),
                (torch.zeros((), dtype=torch.int64), x),
            )
            return count, value + 1

    # A number that float16 has, too: half of infinity is infinite, and the loop would have no end.
    return Model(), [(torch.tensor([3.0, -100.0]),), (torch.tensor([0.5, 0.25]),), (torch.tensor([6e4, 7.0]),)]


@flow("cond-in-while-loop", loops=6)
def cond_in_while_loop() -> Built:
    """Even rounds do one thing, odd rounds another."""
    from torch._higher_order_ops.while_loop import while_loop

    loop: Any = while_loop

    class Model(nn.Module):
        def forward(self, rounds: torch.Tensor, x: torch.Tensor) -> Any:
            def body(step: Any, x: Any) -> Any:
                y = torch.cond(step % 2 == 0, lambda x: x.tanh() + 1, lambda x: (x * 0.5).sigmoid(), (x,))
                return step + 1, y

            return loop(lambda step, x: step < rounds, body, (torch.zeros((), dtype=torch.int64), x))[1]

    return Model(), [(torch.tensor(n), torch.randn(3)) for n in (4, 1, 6, 0)]


def cases() -> Iterator[Case]:
    """All of them."""
    yield from flow.cases.values()
