"""A plugin with files changed, for the processes that find it first: a folder of links to everything else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

_COMPILED = "__pycache__"


@contextmanager
def overlay(package: Path, changed: Mapping[str, bytes] = MappingProxyType({})) -> Iterator[Path]:
    """A temporary folder that has the package with files of this content.

    Only these files and the folders above them are real. Python's compiled code of the other files is reused, and
    that of the changed ones stays in here.
    """
    with TemporaryDirectory(prefix="conformance-mutant-") as top:
        _mirror(package, Path(top) / package.name, {tuple(file.split("/")): data for file, data in changed.items()})
        yield Path(top)


def _mirror(source: Path, target: Path, changed: Mapping[tuple[str, ...], bytes]) -> None:
    """Make the folder `target` of `source`; `changed` has the new contents of files, by the parts of their paths."""
    target.mkdir()
    folders = {first for first, *rest in changed if rest}
    for path in sorted(source.iterdir()):
        if path.name == _COMPILED:
            _mirror_compiled(path, target / _COMPILED, {Path(name).stem for name, *rest in changed if not rest})
        elif path.name in folders:
            inside = {tuple(rest): data for (first, *rest), data in changed.items() if first == path.name}
            _mirror(path, target / path.name, inside)
        elif (path.name,) in changed:
            (target / path.name).write_bytes(changed[path.name,])
        else:
            (target / path.name).symlink_to(path)


def _mirror_compiled(source: Path, target: Path, changed: AbstractSet[str]) -> None:
    """A real folder, so that Python writes into it and not into the plugin's own."""
    target.mkdir()
    for path in source.iterdir():
        if path.name.partition(".")[0] not in changed:
            (target / path.name).symlink_to(path)


def put_first(folder: str) -> None:
    """Let this process, and those that it starts, find the contents of the folder before all else."""
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    invalidate_caches()
