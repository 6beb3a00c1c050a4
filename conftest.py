"""Fixtures that the tests of several packages share."""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

_ROOT = Path(__file__).parent
# packages.py, and the helper modules of each package's tests, which those of others may use: no two have one name.
sys.path[:0] = [
    str(_ROOT),
    *(str(path) for pattern in ("tests", "*/tests", "integrations/*/tests") for path in sorted(_ROOT.glob(pattern))),
]

if TYPE_CHECKING:
    from packages import Package

# Every lowering of the tests checks what one stage hands to the next.
os.environ.setdefault("DELEGATEKIT_VERIFY", "1")
# Plugins that tests write are new each time: a process for the first import of each would cost minutes.
os.environ.setdefault("DELEGATEKIT_FIRST_IMPORTS", "off")
# Compilers under test compile, each time.
os.environ.setdefault("DELEGATEKIT_COMPILED", "off")

# What torch and sympy keep is searched for garbage again and again otherwise: a twentieth of the tests' time.
gc.set_threshold(100_000, 10, 100)


#: Of the cases of a test that is marked `sweep`, one in this many runs without the slow ones.
_SWEPT = 4


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make most cases of a sweep slow: which, their names say, so that they are the same everywhere."""
    for item in items:
        if item.get_closest_marker("sweep") is not None and zlib.crc32(item.name.encode()) % _SWEPT:
            item.add_marker("slow")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before the fixtures of a test."""
    _stop_tracing()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Before a test."""
    _stop_tracing()


def _stop_tracing() -> None:
    """Nobody reads torch's structured trace here, but pytest listens to every logger, and torch then writes it."""
    logging.getLogger("torch.__trace").handlers.clear()


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


@pytest.fixture(scope="session")
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


FromSource = Callable[[Path], AbstractContextManager[None]]


@pytest.fixture(scope="session")
def from_source(tmp_path_factory: pytest.TempPathFactory) -> FromSource:
    """from_source(folder): the package of this folder counts as installed meanwhile, if it is not installed anyway."""
    from importlib_metadata import PackageNotFoundError, distribution
    from packages import Package

    from delegatekit.plugins import discovery

    @contextmanager
    def installed(folder: Path) -> Iterator[None]:
        package = Package(folder)
        try:
            distribution(package.distribution)
        except PackageNotFoundError:
            pass
        else:
            yield
            return
        added = [str(package.source), str(write_dist_info(tmp_path_factory.mktemp("metadata"), package))]
        sys.path[:0] = added
        importlib.invalidate_caches()
        discovery.refresh()
        yield
        for path in added:
            sys.path.remove(path)
        for name in [name for name in sys.modules if name.partition(".")[0] == package.module]:
            del sys.modules[name]
        importlib.invalidate_caches()
        discovery.refresh()

    return installed


@pytest.fixture(scope="session")
def write_metadata() -> Callable[[Path, Package], Path]:
    """`write_dist_info`, for tests that put the folder on a path themselves."""
    return write_dist_info


def write_dist_info(folder: Path, package: Package) -> Path:
    """Write the dist-info that an installer would make of a package's pyproject.toml; returns the folder."""
    version = package.project["version"]
    info = folder / f"{package.module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.distribution}\nVersion: {version}\n")
    groups = package.project.get("entry-points", {})
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
    return folder


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """once(name, make): a folder that make(folder) has filled, in whichever of the test processes first needed it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder = shared / f"once-{name}"
        with (shared / f"once-{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                unfinished = tmp_path_factory.mktemp(name)
                make(unfinished)
                unfinished.rename(folder)
        return folder

    return made


class StockProcess:
    """A process in which stock ExecuTorch is imported, at the first script that does it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, script: str | Path, *arguments: str | Path) -> str:
        """Run a script, given as its file or its text; returns what it prints. Raises AssertionError if it fails."""
        if self._process is None:
            server = Path(__file__).parent / "tests" / "stock_process.py"
            command = [sys.executable, str(server)]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        source, name = (script.read_text("utf-8"), str(script)) if isinstance(script, Path) else (script, "script")
        print(json.dumps([source, name, [*map(str, arguments)]]), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"{name} ended the process"
        printed, error = json.loads(line)
        assert not error, error
        return str(printed)

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture(scope="session")
def stock_process() -> Iterator[StockProcess]:
    """Runs scripts that need stock ExecuTorch's own lowering: importing it takes long, so one process runs them all."""
    process = StockProcess()
    yield process
    process.stop()


@pytest.fixture(scope="session")
def stock_external(once: Once, stock_process: StockProcess) -> Path:
    """A folder of files with weights outside, written by stock ExecuTorch: see tests/stock_external.py."""
    pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")
    script = Path(__file__).parent / "tests" / "stock_external.py"
    return once("stock_external", lambda folder: stock_process.run(script, folder))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser, for pages that we write."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium is installed (Debian: apt-get install chromium)")
    try:
        playwright = importlib.import_module("playwright.sync_api")
    except ImportError:
        pytest.skip("playwright is not installed (pip install playwright)")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


#: The colors of a theme by name, and the pairs of a ground and its text: ("good", "on-good").
ThemeColors = tuple[dict[str, str], list[tuple[str, str]]]


@pytest.fixture(scope="session")
def theme_colors() -> Callable[[Path, int], ThemeColors]:
    """The colors of a style sheet of ours: theme 0 is light, 1 dark."""

    def read(path: Path, theme: int) -> ThemeColors:
        themes = re.findall(r":root \{(.*?)\}", path.read_text("utf-8"), re.DOTALL)
        colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", themes[theme]))
        return colors, [(name, f"on-{name}") for name in colors if f"on-{name}" in colors]

    return read


@pytest.fixture(scope="session")
def contrast() -> Callable[[str, str], float]:
    """The contrast ratio of WCAG 2 of two colors, "#1a2b3c"."""

    def luminance(color: str) -> float:
        channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def ratio(one: str, other: str) -> float:
        dark, light = sorted((luminance(one), luminance(other)))
        return (light + 0.05) / (dark + 0.05)

    return ratio


@pytest.fixture
def command_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], Callable[..., Any]]]:
    """Makes what calls the command in a folder with this `models.py`: gives what was printed, as `out` and `err`."""
    from delegatekit import cli as command_line  # not before the environment variables above are set

    def call(*arguments: str, code: int = 0) -> Any:
        monkeypatch.setattr(sys, "argv", ["delegatekit", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            command_line.main()
        captured = capsys.readouterr()
        assert (end.value.code or 0) == code, captured.out + captured.err
        return captured

    def make(models: str) -> Callable[..., Any]:
        (tmp_path / "models.py").write_text(models)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        return call

    yield make
    sys.modules.pop("models", None)
