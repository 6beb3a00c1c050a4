"""The hooks: what the core sees of the backend."""

from __future__ import annotations

import io

import pytest
import torch

import delegatekit
from delegatekit.plugins.discovery import get_backend
from delegatekit_api import CompileSpec, DelegateKitError, DelegatePayload, LoweringError, TensorSpec
from delegatekit_api.devices import TargetInfo
from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_openvino import plugin
from delegatekit_openvino.options import OpenVINOOptions
from delegatekit_openvino.runtime import OpenVINORuntime


class TestPlugin(PluginTests):
    backend, delegate_id, target_option = "openvino", "OpenvinoBackend", "device"
    heavy = PluginTests.heavy | {"openvino"}
    wrong_options = (
        {"device": "cpu"},
        {"precision": "int8"},
        {"threads": -1},
        {"threads": 10**12},
        {"leave_out": "nothing"},
    )


def test_the_precision_is_an_option() -> None:
    assert plugin.compute_precision(OpenVINOOptions()) == "float32"
    assert plugin.compute_precision(OpenVINOOptions(precision="bfloat16")) == "bfloat16"
    assert plugin.compute_precision(OpenVINOOptions(device="NPU")) == "float16"


def test_the_precision_is_that_of_the_device_that_openvino_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "chosen_device", lambda device: "NPU" if device == "AUTO" else device)
    assert plugin.compute_precision(OpenVINOOptions(device="AUTO")) == "float16"
    assert plugin.compute_precision(OpenVINOOptions(device="CPU")) == "float32"


@pytest.mark.parametrize("target", get_backend("openvino").targets(), ids=lambda target: target.name)
def test_a_target_compiles_and_runs_or_tells_that_this_computer_lacks_it(target: TargetInfo) -> None:
    from delegatekit_openvino.blob.library import core

    x = torch.randn(2, 3)
    options = {"openvino": target.options}
    kinds = {"AUTO", *(name.partition(".")[0] for name in core().available_devices)}
    if target.name not in kinds:
        with pytest.raises(LoweringError, match=f"OpenVINO finds no {target.name} on this computer"):
            delegatekit.lower(torch.nn.ReLU(), (x,), backends=["openvino"], options=options)
        return
    program = delegatekit.lower(torch.nn.ReLU(), (x,), backends=["openvino"], options=options)
    found = delegatekit.load(program.buffer)["forward"](x)
    torch.testing.assert_close(found, torch.relu(x))


def test_auto_is_the_device_that_openvino_chooses() -> None:
    """The file has that device's name: OpenVINO neither exports nor imports models of its AUTO device."""
    from delegatekit_openvino.blob import library

    chosen = library.chosen_device("AUTO")
    assert chosen in {name.partition(".")[0] for name in library.core().available_devices}
    compiled = {}
    for device in ("AUTO", chosen):
        program = delegatekit.lower(
            torch.nn.ReLU(), (torch.ones(2),), backends=["openvino"], options={"openvino": {"device": device}}
        )
        (delegate,) = program.methods["forward"].delegates
        compiled[device] = ([*delegate.compile_specs], b"".join(map(bytes, delegate.blob)))
    assert compiled["AUTO"] == compiled[chosen]
    assert {spec.key: spec.value for spec in compiled["AUTO"][0]}["device"] == chosen.encode()


@pytest.mark.parametrize("device", ["NPU", "AUTO", "TPU"])
def test_a_file_for_another_device_is_not_loaded(device: str) -> None:
    from delegatekit_openvino.blob.library import core

    if any(name.startswith(device) for name in core().available_devices):
        pytest.skip(f"this computer has an {device}")
    given = TensorSpec("float32", (2,))
    payload = DelegatePayload(
        "OpenvinoBackend", memoryview(b"blob"), (CompileSpec("device", device.encode()),), (given,), (given,), {}, bytes
    )
    words = "finds no NPU" if device == "NPU" else f"for a device '{device}', which this release does not load"
    with pytest.raises(DelegateKitError, match=words):
        OpenVINORuntime().init(payload)


def test_another_device_is_told_the_precision_and_its_blob_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for OpenVINO's core on a computer that has a GPU: it compiles nothing."""
    from delegatekit_openvino import compile as compiling
    from delegatekit_openvino.blob import library

    told = []

    class Compiled:
        def export_model(self) -> io.BytesIO:
            return io.BytesIO(b"what a GPU is given")

    class Core:
        available_devices = ("CPU", "GPU.0")

        def get_property(self, device: str, name: str) -> str:
            return f"{name} of {device}"

        def compile_model(self, model: object, device: str, properties: dict[str, str]) -> Compiled:
            told.append((device, properties["INFERENCE_PRECISION_HINT"]))
            return Compiled()

    for module in (compiling, library):
        monkeypatch.setattr(module, "core", Core)
    program = delegatekit.lower(
        torch.nn.ReLU(),
        (torch.ones(2),),
        backends=["openvino"],
        options={"openvino": {"device": "GPU", "precision": "float16"}},
        compiling=delegatekit.Compiling(cache=False),
    )
    (delegate,) = program.methods["forward"].delegates
    assert told == [("GPU", "f16")]
    assert b"".join(map(bytes, delegate.blob)) == b"what a GPU is given"
    assert {spec.key: spec.value for spec in delegate.compile_specs}["device"] == b"GPU"
