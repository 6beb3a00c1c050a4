"""The hooks: what core sees of the backend."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points, version

import pluggy
import pytest

from delegatekit_api import BackendSpec, OptionError
from delegatekit_api.versions import API_VERSION, PROJECT, incompatibility
from delegatekit_coreml import plugin
from delegatekit_coreml.options import CoreMLOptions


def test_the_entry_point_is_the_plugin() -> None:
    (entry,) = entry_points(group="delegatekit.backends", name="coreml")
    assert entry.load() is plugin


def test_the_hooks_fit_the_specification() -> None:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(BackendSpec)
    manager.register(plugin)
    manager.check_pending()
    assert manager.hook.describe_backend().name == "coreml"


def test_the_description_is_true() -> None:
    description = plugin.describe_backend()
    assert description.delegate_id == "CoreMLBackend"
    assert description.version == version(description.distribution)
    assert description.options is CoreMLOptions
    assert incompatibility(description.api_version, API_VERSION) is None


def test_the_precision_is_an_option() -> None:
    assert plugin.compute_precision(CoreMLOptions()) == plugin.describe_backend().compute_precision == "float16"
    assert plugin.compute_precision(CoreMLOptions(precision="float32")) == "float32"


def test_the_targets_are_options() -> None:
    for target in plugin.targets():
        assert CoreMLOptions.from_mapping(target.options).target == target.name


@pytest.mark.parametrize(
    "wrong",
    [
        {"target": "ios14"},
        {"precision": "int8"},
        {"compute_units": "none"},
        {"leave_out": "nothing"},
        {"float32_operators": "nothing"},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        plugin.create_partitioner(CoreMLOptions.from_mapping(wrong))


def test_describing_the_backend_imports_neither_torch_nor_coremltools() -> None:
    code = (
        "import sys; from delegatekit_coreml import plugin; plugin.describe_backend(); plugin.targets()\n"
        "assert not {'torch', 'coremltools', 'numpy', 'delegatekit'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_coremltools_is_told_without_importing_it() -> None:
    ask = "plugin.compiler_availability(CoreMLOptions())"
    code = (
        "import sys; from delegatekit_coreml import plugin; from delegatekit_coreml.options import CoreMLOptions\n"
        f"assert {ask}.available and not {{'torch', 'coremltools'}} & set(sys.modules)\n"
        f"sys.modules['coremltools'] = None; print({ask}.reason)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "coremltools, which writes the program, is not installed: pip install coremltools" in said


def test_neither_the_support_table_nor_the_runtime_imports_coremltools() -> None:
    code = (
        "import sys; from delegatekit_coreml import support, runtime\n"
        "assert not {'coremltools', 'google.protobuf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
