"""Estimates of backends: from `preprocess` into the file, shown by `inspect` and reports, checked against budgets."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch
from torch import nn

import delegatekit
from delegatekit import cli, pte
from delegatekit.cli.console import UsageError
from delegatekit.lowering.budget import parse_limit
from delegatekit.pte import PteImage, schema, to_bytes
from delegatekit.pte.estimates import ESTIMATES_KEY, Estimates
from delegatekit_api import LoweringError, NamedData, PluginError
from delegatekit_api.devices import Estimate, LayerEstimate

#: XNNPACK under another name, with estimates: sums take 3 ms, everything else 1 ms.
ESTIMATING = """
import dataclasses
from delegatekit_api import *
from delegatekit_api.devices import *
from delegatekit_api.nodes import operator_name
from delegatekit_xnnpack import plugin as xnnpack
from delegatekit_xnnpack.plugin import create_partitioner, create_runtime

@hookimpl
def describe_backend():
    return dataclasses.replace(xnnpack.describe_backend(), name="NAME", distribution="delegatekit-NAME",
        version="1.2", api_version=ApiVersion(2, 0))

@hookimpl
def preprocess(partition, options):
    nodes = [node for node in partition.view.graph.nodes if node.op == "call_function"]
    layers = tuple(
        LayerEstimate(node.name, operator_name(node), 3e-3 if "add" in node.name else 1e-3, 1000, 5, 0.25, {"sram": 2})
        for node in nodes
    )
    estimate = Estimate("a model of costs", latency=sum(layer.latency for layer in layers), cycles=1000,
        memory={"sram": 1024 * len(nodes)}, storage={"flash": 1000}, layers=layers)
    return dataclasses.replace(xnnpack.preprocess(partition, options), estimate=ESTIMATE)

@hookimpl
def targets():
    return [TargetInfo("small", "the small one", {"weights": "float16"}), TargetInfo("large", "the large one")]
"""


def plugin(name: str = "guess", estimate: str = "estimate") -> str:
    return ESTIMATING.replace("NAME", name).replace("ESTIMATE", estimate)


X = torch.randn(2, 4)


class Split(nn.Module):
    """Two delegates, with an operator between them that the test keeps on the runtime."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid((x + x) * x).tanh() + x


@pytest.fixture
def estimating(install_plugin: Any) -> None:
    pytest.importorskip("delegatekit_xnnpack")
    install_plugin("guess", plugin())


def lower(**more: Any) -> Any:
    return delegatekit.lower(Split(), (X,), backends=["guess"], skip=["tanh"], **more)


def test_estimates_reach_the_file_the_report_and_the_inspection(estimating: None) -> None:
    program = lower()
    found = delegatekit.inspect(program.buffer).methods[0].delegates
    assert [item.estimate for item in found] == [
        item.estimate for item in delegatekit.report(program).methods[0].delegates
    ]
    first, second = (item.estimate for item in found)
    assert first is not None and second is not None
    assert first.latency == pytest.approx(5e-3)
    assert [layer.operator for layer in first.layers] == ["aten.add.Tensor", "aten.mul.Tensor", "aten.sigmoid.default"]
    assert second.memory == {"sram": 1024}
    for text in (str(delegatekit.report(program)), str(delegatekit.inspect(program.buffer))):
        assert "estimated 5.00 ms, 1,000 cycles, sram 3.0 KiB, flash 1000 B (a model of costs)" in text


def test_files_with_estimates_run_in_both_engines(estimating: None) -> None:
    stock = pytest.importorskip("executorch.extension.pybindings._C")
    buffer = lower().buffer
    want = Split()(X)
    torch.testing.assert_close(delegatekit.load(buffer)["forward"](X), want)
    program = stock._load_program_from_buffer(buffer)
    torch.testing.assert_close(program.load_method("forward")((X,))[0], want)


def test_a_profile_shows_beside_what_was_measured_what_the_device_is_expected_to_take(estimating: None) -> None:
    program = lower()
    profile = delegatekit.profile(delegatekit.load(program.buffer)["forward"], (torch.ones(2, 4),), runs=2)
    expected = [item.estimate for item in profile.instructions if item.estimate is not None]
    assert expected == [item.estimate for item in delegatekit.report(program).methods[0].delegates]
    text = str(profile)
    assert text.count("is expected to take") == len(expected) and "on the device, 0: delegate 0" in text
    records = [record["expected_on_device"] for record in profile.records() if not record["operator"]]
    assert [found for found in records if found is not None] == [item.latency for item in expected]


