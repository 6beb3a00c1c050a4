"""What is said of a library that is missing or of another version, and its import."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from delegatekit_api import LoweringError
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


def test_threads_make_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Library:
        def Core(self) -> object:
            made.append(object())
            time.sleep(0.05)
            return made[-1]

    monkeypatch.setattr(library, "openvino", Library)
    monkeypatch.setattr(library, "_made_core", cache(library._made_core.__wrapped__))
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: library.core(), range(4)))
    assert found == set(made) and len(made) == 1


@pytest.mark.parametrize(("text", "said"), [("", "RuntimeError"), ("a file:\n it fails\n", " it fails")])
def test_the_last_line_of_an_error_is_told(text: str, said: str) -> None:
    with (
        pytest.raises(LoweringError, match=f"OpenVINO: refuses: {said}$"),
        library.told("refuses", LoweringError, "OpenVINO"),
    ):
        raise RuntimeError(text)
