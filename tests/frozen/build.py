"""Builds the wheels and files of this folder from the repository's history: plugins as they were, frozen.

    python tests/frozen/build.py            build what is missing
    python tests/frozen/build.py --check    build all again, and say what differs

A wheel is built by hatchling from a commit's sources, a .pte made by that commit's core with the installed PyTorch.
When the plugin API gets a new version, a line in `LAST` and one in `FROZEN` freeze what was the last with the old.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]


@dataclass(frozen=True)
class Frozen:
    """A plugin as it was."""

    #: The API version that the plugin declares.
    api: str
    backend: str
    #: The folder of the package in the repository.
    package: str
    #: The commit with its sources.
    commit: str
    #: Names of the networks of `encounter.py` whose files are kept.
    networks: tuple[str, ...]
    #: Largest deviation from eager relative to the largest number: half-precision backends have more.
    tolerance: float = 1e-5

    @property
    def folder(self) -> Path:
        """The folder with its wheel and its files."""
        return FOLDER / f"{self.backend}-{self.api}"

    @property
    def wheel(self) -> Path:
        """Its wheel."""
        return self.folder / f"delegatekit_{self.backend}-0.1.0-py3-none-any.whl"


#: API version -> the last commit with it.
LAST: Final = {
    "2.0": "00da7210cd3fca54d6e850b2465efd44e2e565e3",
    "2.1": "42d26a1885ffdd06629ed83cbf1716be367d74e3",
    "2.2": "e701265f60c0c514ddad799c978669df893e95fd",
    "2.3": "2a660413c211034792a2c5f21e591a2bcd3af34e",
    "2.4": "70e61f9ac5b6f8b035a2712c8e1990d8a5c8c0c3",
}

FROZEN: Final = (
    Frozen("2.0", "demo", "examples/minimal_backend", LAST["2.0"], ("sums",)),
    Frozen("2.0", "reference", "plugins/reference", LAST["2.0"], ("sums", "layers", "rows")),
    # The first plugin that declared 2.1 did so late.
    Frozen("2.1", "qnn", "plugins/qnn", LAST["2.3"], ("layers",), 1e-2),
    Frozen("2.2", "reference", "plugins/reference", LAST["2.2"], ("sums", "layers", "rows")),
    Frozen("2.2", "xnnpack", "plugins/xnnpack", LAST["2.2"], ("layers", "rows", "products-int8")),
    Frozen("2.3", "ethosu", "plugins/ethosu", LAST["2.3"], ("products-int8",)),
    Frozen("2.4", "xnnpack", "plugins/xnnpack", LAST["2.4"], ("layers", "rows", "products-int8")),
)


@contextmanager
def history(commit: str) -> Iterator[Path]:
    """The sources of a commit, in a folder for as long. Raises LookupError for a clone without its history."""
    git = ["git", "-C", str(ROOT)]
    if subprocess.run([*git, "cat-file", "-e", commit], capture_output=True, check=False).returncode:
        raise LookupError(f"this clone does not have the commit {commit}: git fetch --unshallow")
    packed = subprocess.run([*git, "archive", commit], capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(name, filter="data")
        yield Path(name)


def wheel_of(package: Path, folder: Path) -> Path:
    """The wheel of a package, built into a folder that has none."""
    line = [sys.executable, "-m", "build", "--quiet", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*line, str(package)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def sources(tree: Path) -> list[str]:
    """The folders that make a tree's packages importable, without plugins: API, toolkit, core and tools."""
    return [str(path) for name in ("plugin_api", "toolkit", "core", "tools") if (path := tree / name / "src").is_dir()]


def unpacked(wheel: Path, folder: Path) -> Path:
    """A wheel as an installer would leave it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def encounter(
    step: str, backend: str, networks: Sequence[str], site: Path, files: Path, paths: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run `encounter.py` with the plugin in `site`, and the packages of these paths."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), *paths]),
        "DELEGATEKIT_BACKENDS": backend,
        "DELEGATEKIT_CACHE": "off",
        "DELEGATEKIT_COMPILED": "off",
        "DELEGATEKIT_FIRST_IMPORTS": "off",
    }
    line = [sys.executable, str(FOLDER / "encounter.py"), step, backend, str(files), *networks]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)


def build(frozen: Frozen, folder: Path) -> None:
    """Write a plugin's wheel and files into a folder."""
    with history(frozen.commit) as tree, tempfile.TemporaryDirectory() as site:
        unpacked(wheel_of(tree / frozen.package, folder), Path(site))
        result = encounter("make", frozen.backend, frozen.networks, Path(site), folder, sources(tree))
        if result.returncode:
            raise SystemExit(f"{frozen.folder.name}: {result.stderr}")


def content(path: Path) -> object:
    """The content of a file, of a wheel without what names the builder."""
    if path.suffix != ".whl":
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith(("/WHEEL", "/RECORD"))]
        return {name: archive.read(name) for name in names}


def main() -> int:
    """Build; the number of files that differ."""
    check = "--check" in sys.argv[1:]
    differences = 0
    for frozen in FROZEN:
        if not check and all((frozen.folder / f"{name}.pte").exists() for name in frozen.networks):
            continue
        if not check:
            frozen.folder.mkdir(exist_ok=True)
            build(frozen, frozen.folder)
            print(f"{frozen.folder.name}: {', '.join(path.name for path in sorted(frozen.folder.iterdir()))}")
            continue
        with tempfile.TemporaryDirectory() as name:
            build(frozen, Path(name))
            for path in sorted(Path(name).iterdir()):
                same = content(path) == content(frozen.folder / path.name)
                differences += not same
                print(f"{frozen.folder.name}/{path.name}: {'the same' if same else 'DIFFERENT'}")
    return differences


if __name__ == "__main__":
    raise SystemExit(main())
