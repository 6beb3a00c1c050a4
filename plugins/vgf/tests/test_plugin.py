"""The hooks, and the delegate in the file: what the core and stock's runtime see of the backend."""

from __future__ import annotations

import pytest
import torch

import delegatekit
from delegatekit import pte
from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_vgf import plugin


class TestPlugin(PluginTests):
    backend, delegate_id = "vgf", "VgfBackend"
    tool = ("model_converter", "not installed: pip install ai-ml-sdk-model-converter")
    wrong_options = ({"converter_flags": ("--dump-mlir",)}, {"leave_out": "nothing"})


def test_all_schemes_are_listed() -> None:
    assert [scheme.name for scheme in plugin.quantization_schemes()] == ["int8", "int8-per-tensor", "int16"]


def test_the_delegate_has_the_compile_specs_of_stocks_compiler() -> None:
    program = delegatekit.lower(torch.nn.Linear(4, 3), (torch.ones(2, 4),), backends=["vgf"])
    (delegate,) = pte.read(program.buffer).program.execution_plan[0].delegates
    specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
    assert (delegate.id, specs["output_format"]) == ("VgfBackend", b"vgf")
    assert specs["tosa_spec"].startswith(b"TOSA-1.0+FP+INT")


def test_the_stock_runtime_of_the_host_says_that_it_lacks_the_backend() -> None:
    native = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime is not installed")
    program = delegatekit.lower(torch.nn.Linear(4, 3), (torch.ones(2, 4),), backends=["vgf"])
    with pytest.raises(RuntimeError, match="0x:20"):
        native._load_program_from_buffer(program.buffer).load_method("forward")


def test_operators_lead_back_to_the_program() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
    program = delegatekit.lower(net, (torch.ones(2, 4),), backends=["vgf"])
    (delegate,) = program.debug_map()["forward"]["delegates"]
    assert {"matmul", "tanh"} <= set(delegate["operators"])


def test_sizes_that_change_are_refused_with_the_reason() -> None:
    size = torch.export.Dim("n", min=1, max=8)
    shapes = ({0: size},)
    plan = delegatekit.explain(torch.nn.ReLU(), (torch.ones(2, 4),), backends=["vgf"], dynamic_shapes=shapes)
    assert "sizes that change from call to call" in str(plan)


def test_wide_integers_are_refused_with_a_hint() -> None:
    plan = delegatekit.explain(torch.nn.Embedding(4, 3), (torch.ones(2, dtype=torch.int64),), backends=["vgf"])
    assert "TOSA has 32 bits: give the program int32" in str(plan)
