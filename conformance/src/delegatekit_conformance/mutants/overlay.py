"""A plugin with one file changed, for the processes that find it first: a folder of links to everything else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path
from tempfile import TemporaryDirectory

_COMPILED = "__pycache__"


@contextmanager
def overlay(package: Path, file: str = "", content: bytes = b"") -> Iterator[Path]:
    """A temporary folder that has the package with `file` of this content; no file: with nothing changed.

    Only the file and the folders above it are real. What Python has compiled of the other files is used again, and
    what it compiles of the changed one stays in here.
    """
    with TemporaryDirectory(prefix="conformance-mutant-") as top:
        _mirror(package, Path(top) / package.name, tuple(filter(None, file.split("/"))), content)
        yield Path(top)


def _mirror(source: Path, target: Path, changed: tuple[str, ...], content: bytes) -> None:
    target.mkdir()
    for path in sorted(source.iterdir()):
        if path.name == _COMPILED:
            _mirror_compiled(path, target / _COMPILED, changed)
        elif changed and path.name == changed[0]:
            if len(changed) > 1:
                _mirror(path, target / path.name, changed[1:], content)
            else:
                (target / path.name).write_bytes(content)
        else:
            (target / path.name).symlink_to(path)


def _mirror_compiled(source: Path, target: Path, changed: tuple[str, ...]) -> None:
    """A real folder, so that Python writes into it and not into the plugin's own."""
    target.mkdir()
    stem = Path(changed[0]).stem if len(changed) == 1 else ""
    for path in source.iterdir():
        if path.name.partition(".")[0] != stem:
            (target / path.name).symlink_to(path)


def put_first(folder: str) -> None:
    """Let this process, and those that it starts, find what is in the folder before all else."""
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    invalidate_caches()
