"""The hooks: what core sees of the backend."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from delegatekit_api import OptionError, PartitionProgram, ProgramView
from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_xnnpack import plugin
from delegatekit_xnnpack.options import XnnpackOptions


class TestPlugin(PluginTests):
    backend, delegate_id = "xnnpack", "XnnpackBackend"
    wrong_options = ({"half_precision": "int8"}, {"block_bytes": -1}, {"leave_out": "nothing"})


def test_the_usual_scheme_is_the_first():
    assert plugin.quantization_schemes()[0].name == "int8"


@pytest.mark.parametrize("weights", ["float32", "float16"])
def test_rounded_weights_lower_the_precision(weights):
    assert plugin.compute_precision(XnnpackOptions(weights=weights)) == weights


def test_options_are_converted_and_checked():
    options = XnnpackOptions.from_mapping({"leave_out": "add,aten.mul", "per_operator_partitions": "true"})
    assert options == XnnpackOptions(leave_out=frozenset({"add", "aten.mul"}), per_operator_partitions=True)
    with pytest.raises(OptionError, match="unknown option"):
        XnnpackOptions.from_mapping({"leave_in": "add"})


def test_all_options_are_documented():
    assert all(info.help.endswith(".") for info in XnnpackOptions.describe())


def test_preprocess_is_deterministic_and_keeps_no_copy_of_weights():
    module = nn.Linear(64, 32).eval()
    exported = torch.export.export(module, (torch.randn(2, 64),))
    partition = PartitionProgram(exported, ProgramView.of(exported), 0)
    first, second = (plugin.preprocess(partition, XnnpackOptions()) for _ in range(2))
    assert first.blob == second.blob
    assert [item.key for item in first.named_data] == [item.key for item in second.named_data]
    weights = {module.weight.data_ptr(), module.bias.data_ptr()}
    assert {item.data.data_ptr() for item in first.named_data} == weights
