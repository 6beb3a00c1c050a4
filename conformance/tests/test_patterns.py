"""Patterns: all can be exported, agree with eager and have snippets that run; the accuracy follows from the graph."""

from __future__ import annotations

import builtins
import dis
from types import CodeType
from typing import Any

import pytest
import torch
from torch import nn

from delegatekit_conformance.cases.patterns import pattern
from delegatekit_conformance.cases.subjects import Built, Register, SubjectCase
from delegatekit_conformance.context import Context
from delegatekit_conformance.outcome import Verdict
from delegatekit_toolkit.accuracy import estimate

CONTEXT = Context("reference")
QUICK = ("conv-bn-relu", "sdpa-bool-mask", "square-of-a-transpose", "element-of-a-constant", "nested-outputs", "clamps")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in pattern.cases])
def test_patterns_agree_with_eager(name: str) -> None:
    case = pattern.cases[name]
    outcome = case.run(case.describe(), CONTEXT)
    assert outcome.verdict in (Verdict.DELEGATED, Verdict.PARTLY, Verdict.FALLBACK), outcome
    assert not outcome.core
    if outcome.delegates:
        assert outcome.latency is not None and outcome.latency > 0
        assert outcome.eager_latency is not None and outcome.eager_latency > 0


@pytest.mark.parametrize("name", pattern.cases)
def test_every_builder_says_what_it_is_about(name: str) -> None:
    case = pattern.cases[name]
    assert case.build.__doc__ and len(case.describe()) >= 15
    assert case.examples(CONTEXT) == (case.describe(),)


def global_names(code: CodeType) -> set[str]:
    """The names that a function, and those inside of it, look up outside of themselves."""
    inner = (item for item in code.co_consts if isinstance(item, CodeType))
    found = {item.argval for item in dis.get_instructions(code) if item.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*map(global_names, inner)) - {"__name__"} - vars(builtins).keys()


@pytest.mark.parametrize("name", pattern.cases)
def test_a_builder_uses_nothing_that_its_snippet_lacks(name: str) -> None:
    build: Any = pattern.cases[name].build
    assert global_names(build.__code__) <= {"torch", "nn", "Any"}


@pytest.mark.parametrize("name", ["conv-bn-relu", "nested-outputs", "kernels-of-every-kind"])
def test_snippets_run_without_the_suite(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = pattern.cases[name].snippet("", CONTEXT)
    assert "conformance" not in code and "@" not in code
    exec(compile(code, "snippet", "exec"), {})
    assert "output 0: largest error " in capsys.readouterr().out


def test_names_are_unique() -> None:
    register = Register("room")

    def build() -> Built:
        return nn.ReLU(), [(torch.randn(2),)]

    register("one")(build)
    with pytest.raises(ValueError, match="room/one"):
        register("one")(build)


def test_a_builder_that_fails_is_not_exportable() -> None:
    def build() -> Built:
        raise RuntimeError("no such layer")

    outcome = SubjectCase("patterns/none", build).run("none", CONTEXT)
    assert outcome.verdict is Verdict.NOT_EXPORTABLE
    assert "no such layer" in outcome.detail


def test_a_wrong_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """GELU by tanh instead of the exact one, 5e-4 apart, is no rounding error."""
    from delegatekit_conformance import trial

    case = pattern.cases["linear-gelu"]
    lower = trial.delegatekit.lower

    def other(exported: torch.export.ExportedProgram, **settings: object) -> object:
        for node in exported.graph.nodes:
            if node.target is torch.ops.aten.gelu.default:
                node.kwargs = {"approximate": "tanh"}
        return lower(exported, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(trial.delegatekit, "lower", other)
    outcome = case.run("", CONTEXT)
    assert outcome.verdict is Verdict.MISMATCH
    assert "def linear_gelu" in outcome.snippet


def exported(module: nn.Module, *inputs: torch.Tensor, **more: object) -> torch.export.ExportedProgram:
    return torch.export.export(module.eval(), inputs, strict=False, **more)  # type: ignore[arg-type]


def roundings(module: nn.Module, *inputs: torch.Tensor) -> int:
    return estimate(exported(module, *inputs)).reduction_length


def test_the_estimate_adds_up_sums_on_the_longest_way() -> None:
    x = torch.randn(2, 8)
    assert roundings(nn.ReLU(), x) == 1
    assert roundings(nn.Linear(8, 4), x) == 8
    assert roundings(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)), x) == 8 + 4
    image = torch.randn(1, 4, 6, 6)
    assert roundings(nn.Conv2d(4, 6, 3), image) == 36
    assert roundings(nn.Conv2d(4, 4, 3, groups=4), image) == 9
    assert roundings(nn.ConvTranspose2d(4, 6, 2), image) == 4 * 4
    assert roundings(nn.AdaptiveAvgPool2d(1), image) == 36

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.long, self.short = nn.Linear(8, 8), nn.Tanh()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.long(self.long(x)), self.short(x)])

    assert roundings(Branches(), x) == 16


def test_the_estimate_takes_the_largest_of_sizes_that_change() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum(0)

    rows = torch.export.Dim("rows", min=1, max=50)
    program = exported(Model(), torch.randn(3, 4), dynamic_shapes=({0: rows},))
    assert estimate(program).reduction_length == 50
    assert estimate(program, calls=3).reduction_length == 150
