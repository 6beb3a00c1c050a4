"""The second driver: downloads are checked, and the file of its differences includes those of every driver."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from delegatekit_conformance import expectations

from . import swiftshader

DIFFERENCES = Path(__file__).with_name("swiftshader.toml")


def test_the_differences_include_those_of_every_driver() -> None:
    """`--expectations` replaces the file in the backend's wheel."""
    listed = {(entry.cases, entry.reason) for entry in expectations.load("vulkan", DIFFERENCES).entries}
    assert listed >= {(entry.cases, entry.reason) for entry in expectations.load("vulkan").entries}


def fake(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An npm that runs this script; its last argument is the folder of the package."""
    folder.mkdir()
    for name, text in (("npm", script), ("node", "exit 1")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('for last; do :; done; echo other > "$last/package.tgz"', "has changed: its sha512 is"),
        ("echo no network >&2; exit 1", "npm could not fetch .*: no network"),
    ],
)
def test_what_is_not_the_pinned_package_is_refused(
    script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path / "bin", monkeypatch, script)
    with pytest.raises(SystemExit, match=words):
        swiftshader.main([str(tmp_path / "driver")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]


def test_a_missing_npm_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="apt-get install npm"):
        swiftshader.main([str(tmp_path / "driver")])


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_driver_is_unpacked(tmp_path: Path) -> None:
    inner = archive({swiftshader.MANIFEST: b"{}"})
    compress = "process.stdout.write(require('zlib').brotliCompressSync(require('fs').readFileSync(0)))"
    packed = subprocess.run(["node", "-e", compress], input=inner, capture_output=True, check=True).stdout
    package = tmp_path / "package.tgz"
    package.write_bytes(archive({swiftshader.ARCHIVE: packed}))
    swiftshader.unpack(package, tmp_path / "driver")
    assert (tmp_path / "driver" / swiftshader.MANIFEST).read_bytes() == b"{}"


def archive(files: dict[str, bytes]) -> bytes:
    """A tar of these files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()
