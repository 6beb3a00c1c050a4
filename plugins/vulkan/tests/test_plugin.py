"""The hooks: what core sees of the backend."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points, version

import pluggy
import pytest

from delegatekit_api import BackendSpec, OptionError
from delegatekit_api.versions import API_VERSION, PROJECT, incompatibility
from delegatekit_vulkan import plugin
from delegatekit_vulkan.options import VulkanOptions


def test_the_entry_point_is_the_plugin() -> None:
    (entry,) = entry_points(group="delegatekit.backends", name="vulkan")
    assert entry.load() is plugin


def test_the_hooks_fit_the_specification() -> None:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(BackendSpec)
    manager.register(plugin)
    manager.check_pending()
    assert manager.hook.describe_backend().name == "vulkan"


def test_the_description_is_true() -> None:
    description = plugin.describe_backend()
    assert description.delegate_id == "VulkanBackend"
    assert description.version == version(description.distribution)
    assert description.options is VulkanOptions
    assert incompatibility(description.api_version, API_VERSION) is None


def test_half_precision_lowers_the_precision() -> None:
    assert plugin.compute_precision(VulkanOptions()) == "float32"
    assert plugin.compute_precision(VulkanOptions(fp16=True)) == "float16"


def test_the_targets_are_options() -> None:
    for target in plugin.targets():
        assert VulkanOptions.from_mapping(target.options).target == target.name


@pytest.mark.parametrize(
    "wrong", [{"target": "watch"}, {"storage": "disk"}, {"buffer_limit": -1}, {"leave_out": "nothing"}]
)
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        plugin.create_partitioner(VulkanOptions.from_mapping(wrong))


def test_describing_the_backend_imports_neither_torch_nor_vulkan() -> None:
    code = (
        "import sys; from delegatekit_vulkan import plugin; plugin.describe_backend()\n"
        "assert not {'torch', 'vulkan', 'numpy', 'delegatekit'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
