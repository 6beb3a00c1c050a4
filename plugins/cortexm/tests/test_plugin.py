"""The hooks: what core sees of the backend."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_api import FormatError, LoweringError, OptionError, RuntimeUnavailableError, UnsupportedError
from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_cortexm import plugin
from delegatekit_cortexm.options import CortexMOptions
from delegatekit_cortexm.runtime.kernels import CortexMRuntime
from delegatekit_cortexm.targets import TARGETS


class TestPlugin(PluginTests):
    backend, delegate_id, target_option = "cortexm", "cortex_m", "target"
    tool = ("executorch", "pip install 'delegatekit-cortexm[compiler]'")
    wrong_options = ({"target": "cortex-a55"}, {"extension": "neon"}, {"leave_out": "nothing"})


def test_a_processor_cannot_have_every_extension() -> None:
    plugin.create_partitioner(CortexMOptions(target="cortex-m55", extension="dsp"))
    with pytest.raises(OptionError, match="cortex-m4 does not have") as caught:
        plugin.create_partitioner(CortexMOptions(target="cortex-m4", extension="mve"))
    assert caught.value.hint == "it may have dsp or scalar"


def test_targets_are_those_of_stock() -> None:
    config = pytest.importorskip("executorch.backends.cortex_m.target_config")
    for name, most in TARGETS.items():
        chosen = config.CortexMTargetConfig.from_target_string(name)
        assert chosen.backend.name.lower() == most
    assert len(TARGETS) == len(config.CortexM)


def test_schemas_are_those_of_the_wheel() -> None:
    pytest.importorskip("executorch.backends.cortex_m.passes")
    for text in plugin.runtime_operators():
        name = text.partition("(")[0].removeprefix("cortex_m::").removesuffix(".out")
        assert torch._C.parse_schema(text) == getattr(torch.ops.cortex_m, name).out._schema


def test_without_the_wheel_nothing_is_compiled_and_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 4)
    module = delegatekit.quantize(nn.Linear(4, 4).eval(), [(x,)], backend="cortexm", progress=False)
    data = delegatekit.lower(module, (x,), backends=["cortexm"]).buffer
    monkeypatch.setitem(sys.modules, "executorch", None)
    with pytest.raises(RuntimeUnavailableError, match=r"pip install 'delegatekit-cortexm\[runtime\]'"):
        delegatekit.load(data)["forward"]
    with pytest.raises(LoweringError, match="CMSIS-NN's binding is missing"):
        delegatekit.lower(module, (x,), backends=["cortexm"])


def test_operators_that_the_library_lacks_are_refused_by_name() -> None:
    with pytest.raises(FormatError, match=r"no operator cortex_m::quantized_sort.out"):
        CortexMRuntime().kernel("cortex_m::quantized_sort.out")


def test_the_stock_runtime_of_the_host_lacks_the_operators() -> None:
    pybindings = pytest.importorskip("executorch.extension.pybindings._C")
    module = delegatekit.quantize(nn.Linear(4, 4).eval(), [(torch.randn(2, 4),)], backend="cortexm", progress=False)
    data = delegatekit.lower(module, (torch.randn(2, 4),), backends=["cortexm"]).buffer
    with pytest.raises(RuntimeError):
        pybindings._load_for_executorch_from_buffer(data).run_method("forward", (torch.randn(2, 4),))


def test_a_lowered_module_is_refused() -> None:
    module = delegatekit.quantize(nn.Linear(4, 4).eval(), [(torch.randn(2, 4),)], backend="cortexm", progress=False)
    with pytest.raises(UnsupportedError):
        delegatekit.to_backend(module, (torch.randn(2, 4),), backend="cortexm")
