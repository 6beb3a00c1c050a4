"""Shared fixtures: a small TOSA program, and stock ExecuTorch's files for a small network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))  # the tests' helper modules, beside this file

import pytest

from delegatekit_ethosu.targets import TARGETS
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa.example import small_network


@pytest.fixture
def small_graph() -> tosa.Graph:
    """A small int8 network; its tensors' names are those of its layers."""
    return small_network()


@pytest.fixture(scope="session")
def small_program() -> bytes:
    """The file of `small_graph`."""
    return tosa.write(small_network())


@pytest.fixture
def command_line(tmp_path: Path) -> Callable[..., Path]:
    """command_line(program, target, *flags): runs Vela's command line on a TOSA file; the folder of its output."""
    from ethosu.vela import vela

    def run(program: bytes, target: str, *flags: str) -> Path:
        (tmp_path / "x.tosa").write_bytes(program)
        chosen = TARGETS[target]
        arguments = [f"--accelerator-config={target}", "--config=Arm/vela.ini", "--output-format=raw"]
        arguments += [f"--system-config={chosen.system_config}", f"--memory-mode={chosen.memory_mode}"]
        assert vela.main([*arguments, f"--output-dir={tmp_path}", *flags, str(tmp_path / "x.tosa")]) == 0
        return tmp_path

    return run


@pytest.fixture(scope="session")
def stock_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files written by stock ExecuTorch's Arm backend: see stock_lowering.py."""
    pytest.importorskip("executorch.backends.arm", reason="stock ExecuTorch is not installed")
    pytest.importorskip("tosa_serializer", reason="tosa-tools is not installed")
    folder = tmp_path_factory.mktemp("stock")
    script = Path(__file__).with_name("stock_lowering.py")
    command = [sys.executable, str(script), str(folder), "ethos-u55-128", "ethos-u65-512", "ethos-u85-256"]
    subprocess.run(command, check=True, capture_output=True)
    return folder
