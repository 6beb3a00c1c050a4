"""Placement by measurement on installed backends, with times that the tests give: no test depends on the machine's."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from referee import same
from torch import nn

import delegatekit
from delegatekit import LoweredProgram, Measurements
from delegatekit.plugins import PluginWarning
from delegatekit_api import DelegateKitError, FormatError, LoweringError
from delegatekit_api.nodes import operator_name
from delegatekit_tools.placement import measuring as auto
from delegatekit_tools.placement.clock import EngineMeasurer, Timed

BACKENDS = ["xnnpack", "reference"]


class Net(nn.Module):
    """Two backends take parts of it, and only one takes cumsum."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
        self.say = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.say(self.look(x).mean((2, 3))).cumsum(1).tanh()


MODEL, X = Net().eval(), (torch.randn(1, 3, 8, 8),)

#: Seconds of an operator on each backend; of any other, and of a border.
SLOW = {("reference", "aten.convolution.default"): 30.0, ("reference", "aten.conv2d.default"): 30.0}
SLOW |= {
    ("xnnpack", "aten.linear.default"): 20.0,
    ("xnnpack", "aten.mean.dim"): 20.0,
    ("", "aten.cumsum.default"): 40.0,
}
SLOW |= {("", "aten.convolution.default"): 35.0, ("", "aten.tanh.default"): 9.0}
BORDER = 0.5


class FakeMeasurer:
    """Measures by a table: seconds of operators on each backend, and a border for each delegate."""

    slow = SLOW
    border = BORDER

    def instructions(self, program: LoweredProgram, method: str) -> Timed:
        return Timed(tuple(self.seconds(program, method)))

    def seconds(self, program: LoweredProgram, method: str) -> Sequence[float]:
        lowered = program.methods[method]
        names = {node.meta["debug_handle"]: operator_name(node) for node in lowered.plan.fallback}
        return [
            self.delegate(lowered.delegates[int(item["calls"].split()[1])])
            if item["calls"].startswith("delegate")
            else sum(self.slow.get(("", names[handle]), 1.0) for handle in item["handles"] if handle in names)
            for item in program.debug_map()[method]["instructions"]
        ]

    def delegate(self, delegate: Any) -> float:
        backend = delegate.partition.backend
        return self.border + sum(
            self.slow.get((backend, operator_name(node)), 1.0) for node in delegate.partition.nodes
        )

    def wholes(self, programs: Sequence[LoweredProgram]) -> Sequence[Timed]:
        return [Timed((sum(self.seconds(program, "forward")),) * 3, rounds=True) for program in programs]

    def again(self, programs: Sequence[LoweredProgram]) -> Sequence[Timed]:
        return self.wholes(programs)


@contextmanager
def fake(*given: Any, **settings: Any) -> Iterator[Any]:
    yield FakeMeasurer(), {"runtime": "a table"}


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "measurer_of", fake)


@pytest.fixture(scope="module")
def found() -> Measurements:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "measurer_of", fake)
        return delegatekit.tune(MODEL, X, backends=BACKENDS)


def placed(model: Any, inputs: Any = X, **given: Any) -> LoweredProgram:
    """A model lowered by the measurements."""
    return delegatekit.lower(model, inputs, **delegatekit.placement(model, inputs, **given))


def takers(program: LoweredProgram) -> dict[str, str]:
    """Operator -> its backend, "" for the runtime."""
    plan = program.methods["forward"].plan
    nodes = [node for step in plan.partitions for node in step.nodes]
    return {operator_name(node): plan.taker.get(node, "") for node in (*nodes, *plan.fallback)}


def test_each_operator_goes_where_it_is_quicker(found: Measurements) -> None:
    (tuned,) = found.programs.values()
    assert tuned.chosen.placement is not None
    program = placed(MODEL, measurements=found)
    who = takers(program)
    assert who["aten.convolution.default"] == who["aten.relu.default"] == "xnnpack"
    assert who["aten.cumsum.default"] == who["aten.tanh.default"] == who["aten.linear.default"] == "reference"
    same(delegatekit.load(program.buffer)["forward"](*X), MODEL(*X))
    best_alone = min(item.seconds for item in tuned.candidates if item.placement is None)
    assert tuned.chosen.seconds < best_alone


