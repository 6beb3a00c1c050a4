"""Finds backends: lists entry points from metadata, imports a plugin on first use, and contains its faults.

Importing this module, and listing with `check=False`, imports no plugin and not torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from typing import Any, Final, TypeVar

import importlib_metadata as metadata
import pluggy

from delegatekit_api import ApiVersion, BackendDescription, BackendSpec, PluginError
from delegatekit_api.versions import OTHER_RELEASES, PROJECT, incompatibility, outlived

from ..errors.misuse import UnknownBackendError
from . import declared, first_import, observers
from .allowed import ALLOW_LIST, is_allowed
from .answers import check_answer
from .backend import BackendInfo, LoadedBackend
from .blame import PluginWarning, fault, shown, warn
from .declared import BACKEND_GROUP, normalized, owner
from .requirements import unmet_of_ours

#: The name for the placement, by measurement, on the backends that run here, where a program is lowered.
AUTO: Final = "auto"

_Answer = TypeVar("_Answer")


def backends(*, check: bool = True) -> dict[str, BackendInfo]:
    """All installed backends by name, usable or not.

    With `check`, each allowed plugin is imported and asked for its description; without it only metadata is read.
    """
    return {name: look_up(name) if check else _listed(name, found) for name, found in sorted(_candidates().items())}


def look_up(name: str) -> BackendInfo:
    """The facts about one installed backend, which is imported if it is allowed. Raises KeyError for no backend."""
    info = _listed(name, _candidates()[name])
    if info.status != "not imported":
        return info
    loaded = _load(name, info.distribution)
    return loaded.info if isinstance(loaded, LoadedBackend) else loaded


def state_of(name: str) -> str:
    """A digest that changes with an installed backend and DelegateKit: versions, names, sizes, mtimes of files."""
    return first_import.state_of(entry_point_of(name))


def entry_point_of(name: str) -> metadata.EntryPoint:
    """The entry point of an installed backend. Raises KeyError for no backend."""
    return _candidates()[name][0]


def get_backend(name: str) -> LoadedBackend:
    """The backend of this name, imported. Raises PluginError, with the reason, if it cannot be used."""
    candidates = _candidates().get(name) if isinstance(name, str) else None
    if candidates is None:
        raise unknown_backend(name)
    info = _listed(name, candidates)
    if info.status == "not imported":
        loaded = _load(name, info.distribution)
        if isinstance(loaded, LoadedBackend):
            return loaded
        info = loaded
    raise PluginError(
        f"is {info.status}: {info.reason}",
        where=f"backend {name}",
        hint="`delegatekit backends --check` lists what is usable",
    )


def ask_all(ask: Callable[[LoadedBackend], _Answer]) -> dict[str, _Answer]:
    """The answer of each usable backend, by name. Warns of those that are unusable or do not answer.

    Those that the user disabled are skipped silently. Raises OptionError.
    """
    found = {}
    for name, info in backends().items():
        if info.usable:
            try:
                found[name] = ask(get_backend(name))
            except PluginError as error:
                warn(f"{error.where or f'backend {name}'}: {error.what}")
        elif info.status != "not allowed":
            warn(f"backend {name} ({info.distribution} {info.version}) is {info.status}: {info.reason}")
    return found


def unknown_backend(name: object) -> PluginError:
    """The error for a name that no installed backend has: suggests the most similar one."""
    if name == AUTO:
        return UnknownBackendError(
            "backend 'auto' is a word of the command line, by which measurements place the operators",
            hint="name the backends here; delegatekit.placement gives the arguments of lower that were measured",
        )
    installed = sorted(_candidates())
    # Imported here: needed for the error alone.
    from difflib import get_close_matches

    wanted = str(name).strip().lower().replace("_", "-") if isinstance(name, str) else ""
    spelled = {entry.lower().replace("_", "-"): entry for entry in installed}
    # Common misspellings of a backend: its distribution's name, or its delegate's.
    spelled |= {f"{PROJECT}-{key}": entry for key, entry in spelled.items()}
    close = get_close_matches(wanted, spelled, n=1, cutoff=0.6)
    if close:
        hint = f"did you mean {spelled[close[0]]!r}?"
    else:
        hint = "`delegatekit backends` lists what is installed; the publisher of a backend says how to install it"
    return UnknownBackendError(
        f"no backend {shown(name)} is installed (installed: {', '.join(installed) or 'none'})", hint=hint
    )


def of_owner(distribution: str) -> list[LoadedBackend | BackendInfo]:
    """The backends of one distribution that the user has not disabled, even if another one claims their name."""
    name = normalized(distribution)
    return [
        _load(entry_point.name, owner(entry_point)[0])
        for candidates in _candidates().values()
        for entry_point in candidates
        if normalized(owner(entry_point)[0]) == name and is_allowed(entry_point.name)
    ]


def refresh() -> None:
    """Clear the caches, so that packages installed since are seen."""
    declared.refresh()
    _candidates.cache_clear()
    _load.cache_clear()
    observers.refresh()


@cache
def _candidates() -> Mapping[str, tuple[metadata.EntryPoint, ...]]:
    found: dict[str, list[metadata.EntryPoint]] = {}
    for entry_point in declared.entry_points(BACKEND_GROUP):
        known = found.setdefault(entry_point.name, [])
        # The same distribution may be seen twice, through two entries of sys.path.
        if not any(owner(other) == owner(entry_point) and other.value == entry_point.value for other in known):
            known.append(entry_point)
    return {name: tuple(entry_points) for name, entry_points in found.items()}


def _listed(name: str, candidates: Sequence[metadata.EntryPoint]) -> BackendInfo:
    """The listing from metadata and the allow-list, without importing anything."""
    info = BackendInfo(name, *owner(candidates[0]), status="not imported")
    if not is_allowed(name):
        reason = f"{ALLOW_LIST}={os.environ[ALLOW_LIST]} does not name it"
        return replace(info, status="not allowed", reason=reason)
    if len(candidates) > 1:
        owners = " and ".join(" ".join(owner(candidate)) for candidate in candidates)
        return replace(info, status="duplicate", reason=f"{owners} both claim this name: uninstall one")
    return info


@cache
def _load(name: str, distribution: str) -> LoadedBackend | BackendInfo:
    """The backend of a distribution, or a listing with the reason why it cannot be used."""
    entry_point = next(found for found in _candidates()[name] if owner(found)[0] == distribution)
    died = first_import.refusal(entry_point)
    if died is not None:
        return BackendInfo(name, *owner(entry_point), status="broken", reason=f"importing it {died}")
    return load_backend(entry_point)


def load_backend(entry_point: metadata.EntryPoint) -> LoadedBackend | BackendInfo:
    """Import a backend and ask for its description: the backend, or a listing with the reason why it cannot be used."""
    info = BackendInfo(entry_point.name, *owner(entry_point), status="broken")
    doing = f"importing {entry_point.value}"
    try:
        with redirect_stdout(sys.stderr):
            for reason in unmet_of_ours(entry_point.dist):
                outlived(OTHER_RELEASES, f"backend {info.name} ({info.distribution}): {reason}", PluginWarning)
            plugin = entry_point.load()
            doing = "describing itself"
            return _introduce(info, plugin)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may raise anything, SystemExit included; it must not affect others
        reason = str(error) if type(error) is PluginError else f"{doing} failed: {fault(error)}"
        return replace(info, reason=" ".join(reason.split()))


def _introduce(info: BackendInfo, plugin: Any) -> LoadedBackend | BackendInfo:
    manager = pluggy.PluginManager(PROJECT)
    manager.register(plugin, name=info.name)
    describe = getattr(manager.hook, "describe_backend", None)
    if describe is None:
        raise PluginError("has no describe_backend hook", hint="mark the function with delegatekit_api.hookimpl")
    # Checked first: a plugin of another API version may have hooks that this core does not know.
    description = describe.get_hookimpls()[0].function()
    if not isinstance(description, BackendDescription):
        raise PluginError(f"describe_backend returned {type(description).__name__}, not a BackendDescription")
    check_answer(description.api_version, ApiVersion, "its api_version")
    info = replace(info, api_version=str(description.api_version))
    reason = incompatibility(description.api_version)
    if reason is not None:
        return replace(info, status="incompatible", reason=reason)
    _check_facts(info.name, description)
    info = replace(info, delegate_id=description.delegate_id, summary=description.summary)
    manager.add_hookspecs(BackendSpec)
    manager.check_pending()
    return LoadedBackend(replace(info, status="ready"), description, manager, _lender)


def _lender(borrower: LoadedBackend) -> LoadedBackend:
    """The installed backend whose runtime executes the blobs of one without a runtime."""
    able = [other for other in of_id(borrower.description.delegate_id) if other.has("create_runtime")]
    if len(able) == 1:
        return able[0]
    names = " and ".join(f"{backend.name} ({backend.distribution})" for backend in able)
    several = f"has no runtime, and {names} run delegates of its id: choose one when loading"
    raise PluginError(several if able else "the plugin has no runtime: files run on the device only")


def of_id(delegate_id: str) -> list[LoadedBackend]:
    """The usable backends of a delegate id: those that run any maker's blobs, else those with a runtime, else all."""
    found = [look_up(name) for name in backends(check=False)]
    usable = [get_backend(info.name) for info in found if info.usable and info.delegate_id == delegate_id]
    able = [backend for backend in usable if backend.has("create_runtime")]
    return [backend for backend in able if backend.description.runs_any_maker] or able or usable


def _check_facts(name: str, description: BackendDescription) -> None:
    check_answer(description, BackendDescription, "its description")
    for field in ("name", "delegate_id", "distribution", "version"):
        if not getattr(description, field):
            raise PluginError(f"its {field} is empty")
    if description.name != name:
        raise PluginError(f"calls itself {description.name!r}, but its entry point is named {name!r}")
    if description.overread_bytes < 0:
        raise PluginError(f"its overread_bytes is {description.overread_bytes}, not a number of bytes")
