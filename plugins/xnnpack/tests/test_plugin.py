"""The hooks: what core sees of the backend."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points, version

import pluggy
import pytest
import torch
from torch import nn

from delegatekit_api import BackendSpec, OptionError, PartitionProgram, ProgramView
from delegatekit_api.versions import API_VERSION, PROJECT, incompatibility
from delegatekit_xnnpack import plugin
from delegatekit_xnnpack.options import XnnpackOptions


def test_the_entry_point_is_the_plugin():
    (entry,) = entry_points(group="delegatekit.backends", name="xnnpack")
    assert entry.load() is plugin


def test_the_hooks_fit_the_specification():
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(BackendSpec)
    manager.register(plugin)
    manager.check_pending()
    assert manager.hook.describe_backend().name == "xnnpack"


def test_the_description_is_true():
    description = plugin.describe_backend()
    assert description.delegate_id == "XnnpackBackend"
    assert description.version == version(description.distribution)
    assert description.options is XnnpackOptions
    assert incompatibility(description.api_version, API_VERSION) is None
    assert [scheme.name for scheme in plugin.quantization_schemes()][:1] == ["int8"]


@pytest.mark.parametrize("weights", ["float32", "float16"])
def test_rounded_weights_lower_the_precision(weights):
    assert plugin.compute_precision(XnnpackOptions(weights=weights)) == weights


def test_describing_the_backend_imports_neither_torch_nor_executorch():
    code = (
        "import sys; from delegatekit_xnnpack import plugin; plugin.describe_backend()\n"
        "assert not {'torch', 'executorch', 'delegatekit'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


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
