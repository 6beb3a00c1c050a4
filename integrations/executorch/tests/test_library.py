"""The native library of the host: another version of ExecuTorch, and a missing compiler, are one clear error each."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from delegatekit_api import RuntimeUnavailableError
from delegatekit_executorch.native import building, library
from delegatekit_executorch.native.building import EXECUTORCH, NAME

#: Imports the host with another version of ExecuTorch "installed", and tells what was loaded of it.
OTHER_VERSION = """
import sys
from importlib import metadata
version = metadata.version
metadata.version = lambda name: "1.6.0+cpu" if name == "executorch" else version(name)
try:
    import delegatekit_executorch.host
except Exception as error:
    print(type(error).__name__, error, sep="|")
print([name for name in sys.modules if name.startswith("executorch.extension")])
"""


def test_another_version_is_refused_before_anything_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", OTHER_VERSION], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told, loaded = done.stdout.strip().rsplit("\n", 1)
    assert told.startswith("RuntimeUnavailableError|")
    assert f"is for executorch {EXECUTORCH}, and 1.6.0+cpu is installed" in told
    assert f"pip install executorch=={EXECUTORCH}" in told
    assert loaded == "[]"


@pytest.mark.parametrize("version", [f"{EXECUTORCH}+cpu", EXECUTORCH])
def test_builds_of_the_right_version_are_taken(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    library.check_version()


def test_a_missing_executorch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(RuntimeUnavailableError, match=f"is not installed(.|\n)*pip install executorch=={EXECUTORCH}"):
        library.check_version()


@pytest.fixture
def nothing_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, a package without the library, and a PATH without programs."""
    if library.SOURCE.with_name(NAME).is_file():
        monkeypatch.setattr(library, "NAME", "lib_that_is_not_here.so")
    monkeypatch.setenv("DELEGATEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path


def test_a_missing_compiler_is_one_error_that_says_what_helps(nothing_built: Path) -> None:
    with pytest.raises(RuntimeUnavailableError) as refusal:
        library.library_path()
    assert "there is no C++ compiler" in refusal.value.what
    assert refusal.value.where == "delegatekit_executorch.host"
    assert refusal.value.hint is not None and "apt-get install g++" in refusal.value.hint
    assert "a wheel of delegatekit-executorch" in refusal.value.hint
    assert not list(nothing_built.rglob("*.so")) and not list(nothing_built.rglob("*.part"))


def test_a_compiler_that_cxx_names_and_is_not_there(nothing_built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "icpx -O3")
    with pytest.raises(RuntimeUnavailableError, match="CXX names icpx, which is not there"):
        library.library_path()


def test_what_a_compiler_says_is_told(nothing_built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = nothing_built / "broken"
    broken.write_text("#!/bin/sh\necho 'no space left on device' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(RuntimeUnavailableError, match=r"exit code 3:\nno space left on device") as refusal:
        library.library_path()
    assert refusal.value.hint is not None and "C++17" in refusal.value.hint
    assert not list(nothing_built.rglob("*.so"))


@pytest.mark.parametrize("file", ["include/executorch/runtime/backend/interface.h", "lib/libexecutorch.so"])
def test_a_wheel_without_headers_or_library_is_named(file: str, tmp_path: Path) -> None:
    for name in ("include/executorch/runtime/backend/interface.h", "lib/libexecutorch.so"):
        if name != file:
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).touch()
    if not sys.platform.startswith("linux"):
        pytest.skip("ExecuTorch's wheels have the library on Linux only")
    with pytest.raises(building.BuildError, match=f"the installed executorch has no {file}"):
        building.command_for(tmp_path, tmp_path / "library.so")
