"""The digest of a wheel: the same of the file, of what pip installs of it, and by `sha256sum`."""

from __future__ import annotations

import hashlib
import importlib
import shutil
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import importlib_metadata
import pytest

from delegatekit_api import FormatError
from delegatekit_conformance.installed import RECORD, SIGNATURE, Installation, carried, of_plugin, of_wheel

INFO = "acme_npu-1.0.dist-info"
DATA = "acme_npu-1.0.data"
FILES = {
    "acme_npu/__init__.py": b"",
    "acme_npu/plugin.py": b"NAME = 'acme'\n",
    "acme_npu/deep/table (1).bin": bytes(range(256)),
    f"{DATA}/purelib/acme_more.py": b"MORE = 1\n",
    f"{DATA}/scripts/acme-tool": b"#!python\nprint('tool')\n",
    f"{DATA}/data/share/acme.txt": b"shared\n",
    f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: acme-npu\nVersion: 1.0\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{INFO}/entry_points.txt": b"[console_scripts]\nacme = acme_npu.plugin:main\n"
    b"[delegatekit.backends]\nacme = acme_npu.plugin\n",
    f"{INFO}/licenses/LICENSE": b"free\n",
}


def build(folder: Path, files: Mapping[str, bytes] = FILES) -> Path:
    """A wheel of these files, with a RECORD."""
    rows = [
        f'"{name}",sha256={urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()},{len(data)}'
        for name, data in files.items()
    ]
    record = "\n".join([*rows, f"{INFO}/RECORD,,", ""])
    folder.mkdir(exist_ok=True)
    path = folder / "acme_npu-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in [*files.items(), (f"{INFO}/RECORD", record.encode())]:
            archive.writestr(name, data)
    return path


def install(wheel: Path, folder: Path) -> Any:
    """The entry point of the wheel's backend, installed by pip into a folder."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-warn-script-location",
    ]
    subprocess.run([*command, "--target", str(folder), str(wheel)], check=True, capture_output=True)
    return entry_point(folder)


def entry_point(folder: Path) -> Any:
    (found,) = importlib_metadata.distributions(name="acme-npu", path=[str(folder)])
    return next(item for item in found.entry_points if item.group == "delegatekit.backends")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(wheel, folder)
    return folder


@pytest.fixture
def copied(site: Path, tmp_path: Path) -> Path:
    """A copy of the installation, to be changed."""
    return Path(shutil.copytree(site, tmp_path / "copy"))


def test_what_pip_installs_has_the_digest_of_the_wheel(wheel: Path, site: Path) -> None:
    found = of_wheel(wheel)
    assert found.state == "wheel"
    assert found.files == 8, "without the script, the shared file and RECORD"
    assert of_plugin(entry_point(site)) == found
    assert (site / "bin" / "acme").exists(), "pip made a file that does not count"


def test_sha256sum_computes_the_same_digest(wheel: Path, tmp_path: Path) -> None:
    if shutil.which("sha256sum") is None:
        pytest.skip("sha256sum is not installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    (tmp_path / DATA / "purelib" / "acme_more.py").rename(tmp_path / "acme_more.py")
    shutil.rmtree(tmp_path / DATA)
    script = (
        f"find . -type f ! -path './*.dist-info/RECORD' ! -name '{RECORD}*' -printf '%P\\0' "
        "| LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    )
    told = subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert told.split()[0] == of_wheel(wheel).sha256


def test_a_record_in_the_wheel_does_not_change_the_digest(wheel: Path, tmp_path: Path) -> None:
    more = {f"acme_npu/{RECORD}": b"{}\n", f"acme_npu/{RECORD}{SIGNATURE}": b"untrusted comment: x\n"}
    other = build(tmp_path / "carrying", {**FILES, **more})
    assert of_wheel(other) == of_wheel(wheel)
    installed = install(other, tmp_path / "site")
    assert of_plugin(installed) == of_wheel(wheel)
    assert carried(installed) == tmp_path / "site" / "acme_npu" / RECORD


def test_another_byte_or_another_name_is_another_digest(wheel: Path, tmp_path: Path) -> None:
    changed = {**FILES, "acme_npu/plugin.py": b"NAME = 'acmf'\n"}
    renamed = {("acme_npu/plugins.py" if name.endswith("plugin.py") else name): data for name, data in FILES.items()}
    digests = {of_wheel(build(tmp_path / str(number), files)).sha256 for number, files in enumerate((changed, renamed))}
    assert len(digests | {of_wheel(wheel).sha256}) == 3


def test_a_changed_or_missing_file_is_named(copied: Path) -> None:
    (copied / "acme_npu" / "plugin.py").write_text("NAME = 'other'\n")
    (copied / "acme_more.py").unlink()
    found = of_plugin(entry_point(copied))
    assert (found.state, found.sha256) == ("changed", "")
    assert "acme_npu/plugin.py" in found.reason
    assert "acme_more.py" in found.reason


def test_compiled_modules_and_what_installers_write_do_not_count(copied: Path, wheel: Path) -> None:
    record = copied / INFO / "RECORD"
    (copied / INFO / "uv_cache.json").write_text("{}")
    record.write_text(
        record.read_text()
        + f"acme_npu/__pycache__/plugin.cpython-311.pyc,,\n{INFO}/uv_cache.json,,\n/etc/passwd,,\n../../outside.py,,\n"
    )
    assert of_plugin(entry_point(copied)) == of_wheel(wheel)


def test_an_editable_installation_has_no_digest(copied: Path) -> None:
    (copied / INFO / "direct_url.json").write_text('{"url": "file:///acme", "dir_info": {"editable": true}}')
    found = of_plugin(entry_point(copied))
    assert (found.state, found.sha256) == ("editable", "")
    assert "editable" in found.reason


@pytest.mark.parametrize("record", [None, "", "\0\x1f"])
def test_an_installation_without_a_list_of_its_files_has_no_digest(copied: Path, record: str | None) -> None:
    path = copied / INFO / "RECORD"
    if record is None:
        path.unlink()
    else:
        path.write_text(record)
    assert of_plugin(entry_point(copied)).sha256 == ""


def test_a_module_from_elsewhere_is_told(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "source" / "acme_npu"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "plugin.py").write_text("NAME = 'source'\n")
    monkeypatch.syspath_prepend(str(package.parent))
    importlib.invalidate_caches()
    importlib.import_module("acme_npu.plugin")
    try:
        assert of_plugin(entry_point(site)).state == "elsewhere"
    finally:
        for name in ("acme_npu", "acme_npu.plugin"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04" + bytes(60)])
def test_what_is_no_wheel_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.whl"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="is no wheel"):
        of_wheel(path)


def test_a_zip_without_record_and_names_that_end_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.py", b"")
    with pytest.raises(FormatError, match="is no wheel"):
        of_wheel(path)
    with pytest.raises(FormatError, match="name is not plain"):
        of_wheel(build(tmp_path / "lines", {**FILES, "acme_npu/a\nb.py": b""}))
    with pytest.raises(FormatError, match="two files for one place"):
        of_wheel(build(tmp_path / "twice", {**FILES, "acme_more.py": b""}))


def test_nothing_is_known_without_a_distribution() -> None:
    point = importlib_metadata.EntryPoint("acme", "acme_npu.plugin", "delegatekit.backends")
    assert of_plugin(point) == Installation(reason="nothing says which distribution it is of")
    assert carried(point) is None
