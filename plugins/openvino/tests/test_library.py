"""What is said of a library that is missing or of another version, and its import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from delegatekit_openvino.blob import library


@pytest.mark.parametrize("version", ["2024.6.0", "2025.3.0", "2026.4.1"])
def test_another_version_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    pytest.importorskip("openvino", exc_type=ImportError)
    monkeypatch.setattr("delegatekit_toolkit.installed.version", lambda distribution: version)
    found = library.availability()
    assert not found.available
    assert version in found.reason
    assert library.INSTALL in found.reason


def test_neither_the_support_table_nor_the_runtime_imports_openvino() -> None:
    code = (
        "import sys; from delegatekit_openvino import options, plugin\n"
        "plugin.compiler_availability(options.OpenVINOOptions())\n"
        "assert 'torch' not in sys.modules; from delegatekit_openvino import support, runtime, compile\n"
        "assert 'openvino' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_library_starts_no_telemetry() -> None:
    if not (known := library.availability()).available:
        pytest.skip(known.reason)
    code = (
        "import sys; from delegatekit_openvino.blob.library import openvino; openvino()\n"
        "assert 'openvino_telemetry' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
