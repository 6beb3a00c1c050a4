"""The rows of a sweep: every target of every backend, with every requested scheme."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delegatekit.errors import Misuse, WrongArgumentError
from delegatekit.plugins import LoadedBackend, get_backend, state_of
from delegatekit_api import DelegateKitError, OptionError
from delegatekit_api.devices import TargetInfo
from delegatekit_toolkit.json_text import to_json

from .row import FAILED, FLOAT, Row

#: Every target of a backend; and a scheme that is chosen if the backend takes nothing in float.
ALL: Final = "all"
AUTO: Final = "auto"


@dataclass(frozen=True)
class Job:
    """One row to be made."""

    key: str
    backend: str
    target: str
    made_by: str
    options: Mapping[str, Any]
    #: A scheme of the backend, "float" or "auto".
    scheme: str
    runs: int

    def failed(self, reason: str) -> Row:
        """The row of a failed job, with the fault."""
        scheme = FLOAT if self.scheme == AUTO else self.scheme
        return Row(self.key, self.backend, self.target, FAILED, reason, self.made_by, self.options, scheme)


def planned(
    backends: Sequence[str],
    targets: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    schemes: Sequence[str],
    content: str,
    runs: int,
) -> tuple[list[Job], list[Row]]:
    """The jobs, and rows of the backends that are broken.

    `content` identifies program and inputs in the jobs' keys. Raises Misuse errors for names that do not exist.
    """
    if isinstance(backends, str) or not backends:
        raise WrongArgumentError(f"backends = {backends!r} is no list of names", hint='backends=["NAME"]')
    strangers = sorted({*options, *_named(targets), *_named(schemes)} - set(backends))
    if strangers:
        raise WrongArgumentError(f"{strangers[0]!r} is not among the backends {list(backends)}")
    jobs: dict[str, Job] = {}
    broken: list[Row] = []
    known: dict[str, set[str]] = {}
    for name in dict.fromkeys(backends):
        try:
            backend = get_backend(name)
            offered = {target.name: target for target in backend.targets()}
            known[name] = set(offered)
            chosen = list(_targets_of(name, targets, offered, backend))
            for job in _jobs(backend, chosen, options.get(name, {}), _of_backend(name, schemes), content, runs):
                jobs.setdefault(job.key, job)
        except DelegateKitError as error:
            if isinstance(error, Misuse | OptionError):
                raise
            broken.append(Row(f"broken {name}", name, "", FAILED, error.what))
    _check_targets(targets, known)
    return list(jobs.values()), broken


def _jobs(
    backend: LoadedBackend,
    targets: Sequence[TargetInfo],
    options: Mapping[str, Any],
    schemes: Sequence[str],
    content: str,
    runs: int,
) -> Iterator[Job]:
    made_by = f"{backend.distribution} {backend.version}"
    for target in targets:
        twice = sorted(set(target.options) & set(options))
        if twice:
            raise WrongArgumentError(
                f"option {twice[0]} of backend {backend.name} is given, and target {target.name} sets it, too",
                hint="give one of the two",
            )
        chosen = backend.make_options({**target.options, **options})
        offered = [scheme.name for scheme in backend.quantization_schemes(chosen)]
        for scheme in schemes:
            if scheme not in (FLOAT, AUTO, *offered):
                raise OptionError(
                    f"no scheme {scheme!r}",
                    where=f"backend {backend.name}",
                    hint=f"schemes: {', '.join((FLOAT, AUTO, *offered))}",
                )
            told = to_json(
                [content, made_by, state_of(backend.name), _tool(backend, chosen), scheme, runs], compact=True
            )
            key = hashlib.sha256(f"{backend.name} {told}".encode() + chosen.to_json()).hexdigest()
            yield Job(key, backend.name, target.name, made_by, chosen.to_mapping(), scheme, runs)


def _tool(backend: LoadedBackend, options: Any) -> str:
    try:
        return backend.compiler_version(options) or ""
    except DelegateKitError:
        return ""  # the row will report the error


def _targets_of(
    name: str, wanted: Sequence[str], offered: Mapping[str, TargetInfo], backend: LoadedBackend
) -> Iterator[TargetInfo]:
    """The targets requested of a backend; its default if there are none."""
    mine = _of_backend(name, wanted, otherwise=())
    found = [target for target in offered.values() if ALL in mine or target.name in mine]
    if found:
        yield from found
        return
    default = backend.make_options({}).to_json()
    same = [item.name for item in offered.values() if backend.make_options(item.options).to_json() == default]
    yield TargetInfo(same[0] if same else "default", "", {})


def _of_backend(name: str, texts: Sequence[str], otherwise: Sequence[str] = (AUTO,)) -> Sequence[str]:
    """The values of NAME=VALUE and VALUE for a backend; a named one gets only its own."""
    pairs = [text.rpartition("=") for text in texts]
    own = [value for backend, _, value in pairs if backend == name]
    return own or [value for backend, _, value in pairs if not backend] or otherwise


def _named(texts: Sequence[str]) -> set[str]:
    return {text.rpartition("=")[0] for text in texts} - {""}


def _check_targets(wanted: Sequence[str], known: Mapping[str, set[str]]) -> None:
    for text in wanted:
        backend, _, target = text.rpartition("=")
        names = known.get(backend, set()) if backend else set().union(*known.values())
        if target != ALL and target not in names and (not backend or backend in known):
            near = difflib.get_close_matches(target, sorted(names), 3)
            raise WrongArgumentError(
                f"no backend of the sweep has a target {text!r}",
                hint=f"did you mean {', '.join(near)}?" if near else "`delegatekit targets` lists them",
            )
