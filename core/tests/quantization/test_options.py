"""Schemes that depend on the backend's options: `quantize`, `prepare_qat` and the command line pass them on."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit import cli as command_line
from delegatekit.plugins import PluginWarning, discovery
from delegatekit_api import OptionError, QuantizationError

pytest.importorskip("torchao")

BACKEND = """
from dataclasses import dataclass
from delegatekit_api import *
from delegatekit_api.schemes import *

INT8 = TensorQuantization("int8")
WEIGHT = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL)

@dataclass(frozen=True)
class Options(BackendOptions):
    chip: str = option("small", help="The chip.", choices=("small", "large"))

@hookimpl
def describe_backend():
    return BackendDescription("chips", "ChipsBackend", "delegatekit-chips", "1.2", "x", options=Options)

@hookimpl
def quantization_schemes(options):
    large = options.chip == "large"
    def convolves(node):
        return None if large else "the small chip has no convolutions; the large one has"
    return [
        QuantizationScheme("int8", f"for the {options.chip} chip", rules=(
            QuantizationRule(("linear",), INT8, WEIGHT, None, INT8),
            QuantizationRule(("conv1d",), INT8, WEIGHT, None, INT8, declines=(convolves,)),
        ), qat=large),
    ]
"""

MODELS = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(18, 4)).eval(), (torch.ones(1, 2, 8),)
"""


@pytest.fixture(autouse=True)
def _backend(install_plugin: Callable[..., Any]) -> None:
    install_plugin("chips", BACKEND)


def net() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(18, 4)).eval()


def kept(options: Any) -> dict[str, str]:
    module: Any = delegatekit.quantize(net(), [torch.randn(1, 2, 8)], backend="chips", options=options)
    return {row.operator: row.reason for row in module.quantization.kept}


def test_what_is_quantized_depends_on_the_options() -> None:
    reason = "the small chip has no convolutions; the large one has"
    assert kept(None)["conv1d"] == kept({"chip": "small"})["conv1d"] == reason
    assert "conv1d" not in kept({"chip": "large"})
    with pytest.raises(OptionError, match="not one of the choices"):
        kept({"chip": "huge"})


def test_the_default_options_are_asked_for_where_none_are_given() -> None:
    backend = discovery.get_backend("chips")
    (small,) = backend.quantization_schemes()
    (large,) = backend.quantization_schemes(backend.make_options({"chip": "large"}))
    assert (small.summary, large.summary) == ("for the small chip", "for the large chip")


def test_training_depends_on_the_options() -> None:
    x = torch.randn(1, 2, 8)
    with pytest.raises(OptionError, match="does not offer training"):
        delegatekit.prepare_qat(net().train(), (x,), backend="chips")
    prepared = delegatekit.prepare_qat(net().train(), (x,), backend="chips", options={"chip": "large"})
    prepared(x)
    report: Any = delegatekit.convert_qat(prepared)
    assert [row.operator for row in report.quantization.quantized] == ["conv1d", "linear"]


def test_that_it_must_be_lowered_elsewhere_is_told_at_once(install_plugin: Callable[..., Any]) -> None:
    missing = "def compiler_availability(options): return Availability(options.chip == 'large', 'no tool')"
    install_plugin("chips", f"{BACKEND}\n@hookimpl\n{missing}\n")
    with pytest.warns(PluginWarning, match="backend chips cannot compile quantized models here: no tool"):
        kept({"chip": "small"})
    with warnings.catch_warnings():
        warnings.simplefilter("error", PluginWarning)
        kept({"chip": "large"})


def test_a_scheme_that_quantizes_nothing_says_whose_fault_it_is() -> None:
    with pytest.raises(QuantizationError, match="the small chip has no convolutions; the large one has"):
        delegatekit.quantize(nn.Conv1d(2, 3, 3).eval(), [torch.randn(1, 2, 8)], backend="chips")


def test_the_command_line_passes_options_on(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chip_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def call(*arguments: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["delegatekit", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            command_line.main()
        assert not end.value.code
        return json.loads(capsys.readouterr().out)

    def quantized(*option: str) -> list[str]:
        given = ("quantize", "chip_models:net", "-b", "chips", "-o", "q.pt2", "--random", "2", "--json", *option)
        return [layer["operator"] for layer in call(*given)["layers"] if layer["quantized"]]

    assert quantized() == ["linear"]
    assert quantized("--option", "chip=large") == ["conv1d", "linear"]
    for given in ([], ["--option", "chips.chip=large"], ["--option", "chip=large"]):
        name = ["chips"] if given != [] and "." not in given[1] else []
        (scheme,) = call("schemes", *name, "--json", *given)["chips"]
        assert scheme["summary"] == f"for the {'large' if given else 'small'} chip"
    sys.modules.pop("chip_models", None)
