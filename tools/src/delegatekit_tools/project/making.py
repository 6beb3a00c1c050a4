"""A backend's project: made of the template, and brought to the present one."""

from __future__ import annotations

import keyword
import os
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from delegatekit.errors import Misuse
from delegatekit_api import DelegateKitError

from .templates import ANSWERS, DEFAULT, EARLIER, TEMPLATES, Template

#: The variable that tells copier where to keep repositories.
_CACHE: Final = "COPIER_CACHE_DIR"
#: copier's mark of a place where the project and the template changed the same lines.
_CONFLICT: Final = "<<<<<<< before updating"


class ProjectError(DelegateKitError, Misuse):
    """A project cannot be made or updated as asked."""


@dataclass(frozen=True)
class Project:
    """A project that was made or updated."""

    folder: Path
    name: str
    #: The template's name.
    template: str
    #: The version of the template, and the one before an update ("" for a new project).
    version: str
    before: str = ""
    #: Files in which the project and the template changed the same lines: both stand there, marked.
    conflicts: tuple[Path, ...] = ()


def create(name: str, folder: Path, *, template: str = DEFAULT, native: bool = False) -> Project:
    """Make the project of a backend in a new or empty folder; with `native` it has kernels in C.

    Raises ProjectError for a name that no package can have, for a template that does not exist or has no kernels, for a
    folder that has files, and without copier or git.
    """
    made_by = TEMPLATES.get(template)
    if made_by is None:
        raise ProjectError(f"there is no template {template!r:.80}", hint=f"templates are {', '.join(TEMPLATES)}")
    if native and not made_by.takes_native:
        takes = ", ".join(name for name, item in TEMPLATES.items() if item.takes_native)
        raise ProjectError(
            f"the template {template} has no kernels in C: the library is what computes",
            hint=f"leave out native, or choose the template {takes}",
        )
    reason = _obstacle(name)
    if reason:
        raise ProjectError(
            f"{name!r} cannot be the name of a backend: {reason}", hint="a name is like acme, or acme_npu"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectError(f"{folder} exists and is not empty", hint="choose another folder")
    answers: dict[str, Any] = {"name": name, "title": name.replace("_", " ").title().replace(" ", "")}
    if made_by.takes_native:
        answers["native"] = native
    with _copier(made_by) as copier:
        copier.run_copy(made_by.address, folder, answers, vcs_ref=f"v{made_by.present}", defaults=True, quiet=True)
    return Project(folder, name, template, made_by.present)


def update(folder: Path, *, earlier: Path = EARLIER) -> Project:
    """Bring a project to the present version of the template that made it, its own changes kept.

    The folder must be in a git repository without changes that are not committed. Raises ProjectError for one that no
    template made, for a newer version than this, and without copier or git; nothing is changed then.
    """
    answers = _answers(folder)
    _library("copier")
    before = str(answers.get("_commit", "")).removeprefix("v")
    name = str(answers.get("name", ""))
    made_by = next((item for item in TEMPLATES.values() if item.address == answers.get("_src_path")), None)
    if made_by is None:
        raise ProjectError(f"{folder} was made by another template: {str(answers.get('_src_path'))!r:.80}")
    versions = made_by.versions(earlier)
    if before not in versions:
        raise ProjectError(
            f"{folder} was made by version {before or '?'} of the template {made_by.name}, which is not among those "
            f"known here: {', '.join(versions)}",
            hint="pip install --upgrade delegatekit-tools",
        )
    changed = _changed(folder)
    if changed:
        raise ProjectError(
            f"{folder} has changes that are not committed: {changed[0]}", hint="commit them, so that they can be kept"
        )
    with _copier(made_by, earlier) as copier:
        copier.run_update(
            folder, answers_file=ANSWERS, vcs_ref=f"v{made_by.present}", defaults=True, overwrite=True, quiet=True
        )
    return Project(folder, name, made_by.name, made_by.present, before, tuple(_conflicts(folder)))


def _obstacle(name: str) -> str | None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        return "it must be lower-case letters, digits and single underscores, and begin with a letter"
    if keyword.iskeyword(name):
        return "it is a word of Python"
    return "it has more than 40 characters" if len(name) > 40 else None


def _answers(folder: Path) -> dict[str, Any]:
    path = folder / ANSWERS
    if not path.is_file():
        raise ProjectError(f"{folder} has no {ANSWERS}: `delegatekit new` did not make it")
    yaml = _library("yaml")
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ProjectError(f"{path} is damaged: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict):
        raise ProjectError(f"{path} is damaged: it has no answers")
    return found


def _changed(folder: Path) -> list[str]:
    done = subprocess.run(
        ["git", "status", "--porcelain", "--", "."], cwd=folder, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise ProjectError(
            f"{folder} is not in a git repository",
            hint="git init && git add . && git commit: an update keeps what was changed since the project was made",
        )
    return [line[3:] for line in done.stdout.splitlines()]


def _conflicts(folder: Path) -> Iterator[Path]:
    """The files that have copier's marks, or whose changes it could not apply."""
    command = ["git", "diff", "--name-only", "--relative"]
    listed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    for line in sorted(set(listed.stdout.splitlines())):
        path = folder / line
        if path.is_file() and _CONFLICT in path.read_text("utf-8", errors="replace"):
            yield Path(line)


@contextmanager
def _copier(template: Template, earlier: Path = EARLIER) -> Iterator[ModuleType]:
    """copier, which finds the template at its address. What it or git refuses is a ProjectError."""
    copier, plumbum = _library("copier"), _library("plumbum")
    if shutil.which("git") is None:
        raise ProjectError("git is not installed, by which projects are updated", hint="apt-get install git")
    try:
        with tempfile.TemporaryDirectory(prefix="delegatekit-new-") as place:
            environment = template.repository(Path(place, "template"), earlier)
            # copier calls git by plumbum, and keeps what it fetched from an address: only as long as this template.
            with plumbum.local.env(**environment), _cache(Path(place, "cache")):
                yield copier
    except (subprocess.CalledProcessError, plumbum.ProcessExecutionError) as error:
        said = (error.stderr or "").strip().splitlines()
        raise ProjectError(f"git failed: {said[-1] if said else error}") from error
    except copier.errors.CopierError as error:
        raise ProjectError(f"the template cannot be applied: {error}") from error


@contextmanager
def _cache(folder: Path) -> Iterator[None]:
    before = os.environ.get(_CACHE)
    os.environ[_CACHE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CACHE]
        else:
            os.environ[_CACHE] = before


def _library(name: str) -> ModuleType:
    try:
        with warnings.catch_warnings():  # of its libraries, about which users of the command cannot do anything
            warnings.simplefilter("ignore")
            return import_module(name)
    except ImportError as error:
        raise ProjectError(
            f"copier is not installed, which makes and updates projects: {error}", hint="pip install 'delegatekit[new]'"
        ) from error
