"""Fixtures of the tests: a process in which our delegates are registered with stock ExecuTorch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from packages import Package

ROOT = Path(__file__).parents[3]

#: Puts the example backend on the path, as if it were installed, and registers all delegates.
REGISTER = """
import sys, torch
sys.path[:0] = {paths!r}
import delegatekit_executorch.host as host
"""

#: Loads each of the files in stock's runtime, calls it, and saves what it returns.
RUN = """
from executorch.runtime import Runtime
source, inputs, target = sys.argv[1:]
program = Runtime.get().load_program(source)
method = program.load_method("forward")
results = [[value.clone() for value in method.execute(call)] for call in torch.load(inputs)]
del method, program
torch.save(results, target)
"""


@pytest.fixture(scope="session")
def example_paths(
    write_metadata: Callable[[Path, Package], Path], tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """The folders that make the example backend "demo" an installed one."""
    package = Package(ROOT / "examples" / "minimal_backend")
    return [str(package.source), str(write_metadata(tmp_path_factory.mktemp("metadata"), package))]


@pytest.fixture(scope="module")
def host_process(stock_process: Any, example_paths: list[str]) -> Iterator[Callable[..., str]]:
    """Runs a script's text in a process of its own, in which `host` is registered; returns what it prints."""
    pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")
    process = type(stock_process)()
    head = REGISTER.format(paths=example_paths)
    yield lambda script, *arguments: process.run(head + script, *arguments)
    process.stop()


@pytest.fixture
def python(example_paths: list[str], tmp_path: Path) -> Callable[..., str]:
    """Runs a script's text in a process of its own that ends after it; returns what it prints."""
    pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")

    def run(script: str, *arguments: str | Path) -> str:
        path = tmp_path / "script.py"
        path.write_text(REGISTER.format(paths=example_paths) + script)
        command = [sys.executable, str(path), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def run_hosted(host_process: Callable[..., str], tmp_path: Path) -> Callable[..., list[list[torch.Tensor]]]:
    """run_hosted(data, calls): the outputs of each call of the method "forward" of a file in stock's runtime."""

    def run(data: bytes, calls: Sequence[Sequence[torch.Tensor]]) -> list[list[torch.Tensor]]:
        source, inputs, target = (tmp_path / name for name in ("file.pte", "inputs.pt", "outputs.pt"))
        source.write_bytes(data)
        torch.save([tuple(call) for call in calls], inputs)
        host_process(RUN, source, inputs, target)
        return list(torch.load(target))

    return run


@pytest.fixture
def demo(from_source: Any) -> Iterator[str]:
    """The example backend, which adds and multiplies: its name."""
    with from_source(ROOT / "examples" / "minimal_backend"):
        yield "demo"
