"""The backend from outside: what it says of itself, the file that it makes, and the stock runtime's answer."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit import pte
from delegatekit.pte.estimates import read_estimates
from delegatekit_api import LoweringError
from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_ethosu import plugin
from delegatekit_ethosu.blob import unpack
from delegatekit_ethosu.compiler.vela import vela_version
from delegatekit_ethosu.options import EthosUOptions


@pytest.fixture(scope="module")
def model() -> tuple[Any, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)).eval(), None
    x = torch.randn(1, 1, 8, 8)
    return delegatekit.quantize(module, [(x,)] * 2, backend="ethosu"), (x,)


def lower(model: Any, **options: Any) -> Any:
    return delegatekit.lower(*model, backends=["ethosu"], options={"ethosu": options})


class TestPlugin(PluginTests):
    backend, delegate_id, target_option = "ethosu", "EthosUBackend", "target"
    tool = ("ethosu", "not installed: pip install ethos-u-vela")
    wrong_options = ({"system_config": "Fast"}, {"memory_mode": "Large"}, {"config": "/nowhere.ini"})


def test_all_accelerators_and_schemes_are_listed() -> None:
    assert [scheme.name for scheme in plugin.quantization_schemes()] == ["int8", "int8-per-tensor", "int16"]
    assert len(plugin.targets()) == 11


def test_verifying_needs_the_reference_model_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tosa_reference_model", None)
    verifying = EthosUOptions(verify=True)
    found = plugin.compiler_availability(verifying)
    assert not found.available
    assert "Arm's TOSA reference model is not installed: pip install" in found.reason
    assert plugin.compiler_availability(EthosUOptions()).available
    told = plugin.verification(verifying)
    assert (told.used, told.reason) == (False, found.reason)


def test_the_reference_model_is_a_judge_where_the_option_asks_for_it() -> None:
    pytest.importorskip("tosa_reference_model", reason="tosa-tools is not installed")
    assert plugin.verification(EthosUOptions(verify=True)).used
    told = plugin.verification(EthosUOptions())
    assert (told.used, told.reason) == (False, "the option verify is not set")


def test_the_file_names_target_and_version_of_vela(model: Any) -> None:
    program = lower(model, target="ethos-u65-512")
    file = pte.read(program.buffer)
    (delegate,) = file.program.execution_plan[0].delegates
    assert delegate.id == "EthosUBackend"
    specs = {spec.key: bytes(spec.value).decode() for spec in delegate.compile_specs or ()}
    assert specs == {"target": "ethos-u65-512", "vela_version": vela_version()}
    blob = unpack(file.delegate_blob(delegate))
    assert [math.prod(binding.shape) for binding in blob.inputs] == [64]
    assert [binding.shape for binding in blob.outputs] == [(1, 1, 1, 1, 1, 10)]


def test_the_same_program_gives_the_same_bytes(model: Any) -> None:
    assert lower(model).buffer == lower(model).buffer


def test_layers_lead_back_to_the_program(model: Any) -> None:
    method = lower(model).debug_map()["forward"]
    (delegate,) = method["delegates"]
    for name in ("convolution_default", "linear_default"):
        operators = {
            operator for handle in delegate["operators"][name] for operator in method["nodes"][str(handle)]["operators"]
        }
        assert f"aten.{name.partition('_')[0]}.default" in operators


def test_estimates_name_the_programs_nodes(model: Any) -> None:
    (method,) = delegatekit.report(lower(model)).methods
    (delegate,) = method.delegates
    names = {layer.name.partition(".")[0] for layer in delegate.estimate.layers}
    assert {"convolution_default", "linear_default"} <= names


@pytest.mark.parametrize("scheme", ["int8", "int8-per-tensor", "int16"])
def test_every_scheme_runs(scheme: str) -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval(), torch.randn(1, 3, 9, 9)
    quantized = delegatekit.quantize(module, [(x,)], backend="ethosu", scheme=scheme)
    result = delegatekit.load(delegatekit.lower(quantized, (x,), backends=["ethosu"]).buffer)["forward"](x)
    step = next(node.args[1] for node in reversed(quantized.graph.nodes) if "dequantize_per_tensor" in str(node.target))
    # Sums that end half-way between two integers may become the other one.
    assert ((result - quantized(x)) / step).abs().round().max() <= 1


def test_biases_are_int32(model: Any) -> None:
    dtypes = {str(value.dtype) for name, value in model[0].named_buffers() if name.endswith("bias")}
    assert dtypes == {"torch.int32"}


@pytest.mark.parametrize("scheme", ["int8", pytest.param("int16", marks=pytest.mark.slow)])
def test_training_with_quantization_lowers(scheme: str) -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(392, 4)), None
    x = torch.randn(1, 3, 9, 9)
    prepared = delegatekit.prepare_qat(module.train(), (x,), backend="ethosu", scheme=scheme)
    for _ in range(3):
        prepared(torch.randn(1, 3, 9, 9)).square().sum().backward()
    quantized = delegatekit.convert_qat(prepared)
    program = delegatekit.lower(quantized, (x,), backends=["ethosu"])
    assert len(delegatekit.report(program).methods[0].delegates) == 1
    result = delegatekit.load(program.buffer)["forward"](x)
    step = max(node.args[1] for node in quantized.graph.nodes if "dequantize_per_tensor" in str(node.target))
    assert float((result - quantized(x)).abs().max()) <= 1.01 * step


def test_stock_executorch_without_the_npu_says_so(model: Any) -> None:
    native = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime is not installed")
    buffer = lower(model).buffer
    program = native._load_program_from_buffer(buffer)
    with pytest.raises(RuntimeError, match="0x:20"):
        program.load_method("forward")


def test_without_vela_the_error_says_what_to_install(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ethosu", None)
    with pytest.raises(LoweringError, match=r"cannot compile here: Vela, .* not installed: pip install ethos-u-vela"):
        lower(model)


def test_a_profile_shows_what_is_expected_on_the_device_apart_from_what_was_measured(model: Any) -> None:
    program = lower(model)
    found = delegatekit.profile(delegatekit.load(program.buffer)["forward"], model[1], runs=1, warm_up=0)
    (expected,) = read_estimates(pte.read(program.buffer)).methods["forward"]
    told = {item.position: item.estimate for item in found.instructions if item.made_by}
    (position,) = told
    assert expected is not None and told == {position: expected}
    lines = found.text().splitlines()
    (start,) = (index for index, line in enumerate(lines) if "on the device" in line)
    assert lines[start].startswith(f"on the device, {position}: delegate 0 is expected to take ")
    assert f"{expected.cycles:,} cycles" in lines[start] and expected.source in lines[start]
    longest = max(expected.layers, key=lambda layer: layer.latency)
    assert any(longest.name in line for line in lines[start + 1 :])


def test_a_profile_leaves_out_damaged_estimates(model: Any) -> None:
    damaged = bytes(lower(model).buffer).replace(b'"source"', b'"sourcX"')
    found = delegatekit.profile(delegatekit.load(damaged)["forward"], model[1], runs=1, warm_up=0)
    assert all(item.estimate is None for item in found.instructions)
    assert "on the device" not in found.text()