def test_a_file_without_estimates_has_no_data_for_them(install_plugin: Any) -> None:
    pytest.importorskip("delegatekit_xnnpack")
    install_plugin("guess", plugin(estimate="None"))
    program = lower()
    assert ESTIMATES_KEY not in pte.read(program.buffer).named_data
    assert all(item.estimate is None for item in delegatekit.inspect(program.buffer).methods[0].delegates)
    with pytest.raises(LoweringError, match=r"no estimate of 'sram' for a delegate of backend guess in method forward"):
        lower(budget={"sram": 1 << 30})


def test_what_is_no_estimate_is_refused(install_plugin: Any) -> None:
    pytest.importorskip("delegatekit_xnnpack")
    install_plugin("guess", plugin(estimate="{}"))
    with pytest.raises(PluginError, match=r"partition 0 .*: result.estimate is {}, not an Estimate"):
        lower()


def test_budgets_add_up_latency_and_storage_and_take_the_largest_memory(estimating: None) -> None:
    lower(budget={"latency": 8e-3, "sram": 3072, "flash": 2000})
    lower(budget={"latency": "8ms", "sram": "3KB", "flash": "2000"})
    with pytest.raises(LoweringError) as caught:
        lower(budget={"latency": "7.9ms", "sram": "3071B", "flash": "1999B"})
    assert caught.value.what == (
        "latency is 8.00 ms, 7.90 ms are allowed; sram is 3.0 KiB (3,072 bytes), 3.0 KiB (3,071 bytes) are allowed; "
        "flash is 2.0 KiB (2,000 bytes), 2.0 KiB (1,999 bytes) are allowed"
    )
    assert "a model of costs" in str(caught.value)
    with pytest.raises(LoweringError, match=r"no estimate of 'dram'.*\n.*estimates of flash, latency, sram"):
        lower(budget={"dram": 1})
    with pytest.raises(LoweringError, match="for the program: it has no delegate"):
        delegatekit.lower(Split(), (X,), backends=["guess"], skip=["add", "mul", "sigmoid", "tanh"], budget={"sram": 1})


def test_the_slowest_of_several_methods_counts(estimating: None) -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    methods = {"a": torch.export.export(Sum(), (X,)), "b": torch.export.export(Sum(), (X,))}
    delegatekit.lower(methods, backends=["guess"], budget={"latency": 3e-3, "flash": 2000})
    with pytest.raises(LoweringError, match=r"latency is 3.00 ms, 2.00 ms are allowed"):
        delegatekit.lower(methods, backends=["guess"], budget={"latency": "2000us"})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("sram", "512KB", 512 << 10),
        ("sram", "1.5 MiB", 3 << 19),
        ("flash", "2gb", 2 << 30),
        ("sram", 100, 100),
        ("latency", "20ms", 0.02),
        ("latency", "1e3us", 1e-3),
        ("latency", 0.5, 0.5),
    ],
)
def test_limits_have_units(name: str, text: Any, value: float) -> None:
    assert parse_limit(name, text) == pytest.approx(value)


@pytest.mark.parametrize(("name", "text"), [("sram", "5ms"), ("latency", "5KB"), ("sram", "much"), ("sram", "1.2.3")])
def test_other_limits_are_refused(name: str, text: str) -> None:
    with pytest.raises(LoweringError, match=f"budget: {name} = '{text}' is not a limit"):
        parse_limit(name, text)


LAYERS = tuple(LayerEstimate(f"layer{i}", "Conv", 1e-3 * (i % 15), 10 * i, 7, 0.5, {"sram": 1}) for i in range(20))
ESTIMATE = Estimate("somebody", 0.2, 2000, 140, {"sram": 1 << 20}, {"flash": 5}, LAYERS)


def image(stored: bytes) -> bytes:
    values = [handmade.tensor([2, 5], 0), handmade.tensor([2, 5], 64)]
    place = schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, 0)
    delegates = [schema.BackendDelegate("Test", place, [])]
    plan = handmade.plan(values, [0], [1], [schema.DelegateCall(0, [0, 1])], delegates=delegates)
    return to_bytes(PteImage((plan,), delegate_blobs=(b"blob",), named_data=(NamedData(ESTIMATES_KEY, stored),)))


