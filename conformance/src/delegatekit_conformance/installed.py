"""The files of a wheel and of an installed distribution, under one digest.

The digest is that of the wheel itself, so that whoever has the wheel can compute it: SHA-256 of what `sha256sum`
prints for its files, sorted by their names as bytes. Installers add files, rewrite some, and move others out of the
packages' folder; these are left out on both sides (`_counted`), and so is the record that a wheel carries of itself.
"""

from __future__ import annotations

import csv
import hashlib
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from delegatekit.files import open_archive, open_file
from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import read_object

#: The record that a wheel may carry, in the package of the plugin's module; its signature has `.minisig` after it.
RECORD: Final = "conformance-record.json"
#: The suffix of a signature, after the name of the file that is signed.
SIGNATURE: Final = ".minisig"
#: What installers write into a distribution's `.dist-info` folder.
_INSTALLERS: Final = frozenset(
    {"RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json", "provenance_url.json"}
    | {"uv_build.json", "uv_cache.json"}
)
#: The parts of a wheel's `.data` folder that become files beside the packages.
_LIBRARIES: Final = ("purelib", "platlib")
_BLOCK: Final = 1 << 20
#: Files that a message names.
_NAMED: Final = 3


@dataclass(frozen=True)
class Installation:
    """What is installed of a backend's distribution.

    `state` is "wheel" if the files are those of a wheel, as it was installed; else one of "editable", "changed" (a file
    is missing or is another one), "elsewhere" (the plugin's module is none of these files) and "unknown" (nothing says
    which files there are). `sha256` is the digest of a wheel's files, "" in all other states, which `reason` explains.
    """

    state: str = "unknown"
    sha256: str = ""
    #: Number of files under the digest.
    files: int = 0
    reason: str = ""


def of_wheel(path: Path) -> Installation:
    """The digest of a wheel file, as an installation of it would have it. Raises FormatError if it is none."""
    with open_archive(path, "wheel") as archive:
        if not any(name.endswith(".dist-info/RECORD") for name in archive.names):
            raise FormatError("is no wheel: it has no .dist-info/RECORD", where=str(path))
        files = [(counted, name) for name in archive.names if (counted := _counted(name)) is not None]
        found = {counted: hashlib.sha256(archive.read(name)).hexdigest() for counted, name in files}
    if len(found) < len(files):
        raise FormatError("has two files for one place", where=str(path))
    return Installation("wheel", _digest(found, str(path)), len(found))


def of_plugin(entry_point: Any) -> Installation:
    """What is installed of the distribution of an entry point, by the files as they are now. Imports nothing.

    If the module of the entry point is imported already, it must be one of these files.
    """
    distribution = entry_point.dist
    if distribution is None:
        return Installation(reason="nothing says which distribution it is of")
    direct = read_object((distribution.read_text("direct_url.json") or "").encode())
    if isinstance(direct.get("dir_info"), Mapping) and direct["dir_info"].get("editable"):
        return Installation("editable", reason="an editable installation: its files are those of a source folder")
    rows = _rows(distribution)
    if not rows:
        return Installation(reason="it has no RECORD of its files, which pip writes")
    root = Path(distribution.locate_file(""))
    if _elsewhere(entry_point.module, root, rows):
        return Installation("elsewhere", reason="the plugin's module is not among the distribution's files")
    found: dict[str, str] = {}
    changed = []
    for name, told in rows.items():
        try:
            found[name] = _hash_of(root / name)
        except (OSError, FormatError):
            changed.append(name)
            continue
        if told and told != _as_told(found[name]):
            changed.append(name)
    if changed:
        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        return Installation("changed", reason=f"not as it was installed: {', '.join(changed[:_NAMED])}{more}")
    try:
        return Installation("wheel", _digest(found, str(root)), len(found))
    except FormatError as error:
        return Installation(reason=error.what)


def carried(entry_point: Any) -> Path | None:
    """The file of the record that the wheel of a plugin carries, beside the plugin's module; None if there is none.

    Nothing is imported, and the file is not opened.
    """
    distribution, package = entry_point.dist, entry_point.module.rpartition(".")[0]
    if distribution is None or not package:
        return None
    path = Path(distribution.locate_file("/".join([*package.split("."), RECORD])))
    return path if path.is_file() else None


def _counted(name: str) -> str | None:
    """The place of a file of a wheel beside the packages; None if it does not count."""
    path = PurePosixPath(name)
    parts = path.parts
    if name.endswith("/") or path.is_absolute() or ".." in parts or "__pycache__" in parts:
        return None
    if path.name in (RECORD, RECORD + SIGNATURE) or (parts[0].endswith(".dist-info") and path.name in _INSTALLERS):
        return None
    if parts[0].endswith(".data"):
        return "/".join(parts[2:]) if len(parts) > 2 and parts[1] in _LIBRARIES else None
    return "/".join(parts)


def _digest(found: Mapping[str, str], where: str) -> str:
    """The digest of files: place, SHA-256 in hexadecimal."""
    odd = next((name for name in found if not name.isprintable() or "\\" in name), None)
    if odd is not None:
        raise FormatError(f"has a file whose name is not plain: {odd!r}", where=where)
    lines = sorted((name.encode(), digest.encode()) for name, digest in found.items())
    return hashlib.sha256(b"".join(digest + b"  " + name + b"\n" for name, digest in lines)).hexdigest()


def _rows(distribution: Any) -> dict[str, str]:
    """The files that count, by RECORD: place, hash as RECORD has it ("" if it has none)."""
    return dict(_read_rows((distribution.read_text("RECORD") or "").splitlines()))


def _read_rows(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    try:
        for row in csv.reader(lines):
            place = _counted(row[0]) if row and row[0] else None
            if place is not None:
                yield place, row[1] if len(row) > 1 else ""
    except csv.Error:
        return


def _elsewhere(module: str, root: Path, rows: Mapping[str, str]) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return False
    try:
        return Path(file).resolve().relative_to(root.resolve()).as_posix() not in rows
    except ValueError:
        return True


def _hash_of(path: Path) -> str:
    found = hashlib.sha256()
    with open_file(path) as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def _as_told(digest: str) -> str:
    """A digest as RECORD has it."""
    return "sha256=" + urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode()
