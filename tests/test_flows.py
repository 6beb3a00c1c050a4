"""The three flows: a whole module to one backend, lowered modules inside others, several backends in one program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from referee import StockProgram, same
from torch import nn
from torch.export import Dim

import delegatekit
from delegatekit.pte import read
from delegatekit_api import DelegateKitError, LoweringError, UnsupportedError

X = torch.randn(3, 8)


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        hidden = nn.functional.gelu(self.first(x))
        out = self.second(hidden)
        return {"out": out if scale is None else out * scale, "hidden": hidden}


class Around(nn.Module):
    """A module with another one in its middle, called twice."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        torch.manual_seed(3)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        once = self.inner(torch.atan(x))
        twice = self.inner(once["out"].cumsum(1))
        return self.head(twice["out"].sin()), once["hidden"]


@pytest.fixture(scope="module")
def body() -> Body:
    torch.manual_seed(0)
    return Body().eval()


def test_a_whole_module_becomes_a_module_that_can_be_called(body: Body) -> None:
    lowered = delegatekit.to_backend(body, (X,), backend="xnnpack")
    assert lowered.backend == "xnnpack"
    for _ in range(2):
        x = torch.randn(3, 8)
        with torch.no_grad():
            same(lowered(x), body(x))


def test_keyword_arguments_and_structure_stay(body: Body) -> None:
    scale = torch.rand(8)
    lowered = delegatekit.to_backend(body, (X,), kwargs={"scale": scale}, backend="xnnpack")
    with torch.no_grad():
        same(lowered(X, scale=scale), body(X, scale=scale))
    with pytest.raises(DelegateKitError, match="inputs of structure"):
        lowered(X)


def test_a_lowered_module_is_a_program_of_its_own(body: Body, tmp_path: Path) -> None:
    lowered = delegatekit.to_backend(body, (X,), backend="xnnpack")
    lowered.save(tmp_path / "body.pte")
    with torch.no_grad():
        same(delegatekit.load(tmp_path / "body.pte")["forward"](X), body(X))


@pytest.mark.parametrize("backends", [[], ["xnnpack"]], ids=["runtime", "xnnpack"])
def test_a_lowered_module_can_be_part_of_another(body: Body, backends: list[str]) -> None:
    lowered = delegatekit.to_backend(body, (X,), backend="xnnpack")
    outer = Around(lowered).eval()
    with torch.no_grad():
        want = Around(body).eval()(X)
        same(outer(X), want)
    exported = torch.export.export(outer, (X,), strict=False)
    buffer = delegatekit.lower(exported, backends=backends).buffer
    same(StockProgram(buffer).method()((X,)), want)
    same(delegatekit.load(buffer)["forward"](X), want)
    file = read(buffer)
    (plan,) = file.program.execution_plan or ()
    inner = [delegate.processed for delegate in (plan.delegates or ())][:2]
    assert inner[0] == inner[1]  # called twice, stored once
    found = delegatekit.inspect(buffer).methods[0].delegates[0]
    assert found.distribution == "delegatekit-xnnpack"


def test_a_lowered_module_keeps_its_changing_sizes(body: Body) -> None:
    sizes = {"x": {0: Dim("n", min=1, max=6)}}
    lowered = delegatekit.to_backend(body, (X,), backend="xnnpack", dynamic_shapes=sizes)
    exported = torch.export.export(
        Around(lowered).eval(), (X,), dynamic_shapes={"x": {0: Dim("n", min=1, max=6)}}, strict=False
    )
    buffer = delegatekit.lower(exported, backends=["xnnpack"]).buffer
    stock, engine = StockProgram(buffer).method(), delegatekit.load(buffer)["forward"]
    for rows in (3, 6, 1):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            want = Around(body).eval()(x)
            same(lowered(x), body(x))
        same(stock((x,)), want)
        same(engine(x), want)