def test_a_file_of_measurements_gives_the_same_bytes_each_time(found: Measurements, tmp_path: Path) -> None:
    found.save(tmp_path / "m.json")
    first = placed(MODEL, measurements=tmp_path / "m.json").buffer
    again = torch.export.export(MODEL, X, strict=False)
    assert placed(again, None, measurements=str(tmp_path / "m.json")).buffer == first
    assert placed(MODEL, backends=BACKENDS, measurements=found).buffer == first


def test_other_weights_have_the_same_measurements(found: Measurements) -> None:
    again = placed(Net().eval(), (torch.randn(1, 3, 8, 8),), measurements=found)
    assert takers(again)["aten.linear.default"] == "reference"


def test_tuning_twice_measures_the_same(found: Measurements) -> None:
    assert delegatekit.tune(MODEL, X, backends=BACKENDS) == found


def test_a_backend_that_is_best_everywhere_is_taken_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeMeasurer, "border", 5.0)
    monkeypatch.setattr(FakeMeasurer, "slow", {})
    found = delegatekit.tune(MODEL, X, backends=BACKENDS)
    (tuned,) = found.programs.values()
    assert tuned.chosen.placement is None
    program = placed(MODEL, measurements=found)
    assert program.buffer == delegatekit.lower(MODEL, X, backends=tuned.chosen.backends).buffer


def test_what_is_measured_is_told_and_a_backend_that_takes_nothing_is_not_lowered_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    lowered: list[int] = []
    real = delegatekit.lower

    def counted(*given: Any, **more: Any) -> Any:
        lowered.append(1)
        return real(*given, **more)

    monkeypatch.setattr(sys.modules["delegatekit_tools.placement.tune"], "lower", counted)
    expected = delegatekit.tune(MODEL, X, backends=BACKENDS, say=told.append)
    assert (
        "timing each operator on xnnpack (1 of 2)" in told and "timing operators joined on reference (2 of 2)" in told
    )
    assert any(line.startswith("lowering ") for line in told)
    without, told[:], lowered[:] = len(lowered), [], []
    found = delegatekit.tune(MODEL, X, backends=[*BACKENDS, "ethosu"], say=told.append)
    assert not any("ethosu" in line for line in told)
    # Its form of the program, it alone, and all in the given order; nothing for its operators, since it takes none.
    assert len(lowered) - without <= 3
    ((digest, tuned),) = found.programs.items()
    assert tuned.chosen.placement == expected.programs[digest].chosen.placement


def test_the_backends_that_auto_means_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(auto, "backends", lambda *, check: BACKENDS)
    delegatekit.tune(MODEL, X, say=told.append)
    assert told[0] == "tuning on all that run here: xnnpack, reference; it is quicker on fewer (-b auto,NAME,NAME)"


def test_a_backend_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = delegatekit.lower

    def fails(*given: Any, backends: Any, **more: Any) -> Any:
        program = real(*given, backends=backends, **more)
        if any(item.partition.backend == "reference" for item in program.methods["forward"].delegates):
            raise LoweringError("out of luck")
        return program

    monkeypatch.setattr(sys.modules["delegatekit_tools.placement.tune"], "lower", fails)
    (tuned,) = delegatekit.tune(MODEL, X, backends=BACKENDS).programs.values()
    assert tuned.left_out["reference"] == "out of luck"
    assert all(item.backends in ((), ("xnnpack",)) for item in tuned.candidates)
    assert {"xnnpack alone", "runtime alone"} <= {item.name for item in tuned.candidates}


