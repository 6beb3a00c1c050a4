"""The hooks: what the core sees of the backend."""

from __future__ import annotations

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