def test_lowered_modules_of_two_backends_in_one_program(body: Body, demo: str) -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x * y + x

    class Both(nn.Module):
        def __init__(self, first: nn.Module, second: nn.Module) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(self.second(self.first(x)["out"], x))

    one = delegatekit.to_backend(body, (X,), backend="xnnpack")
    two = delegatekit.to_backend(Sum(), (X, X.clone()), backend=demo)
    with torch.no_grad():
        want = Both(body, Sum())(X)
        same(Both(one, two)(X), want)
    exported = torch.export.export(Both(one, two).eval(), (X,), strict=False)
    program = delegatekit.lower(exported, backends=["xnnpack"])
    assert [delegate.backend for delegate in delegatekit.report(program).methods[0].delegates] == [
        "xnnpack",
        "demo",
        "xnnpack",
    ]
    same(delegatekit.load(program.buffer)["forward"](X), want)
    rows = delegatekit.explain(exported, backends=[]).rows
    assert [row.backend for row in rows if "call_delegate" in row.operator] == ["xnnpack", "demo"]


@pytest.mark.parametrize("first", ["xnnpack", "demo"])
def test_backends_take_what_they_can_in_the_order_of_priority(demo: str, first: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.atan(self.linear(x) * x + x) + x

    module = Model().eval()
    backends = ["xnnpack", "demo"] if first == "xnnpack" else ["demo", "xnnpack"]
    program = delegatekit.lower(module, (X,), backends=backends, skip={"xnnpack": ["aten.add.Tensor"]})
    taken = {delegate.backend for delegate in delegatekit.report(program).methods[0].delegates}
    assert taken == {"xnnpack", "demo"}
    with torch.no_grad():
        same(delegatekit.load(program.buffer)["forward"](X), module(X))


def test_priority_decides_where_both_could(demo: str) -> None:
    """Both backends take sums and products, but XNNPACK no more than 6 axes, and the example nothing else."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = (self.linear(x) * x + x).view(1, 1, 1, 1, 1, 3, 8)
            return torch.cumsum(wide * wide, -1).view(3, 8) * x

    module = Model().eval()
    with torch.no_grad():
        want = module(X)
    expected = {"xnnpack": {"xnnpack": 4, "demo": 1}, "demo": {"demo": 4, "xnnpack": 1}}
    for first, second in (("xnnpack", "demo"), ("demo", "xnnpack")):
        rows = delegatekit.explain(module, (X,), backends=[first, second]).rows
        took = [row.backend for row in rows if row.operator.split(".")[1] in ("linear", "mul", "add")]
        assert {name: took.count(name) for name in (first, second)} == expected[first]
        program = delegatekit.lower(module, (X,), backends=[first, second])
        same(delegatekit.load(program.buffer)["forward"](X), want)


class Shrink(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x.sin(), 0)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.sum(0))
        return self.seen * 2


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin(), self.weight


class Identity(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            Shrink(),
            r"(?s)leaves 1 operator: aten\.cumsum\.default .*test_flows\.py.*not in the backend's operator table",
        ),
        (Counting(), "updates buffers: seen"),
        (Constant(), "returns weight, which the delegate does not compute"),
        (Identity(), "computes nothing"),
        (Branches(), r"leaves \d operators?: .*cond.* control flow is the runtime's"),
    ],
)
def test_what_is_not_one_delegate_is_refused_with_the_reason(module: nn.Module, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        delegatekit.to_backend(module, (X,), backend="xnnpack")


def test_another_process_must_make_the_module_itself(body: Body, tmp_path: Path) -> None:
    outer = Around(delegatekit.to_backend(body, (X,), backend="xnnpack")).eval()
    torch.export.save(torch.export.export(outer, (X,), strict=False), tmp_path / "outer.pt2")
    code = (
        "import torch, delegatekit, delegatekit.edge.precompiled\n"
        f"program = torch.export.load({str(tmp_path / 'outer.pt2')!r})\n"
        "delegatekit.lower(program, backends=['xnnpack'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode and "is not known in this process" in done.stderr and "to_backend" in done.stderr
    with pytest.raises(LoweringError, match="not known"):
        torch.ops.delegatekit.call_delegate([X], "nobody")
