"""The shares of backends and runtime, the largest that is left out, and the least that backends must run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils.flop_counter import FlopCounterMode

import delegatekit
from delegatekit.lowering import Share
from delegatekit_api import LoweringError

PLUGIN = """
from delegatekit_api import *

class Takes:
    def keep_operators(self): return ()
    def check(self, call):
        return Verdict.yes() if call.operator in {operators} else Verdict.no(f"{{call.operator}} is not in the table")
    def propose(self, program): return None

@hookimpl
def describe_backend():
    return BackendDescription(
        "{name}", "{name}Backend", "delegatekit-{name}", "1", "for tests", supports_dynamic_shapes=True
    )

@hookimpl
def create_partitioner(options): return Takes()

@hookimpl
def preprocess(partition, options): return PreprocessResult(b"{name}")
"""


@pytest.fixture(autouse=True)
def plugins(install_plugin: Any) -> None:
    for name, operators in (
        ("wide", ("convolution", "linear", "relu", "mm", "bmm", "addmm")),
        ("narrow", ("linear",)),
        ("none", ()),
    ):
        source = PLUGIN.format(name=name, operators=tuple(f"aten.{item}.default" for item in operators))
        install_plugin(name, source)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.look, self.say = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.say(torch.atan(torch.relu(self.look(x))).mean((2, 3)))


IMAGE = torch.ones(1, 3, 12, 12)
LOOK, SAY = 10 * 10 * 8 * 27, 8 * 4


def lower(*backends: str, model: Any = None, inputs: Any = (IMAGE,), **more: Any) -> delegatekit.LoweredProgram:
    return delegatekit.lower((model or Net()).eval(), inputs, backends=backends, **more)


def test_each_runner_has_its_operators_and_multiply_accumulates() -> None:
    shares = lower("narrow", "wide").shares
    assert shares.backends == {"narrow": Share(1, SAY), "wide": Share(2, LOOK)}
    assert shares.runtime == Share(2, 0)
    assert (shares.delegated, shares.total) == (Share(3, LOOK + SAY), Share(5, LOOK + SAY))
    assert str(shares) == (
        "narrow runs 1 of 5 operators (20.0 %) and 0.1 % of 21,632 MACs; wide runs 2 (40.0 %) and 99.8 %; "
        "the runtime runs 2 (40.0 %) and 0.0 %"
    )


def test_a_program_is_as_heavy_as_pytorch_counts_it() -> None:
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ConvTranspose1d(4, 4, 2, stride=2), nn.ReLU(), nn.Linear(12, 3)).eval()
    x = torch.ones(2, 2, 8)

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = self.model(x)
            scores = torch.einsum("bij,bkj->bik", found, found)
            return nn.functional.scaled_dot_product_attention(scores, scores, found)

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        Whole()(x)
    assert 2 * lower("none", model=Whole(), inputs=(x,)).shares.total.macs == counter.get_total_flops()


def test_the_largest_left_out_come_first_with_module_or_line_and_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = lower("narrow", "none").shares.largest
    assert (first.operator, first.count, first.macs, first.place) == ("aten.convolution.default", 1, LOOK, "look")
    assert first.reasons == dict.fromkeys(("narrow", "none"), "aten.convolution.default is not in the table")
    # Without multiply-accumulates, those with the most elements.
    assert [second.operator, third.operator] == ["aten.relu.default", "aten.atan.default"]
    assert (second.elements, third.elements) == (800, 800)
    assert "test_shares.py" in second.place and "torch.relu" in second.place
    # As text, from the folder that one works in.
    monkeypatch.chdir(Path(__file__).parent)
    assert str(second).startswith("aten.relu.default x1 in test_shares.py:")
    assert str(first) == (
        "aten.convolution.default x1, 21,600 MACs in look: narrow: aten.convolution.default is not in the table; "
        "none: aten.convolution.default is not in the table"
    )


def test_operators_with_the_same_reasons_are_one_thing() -> None:
    shares = lower("none", model=nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.ReLU()), inputs=(torch.ones(2, 8),))
    first = shares.shares.largest[0]
    assert (first.operator, first.count, first.macs) == ("aten.linear.default", 2, 256)


def test_a_program_of_which_nothing_is_delegated_says_so_first() -> None:
    shares = lower("none").shares
    assert shares.is_idle and str(shares).startswith("nothing is delegated: the runtime runs 5 of 5 operators")
    assert not lower("wide").shares.is_idle
    assert not lower("none", model=nn.Identity()).shares.is_idle


def test_less_than_all_is_never_shown_as_all() -> None:
    layers = [nn.Linear(64, 64) for _ in range(40)]
    shares = lower("wide", model=nn.Sequential(nn.Tanh(), *layers), inputs=(torch.ones(1, 64),))
    assert "(97.5 %)" in str(shares.shares)
    many = delegatekit.lowering.Shares({"wide": Share(99_999, 0)}, Share(1, 0))
    assert "(99.9 %)" in str(many) and "MACs" not in str(many)


def test_sizes_that_change_count_at_their_bounds_and_it_is_said() -> None:
    rows = {"x": {0: Dim("rows", max=16)}}
    model = nn.Linear(5, 7)

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    shares = lower("wide", model=Named(), inputs=(torch.ones(3, 5),), dynamic_shapes=rows).shares
    assert shares.total.macs == 16 * 35 and shares.changing
    assert str(shares).endswith("560 MACs (sizes that change count at their upper bounds)")


def test_a_module_that_was_lowered_before_counts_with_what_is_inside() -> None:
    inner = delegatekit.to_backend(
        nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), (torch.ones(2, 8),), backend="wide"
    )

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.atan(self.inner(x))

    shares = lower("none", model=Outer(), inputs=(torch.ones(2, 8),)).shares
    assert shares.backends == {"none": Share(), "wide": Share(2, 128)} and shares.runtime == Share(1, 0)


def test_graphs_of_control_flow_count_once() -> None:
    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, self.one, self.two, (x,))

    shares = lower("wide", model=Choice(), inputs=(torch.ones(2, 8),)).shares
    assert shares.backends["wide"] == Share(3, 256)
    assert {item.operator for item in shares.left_out} >= {"aten.sum.dim_IntList", "aten.gt.Scalar"}


@pytest.mark.parametrize("least", ["60%", 0.6, {"operators": "60 %"}, {"macs": "99%", "operators": 0.5}, "0", None])
def test_enough_is_enough(least: Any) -> None:
    assert lower("wide", min_delegated=least).shares.delegated.operators == 3
    assert lower("wide", min_delegated=least).buffer == lower("wide").buffer


def test_less_than_the_least_is_refused_with_what_is_left_out_before_anything_is_compiled(install_plugin: Any) -> None:
    source = PLUGIN.format(name="slow", operators=("aten.linear.default",)).replace(
        'return PreprocessResult(b"slow")', "raise AssertionError('it was compiled')"
    )
    install_plugin("slow", source)
    with pytest.raises(LoweringError, match=r"20\.0 % of the operators are delegated") as caught:
        lower("slow", min_delegated={"operators": "95%", "macs": "95%"})
    told = str(caught.value)
    assert "20.0 % of the operators are delegated (1 of 5), 95 % must be; 0.1 % of the MACs are delegated" in told
    assert "left out: aten.convolution.default x1, 21,600 MACs in look: slow: aten.convolution.default is not" in told
    assert told.count("left out:") == 3


@pytest.mark.parametrize("wrong", ["much", "101%", -0.1, 95, {"flops": "95%"}, "", float("nan"), "1/0"])
def test_what_is_no_share_is_refused_before_any_work(wrong: Any) -> None:
    with pytest.raises(LoweringError, match="is no share of a program"):
        lower("wide", model=nn.Linear(2, 2), inputs=None, min_delegated=wrong)
