"""The folder of a site: written whole or not at all, and never over what is not a site of ours."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import read_object

from ...errors import InputError

#: The index for programs: the records of a site, and the files that it consists of.
INDEX: Final = "site.json"
MADE_BY: Final = "delegatekit conform publish"


def check_folder(folder: Path) -> None:
    """Check that a site can be written to this path: nothing is there, an empty folder, or a site that this replaces.

    Raises InputError, also if the folder has files that are not the site's: they would be lost.
    """
    place = Path(os.path.realpath(folder))
    if place == Path.cwd() or place in Path.cwd().parents:
        raise InputError(
            "is the working folder, or has it inside", where=str(folder), hint="name a folder of the site's own"
        )
    if not os.path.lexists(place):
        if not place.parent.is_dir():
            raise InputError("the folder around it does not exist", where=str(folder), hint=f"create {place.parent}")
        return
    if not place.is_dir():
        raise InputError("exists, and is no folder", where=str(folder), hint="choose another name")
    found = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_symlink() or not path.is_dir()}
    if not found:
        return
    with suppress(OSError):
        site = read_object((place / INDEX).read_bytes()) if (place / INDEX).is_file() else {}
        files = site.get("files")
        if site.get("made_by") == MADE_BY and isinstance(files, list):
            others = sorted(found - {file for file in files if isinstance(file, str)})
            if not others:
                return
            raise InputError(
                f"has files that `{MADE_BY}` did not write: {', '.join(others[:3])}{' ...' if others[3:] else ''}",
                where=str(folder),
                hint="move them away, or choose another name",
            )
    raise InputError(f"exists, and `{MADE_BY}` did not make it", where=str(folder), hint="choose another name")


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a site to the path, in the place of one that is there. Raises what `check_folder` does, and FormatError."""
    check_folder(folder)
    place = Path(os.path.realpath(folder))
    with _reporting(folder):
        part, old = (place.with_name(f".{place.name[:56]}.{secrets.token_hex(4)}.{kind}") for kind in ("part", "old"))
        try:
            for name, data in files.items():
                path = part / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            if not place.exists():
                part.rename(place)
                return
            part.chmod(place.stat().st_mode & 0o7777)
            place.rename(old)
            try:
                part.rename(place)
            except BaseException:
                old.rename(place)
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _reporting(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FormatError(f"cannot be written: {error.strerror or error}", where=str(folder)) from error