def test_quantized_operators_are_placed_with_their_conversions() -> None:
    module = delegatekit.quantize(MODEL, [X], backend="xnnpack", progress=False)
    (tuned,) = delegatekit.tune(module, X, backends=["xnnpack"]).programs.values()
    layer = next(unit for unit in tuned.units.values() if "aten.convolution" in unit.signature)
    assert "dequantize" in layer.signature and "quantize_per_tensor" in layer.signature and "xnnpack" in layer.seconds


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (nn.Linear(3, 3).eval(), {}, "of other programs"),
        (MODEL, {"options": {"xnnpack": {"per_operator_partitions": True}}}, "xnnpack was measured with other options"),
        (MODEL, {"backends": ["vulkan"]}, "vulkan was not measured, only xnnpack, reference"),
    ],
)
def test_what_does_not_fit_the_measurements_is_refused(
    found: Measurements, model: nn.Module, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(DelegateKitError, match=message):
        delegatekit.placement(model, X if model is MODEL else (torch.ones(1, 3),), measurements=found, **given)


@pytest.mark.parametrize("names", [["auto"], ["auto", "xnnpack"]])
def test_auto_is_a_word_of_the_command_line_alone(names: Any) -> None:
    message = r"(?s)'auto' is .* of the command line.*\n.*name the backends here.*placement"
    with pytest.raises(DelegateKitError, match=message):
        delegatekit.lower(MODEL, X, backends=names)
    with pytest.raises(DelegateKitError, match=message):
        delegatekit.explain(MODEL, X, backends=names)
    with pytest.raises(DelegateKitError, match=message):
        delegatekit.to_backend(MODEL, X, backend="auto")
    with pytest.raises(DelegateKitError, match=message):
        delegatekit.sweep(MODEL, X, backends=["auto"])


def test_other_versions_are_refused_and_other_machines_warned_of(found: Measurements) -> None:
    ((digest, tuned),) = found.programs.items()
    older = replace(tuned, versions={**tuned.versions, "xnnpack": "delegatekit-xnnpack 0.0.1"})
    with pytest.raises(FormatError, match=r"were made with delegatekit-xnnpack 0.0.1, here is"):
        placed(MODEL, measurements=replace(found, programs={digest: older}))
    elsewhere = replace(found, machine={**found.machine, "processor": "abacus"})
    with pytest.warns(PluginWarning, match=r"another machine \(processor abacus"):
        placed(MODEL, measurements=elsewhere)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clock": "sun"}, "clock='sun'"),
        ({"runs": 0}, "runs=0"),
        ({"backends": ["nobody"]}, "nobody"),
        ({"options": {"coreml": {}}}, "options for coreml"),
        ({"backends": ["qnn"], "clock": "CPU"}, "CPU time this process does not see"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DelegateKitError, match=message):
        delegatekit.tune(MODEL, X, **{"backends": BACKENDS, **given})


def test_a_placement_of_ones_own(found: Measurements) -> None:
    names = {
        node.name: "reference" if "conv" in node.name else ""
        for node in delegatekit.lower(MODEL, X, backends=BACKENDS, keep=["xnnpack"]).methods["forward"].edge.graph.nodes
        if node.op == "call_function"
    }
    program = delegatekit.lower(MODEL, X, backends=BACKENDS, keep=["xnnpack"], partition={"forward": names})
    assert {name for name, who in takers(program).items() if who} == {"aten.convolution.default"}
    for partition, message in (
        ({"forward": {"convolution": "vulkan"}}, "places convolution of forward on 'vulkan'"),
        ({"forward": {"nobody": "xnnpack"}}, "places nobody, which is no operator of method forward"),
        ({"other": {"convolution": "xnnpack"}}, "no operator of method other"),
    ):
        with pytest.raises(LoweringError, match=message):
            delegatekit.lower(MODEL, X, backends=BACKENDS, keep=["xnnpack"], partition=partition)
    with pytest.raises(LoweringError, match=r"keep names 'aten.sin.default'"):
        delegatekit.lower(MODEL, X, backends=BACKENDS, keep=["aten.sin.default"])


def test_the_engine_measures() -> None:
    program = delegatekit.lower(MODEL, X, backends=["xnnpack"])
    for cpu in (True, False):
        measurer = EngineMeasurer({"forward": (X, {})}, runs=3, warm_up=1, cpu=cpu, reason="a stand-in")
        found = measurer.instructions(program, "forward")
        assert len(found.seconds) == len(program.debug_map()["forward"]["instructions"]) and min(found.seconds) >= 0
        assert sum(found.seconds) > 0 and found.estimate == "a stand-in"
        assert all(item.rounds and len(item.seconds) >= 3 for item in measurer.wholes([program, program]))
