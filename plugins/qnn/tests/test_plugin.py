"""The hooks: what core sees of the backend; and what it says where the vendor's library is missing."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit.plugins import PluginWarning
from delegatekit_api import LoweringError
from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_qnn import plugin
from delegatekit_qnn.blob import installation
from delegatekit_qnn.blob.installation import Installation, Missing, find_installation
from delegatekit_qnn.options import QnnOptions
from delegatekit_qnn.runtime import QnnRuntime


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library is looked for again, here and after the test."""
    monkeypatch.delenv(installation.SDK, raising=False)
    installation._found.cache_clear()
    yield
    monkeypatch.undo()
    installation._found.cache_clear()


class TestPlugin(PluginTests):
    backend, delegate_id, target_option = "qnn", "QnnBackend", "soc"
    heavy = PluginTests.heavy | {"onnxruntime_qnn"}
    wrong_options = (
        {"soc": "sm1"},
        {"precision": "int8"},
        {"vtcm": -1},
        {"vtcm": 9},
        {"soc": "qcm6490", "vtcm": 4},
        {"performance": "fast"},
        {"leave_out": "nothing"},
        {"schematics": "folder"},
        {"schematics": "folder", "profile": "detailed"},
    )


# -- without the library -----------------------------------------------------------------------------------------------


def _other_system(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(installation, "sys", SimpleNamespace(platform="darwin"))


def _other_processor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(platform, "machine", lambda: "aarch64")


def _old_libc(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(platform, "libc_ver", lambda: ("glibc", "2.31"))


def _other_libc(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(platform, "libc_ver", lambda: ("", ""))


def _without(name: str) -> Any:
    def change(patch: pytest.MonkeyPatch) -> None:
        find = installation.find_spec
        patch.setattr(installation, "find_spec", lambda asked: None if asked == name else find(asked))

    return change


def _other_wheel(patch: pytest.MonkeyPatch) -> None:
    class Found:
        submodule_search_locations = ("/nowhere",)

    find = installation.find_spec
    patch.setattr(installation, "find_spec", lambda name: Found() if name == "onnxruntime_qnn" else find(name))
    patch.setattr(installation, "version", lambda name: "2.7.0")


def _empty_sdk(patch: pytest.MonkeyPatch) -> None:
    patch.setenv(installation.SDK, "/nowhere/2.37.0")


#: What is wrong, what is said of it, and what helps.
MISSING = [
    (_other_system, "not on darwin", "on such a machine"),
    (_other_processor, "not on linux aarch64", "on such a machine"),
    (_old_libc, "needs glibc 2.35 or newer, here is glibc 2.31", "Debian 12"),
    (_other_libc, "here is another C library", "Debian 12"),
    (_without("executorch"), "executorch, .* is not installed", "pip install 'delegatekit-qnn[htp]'"),
    (_without("onnxruntime_qnn"), "onnxruntime-qnn, .* is not installed", "pip install 'delegatekit-qnn[htp]'"),
    (_other_wheel, "onnxruntime-qnn 2.7.0 is installed", "pip install onnxruntime-qnn==2.5.0"),
    (_empty_sdk, "QNN_SDK_ROOT is /nowhere/2.37.0, but there is no", "correct QNN_SDK_ROOT"),
]


class _NotExported(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("this is work")


@pytest.mark.parametrize(("change", "reason", "hint"), MISSING, ids=[reason for _, reason, _ in MISSING])
def test_where_the_library_is_missing_lowering_says_why_and_what_to_do(
    change: Any, reason: str, hint: str, looked_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    assert isinstance(find_installation(), Missing)
    assert plugin.compiler_version() == "unknown"
    availability = QnnRuntime().is_available()
    assert not availability.available
    assert hint in availability.reason
    assert plugin.compiler_availability(QnnOptions()) == availability
    with pytest.raises(LoweringError, match=f"backend qnn: cannot compile here: .*{reason}") as refused:
        delegatekit.lower(_NotExported(), (torch.ones(2),), backends=["qnn"])
    assert hint in str(refused.value)
    with pytest.warns(PluginWarning, match=f"cannot compile quantized models here: .*{reason}"):
        delegatekit.quantize(torch.nn.Linear(2, 2).eval(), [torch.ones(1, 2)], backend="qnn", progress=False)


def test_whether_it_compiles_is_told_without_loading_anything(library: None) -> None:
    code = (
        "import sys; from delegatekit_qnn import plugin; from delegatekit_qnn.options import QnnOptions\n"
        "assert plugin.compiler_availability(QnnOptions()).available\n"
        "assert not {'torch', 'executorch', 'onnxruntime_qnn'} & set(sys.modules)\n"
        "assert 'libQnnHtp' not in open('/proc/self/maps').read()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_sdk_of_the_vendor_is_used_where_the_environment_names_one(
    looked_up: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("executorch.backends.qualcomm.python.PyQnnManagerAdaptor")
    for name, known in (("2.41.0.251128", "2.41.0"), ("sdk", "")):
        folder = tmp_path / name / "lib" / "x86_64-linux-clang"
        folder.mkdir(parents=True)
        for library in installation.LIBRARIES:
            (folder / library).touch()
        monkeypatch.setenv(installation.SDK, str(tmp_path / name))
        assert find_installation() == Installation(folder, known)


@pytest.mark.slow
def test_the_commands_say_why_it_neither_compiles_nor_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = os.environ | {installation.SDK: "/nowhere", "COLUMNS": "400"}
    command = [sys.executable, "-m", "delegatekit", "backends", "--check"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    (line,) = [line for line in shown.splitlines() if "delegatekit-qnn" in line]
    assert line.count("no: QNN_SDK_ROOT is /nowhere") == 2, "neither compiles nor runs"
    assert line.count("correct QNN_SDK_ROOT") == 2
