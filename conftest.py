"""Fixtures that the tests of several packages share."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Every lowering of the tests checks what one stage hands to the next.
os.environ.setdefault("DELEGATEKIT_VERIFY", "1")

#: A plugin that is ready; replace parts of it to break it.
PLUGIN = """
from delegatekit_api import *

@hookimpl
def describe_backend():
    return BackendDescription("{name}", "{name}Backend", "delegatekit-{name}", "1.2", "a test backend")
"""

InstallPlugin = Callable[..., Path]


def write_distribution(
    folder: Path,
    name: str,
    source: str | None = None,
    *,
    group: str = "delegatekit.backends",
    distribution: str | None = None,
    version: str = "1.2",
    metadata: str = "",
) -> Path:
    """Write what an installer would: a module and the dist-info whose entry point `name` is the module.

    `metadata` is further lines of its METADATA.
    """
    distribution = distribution or f"delegatekit-{name}"
    stem = distribution.replace("-", "_")
    folder.mkdir(parents=True, exist_ok=True)
    text = textwrap.dedent(PLUGIN.format(name=name) if source is None else source)
    (folder / f"{stem}_plugin.py").write_text(text)
    info = folder / f"{stem}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n{metadata}")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {stem}_plugin\n")
    return folder


@pytest.fixture
def write_plugin() -> Callable[..., Path]:
    """`write_distribution`, for tests that put the folder on a path themselves."""
    return write_distribution


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InstallPlugin]:
    """Installs plugins (see `write_distribution`) for this test; each gets a folder of its own on sys.path."""
    from delegatekit.plugins import discovery

    known = set(sys.modules)
    count = 0

    def install(name: str, source: str | None = None, **more: str) -> Path:
        nonlocal count
        count += 1
        folder = write_distribution(tmp_path / f"site{count}", name, source, **more)
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        discovery.refresh()
        return folder

    yield install
    for module in set(sys.modules) - known:
        if module.endswith("_plugin"):
            del sys.modules[module]
    monkeypatch.undo()
    importlib.invalidate_caches()
    discovery.refresh()


@pytest.fixture(scope="session")
def stock_external(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files with weights outside, written by stock ExecuTorch: see tests/stock_external.py."""
    pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")
    folder = tmp_path_factory.mktemp("stock_external")
    script = Path(__file__).parent / "tests" / "stock_external.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True, capture_output=True)
    return folder