def test_the_text_shows_the_longest_layers_or_all() -> None:
    found = delegatekit.inspect(image(Estimates({"forward": [ESTIMATE]}).to_json()))
    assert found.methods[0].delegates[0].estimate == ESTIMATE
    text = str(found)
    assert "estimated 200.00 ms, 2,000 cycles, sram 1.0 MiB, flash 5 B (somebody)" in text
    assert [f"layer{i}" in text for i in range(5, 15)] == [True] * 10
    assert "layer16" not in text and "layer0" not in text
    assert "(the 10 longest of 20 layers: `inspect --layers` shows all)" in text
    everything = found.text(layers=True)
    assert all(f" layer{i}\n" in everything + "\n" for i in range(20))
    assert "--layers" not in everything
    assert everything.index("layer16") > everything.index("layer15")


def _changed(**changes: Any) -> bytes:
    return json.dumps({"forward": [{**dataclasses.asdict(ESTIMATE), **changes}]}).encode()


@pytest.mark.parametrize(
    "stored",
    [
        b"x",
        b"\xff",
        b"[1]",
        b"[" * 100_000,
        b'{"forward": 3}',
        b'{"forward": [3, null]}',
        b'{"forward": [{}]}',
        _changed(source=3),
        _changed(latency="slow"),
        _changed(latency=-1.0),
        _changed(cycles=1.5),
        _changed(memory=[1]),
        _changed(memory={"sram": -1}),
        _changed(layers=3),
        _changed(layers=[{}]),
        _changed(layers=["layer"]),
        b'{"forward": [{"source": "x", "latency": Infinity}]}',
        b" " * (17 << 20),
    ],
)
def test_damaged_estimates_are_not_there(stored: bytes) -> None:
    assert delegatekit.inspect(image(stored)).methods[0].delegates[0].estimate is None


def run_cli(*arguments: str) -> Any:
    from typer.testing import CliRunner

    return CliRunner().invoke(cli.application(arguments), list(arguments))


def test_the_command_line(estimating: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "estimated_model.py").write_text(
        "import torch\nclass M(torch.nn.Module):\n    def forward(self, x): return x + x\n"
        "def build(): return M(), (torch.ones(2, 4),)\n"
    )
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.pte"
    arguments = ["lower", "estimated_model:build", "-b", "guess", "-o", str(path), "--budget"]
    refused = run_cli(*arguments, "sram=1B")
    assert isinstance(refused.exception, LoweringError) and not path.exists()
    assert isinstance(run_cli(*arguments, "sram").exception, UsageError)
    done = run_cli(*arguments, "sram=1KB", "--budget", "latency=3ms")
    assert done.exit_code == 0 and "estimated 3.00 ms" in done.output
    shown = run_cli("inspect", str(path), "--layers")
    assert "aten.add.Tensor" in shown.output and "--layers" not in shown.output
    stored = json.loads(run_cli("inspect", str(path), "--json").output)
    assert stored["methods"][0]["delegates"][0]["estimate"]["memory"] == {"sram": 1024}


def test_targets_are_listed(estimating: None, install_plugin: Any) -> None:
    install_plugin("plain")
    found = json.loads(run_cli("targets", "--json", "guess").output)
    small = {"name": "small", "summary": "the small one", "options": {"weights": "float16"}, "on_host": {}}
    assert found == {"guess": [small, {"name": "large", "summary": "the large one", "options": {}, "on_host": {}}]}
    assert "plain lists no targets" in run_cli("targets", "plain").output
    assert json.loads(run_cli("targets", "--json").output)["plain"] == []
    lines = "guess: small  the small one  (--option guess.weights=float16)\nguess: large  the large one\n"
    assert run_cli("targets", "guess").output == lines
    # With those of other backends that are installed.
    assert lines in run_cli("targets").output
    install_plugin("odd", plugin("odd").replace("return [Target", "return [1, Target"))
    with pytest.raises(PluginError, match=r"targets\[0\] is 1, not a TargetInfo"):
        delegatekit.plugins.discovery.get_backend("odd").targets()
