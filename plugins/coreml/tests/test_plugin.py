"""The hooks: what core sees of the backend."""

from __future__ import annotations

import subprocess
import sys

from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_coreml import plugin
from delegatekit_coreml.options import CoreMLOptions


class TestPlugin(PluginTests):
    backend, delegate_id, target_option = "coreml", "CoreMLBackend", "target"
    tool = ("coremltools", "coremltools, which writes the program, is not installed: pip install coremltools")
    wrong_options = (
        {"target": "ios14"},
        {"precision": "int8"},
        {"compute_units": "none"},
        {"leave_out": "nothing"},
        {"float32_operators": "nothing"},
    )


def test_the_precision_is_an_option() -> None:
    assert plugin.compute_precision(CoreMLOptions()) == plugin.describe_backend().compute_precision == "float16"
    assert plugin.compute_precision(CoreMLOptions(precision="float32")) == "float32"


def test_neither_the_support_table_nor_the_runtime_imports_coremltools() -> None:
    code = (
        "import sys; from delegatekit_coreml import plugin; plugin.compiler_availability()\n"
        "assert 'torch' not in sys.modules; from delegatekit_coreml import support, runtime\n"
        "assert not {'coremltools', 'google.protobuf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
