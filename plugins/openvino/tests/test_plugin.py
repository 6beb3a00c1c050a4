"""The hooks: what the core sees of the backend."""

from __future__ import annotations

import io

import pytest
import torch

import delegatekit
from delegatekit_api import DelegateKitError
from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_openvino import plugin
from delegatekit_openvino.options import OpenVINOOptions


class TestPlugin(PluginTests):
    backend, delegate_id, target_option = "openvino", "OpenvinoBackend", "device"
    heavy = PluginTests.heavy | {"openvino"}
    wrong_options = ({"device": "cpu"}, {"precision": "int8"}, {"threads": -1}, {"leave_out": "nothing"})


def test_the_precision_is_an_option() -> None:
    assert plugin.compute_precision(OpenVINOOptions()) == "float32"
    assert plugin.compute_precision(OpenVINOOptions(precision="bfloat16")) == "bfloat16"


def test_a_device_that_this_computer_lacks_is_told() -> None:
    from delegatekit_openvino.blob.library import core

    if any(name.startswith("NPU") for name in core().available_devices):
        pytest.skip("this computer has an NPU")
    with pytest.raises(DelegateKitError, match="OpenVINO finds no NPU on this computer"):
        delegatekit.lower(
            torch.nn.ReLU(), (torch.ones(2),), backends=["openvino"], options={"openvino": {"device": "NPU"}}
        )


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
