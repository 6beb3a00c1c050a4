"""Finds backends: lists entry points from metadata, imports a plugin when it is first used, and contains its faults.

Importing this module, and listing with `check=False`, imports no plugin and not torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from typing import Any, Final

import importlib_metadata as metadata
import pluggy

from delegatekit_api import ApiVersion, BackendDescription, BackendOptions, BackendSpec, DelegateKitError, PluginError
from delegatekit_api.versions import PROJECT, incompatibility

from . import observers
from .backend import BackendInfo, LoadedBackend

BACKEND_GROUP: Final = f"{PROJECT}.backends"
#: Environment variable with the names of the only backends to use, separated by commas.
ALLOW_LIST: Final = "DELEGATEKIT_BACKENDS"


def backends(*, check: bool = True) -> dict[str, BackendInfo]:
    """All installed backends by name, usable or not.

    With `check`, each allowed plugin is imported and asked who it is; without it only metadata is read.
    """
    return {name: look_up(name) if check else _listed(name, found) for name, found in sorted(_candidates().items())}


def look_up(name: str) -> BackendInfo:
    """What is known about one installed backend, which is imported if it is allowed. Raises KeyError for no backend."""
    info = _listed(name, _candidates()[name])
    if info.status != "not imported":
        return info
    loaded = _load(name)
    return loaded.info if isinstance(loaded, LoadedBackend) else loaded


def declared_requirements(name: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The extras of the distribution that brings a backend, and its requirements, those of the extras included.

    Raises KeyError for no backend, and whatever damaged metadata makes importlib_metadata raise.
    """
    found = _candidates()[name][0].dist
    if found is None:
        raise LookupError(f"the entry point {name} has no distribution")
    return frozenset(found.metadata.get_all("Provides-Extra") or ()), tuple(found.requires or ())


def get_backend(name: str) -> LoadedBackend:
    """The backend of this name, imported. Raises PluginError, with the reason, if it cannot be used."""
    candidates = _candidates().get(name)
    if candidates is None:
        installed = ", ".join(sorted(_candidates())) or "none"
        raise PluginError(
            f"no backend {name!r} is installed (installed: {installed})", hint=f"pip install delegatekit-{name}"
        )
    info = _listed(name, candidates)
    if info.status == "not imported":
        loaded = _load(name)
        if isinstance(loaded, LoadedBackend):
            return loaded
        info = loaded
    raise PluginError(
        f"is {info.status}: {info.reason}",
        where=f"backend {name}",
        hint="`delegatekit backends --check` lists what is usable",
    )


def find_by_delegate_id(delegate_id: str) -> LoadedBackend:
    """The backend whose delegates have this id. Raises PluginError if no usable one has."""
    for name, info in backends().items():
        if info.usable and info.delegate_id == delegate_id:
            return get_backend(name)
    usable = ", ".join(f"{info.name} ({info.delegate_id})" for info in backends().values() if info.usable) or "none"
    raise PluginError(
        f"no installed backend runs delegates of id {delegate_id!r} (usable: {usable})",
        hint="install the plugin that the file was made with: `delegatekit inspect FILE` names it",
    )


def refresh() -> None:
    """Forget what was found, so that packages installed since are seen."""
    _candidates.cache_clear()
    _load.cache_clear()
    observers.refresh()


@cache
def _candidates() -> Mapping[str, tuple[metadata.EntryPoint, ...]]:
    found: dict[str, list[metadata.EntryPoint]] = {}
    for entry_point in metadata.entry_points(group=BACKEND_GROUP):
        known = found.setdefault(entry_point.name, [])
        # The same distribution may be seen twice, through two entries of sys.path.
        if not any(_owner(other) == _owner(entry_point) and other.value == entry_point.value for other in known):
            known.append(entry_point)
    return {name: tuple(entry_points) for name, entry_points in found.items()}


def _owner(entry_point: metadata.EntryPoint) -> tuple[str, str]:
    """Name and version of the distribution, "unknown" where its metadata is damaged."""
    try:
        distribution = entry_point.dist
        if distribution is not None:
            return (distribution.name or "unknown", distribution.version or "unknown")
    except Exception:  # whatever a half-deleted installation makes importlib_metadata raise
        return ("unknown", "unknown")
    return ("unknown", "unknown")


def _listed(name: str, candidates: Sequence[metadata.EntryPoint]) -> BackendInfo:
    """What metadata and the allow-list say, without importing anything."""
    info = BackendInfo(name, *_owner(candidates[0]), status="not imported")
    allowed = os.environ.get(ALLOW_LIST)
    if allowed is not None and name not in {item.strip() for item in allowed.split(",")}:
        return replace(info, status="not allowed", reason=f"{ALLOW_LIST}={allowed} does not name it")
    if len(candidates) > 1:
        owners = " and ".join(" ".join(_owner(candidate)) for candidate in candidates)
        return replace(info, status="duplicate", reason=f"{owners} both claim this name: uninstall one")
    return info


@cache
def _load(name: str) -> LoadedBackend | BackendInfo:
    """The backend, or the listing that says why it cannot be used."""
    entry_point = _candidates()[name][0]
    info = BackendInfo(name, *_owner(entry_point), status="broken")
    doing = f"importing {entry_point.value}"
    try:
        with redirect_stdout(sys.stderr):
            plugin = entry_point.load()
            doing = "describing itself"
            return _introduce(info, plugin)
    except KeyboardInterrupt:
        raise
    except DelegateKitError as error:
        return replace(info, reason=str(error).replace("\n", " "))
    except BaseException as error:  # a plugin may raise anything, SystemExit included; it must not take others down
        return replace(info, reason=f"{doing} failed: {type(error).__name__}: {error}")


def _introduce(info: BackendInfo, plugin: Any) -> LoadedBackend | BackendInfo:
    manager = pluggy.PluginManager(PROJECT)
    manager.register(plugin, name=info.name)
    describe = getattr(manager.hook, "describe_backend", None)
    if describe is None:
        raise PluginError("has no describe_backend hook", hint="mark the function with delegatekit_api.hookimpl")
    # Before anything else is looked at: a plugin of another API version may have hooks that this core does not know.
    description = describe.get_hookimpls()[0].function()
    if not isinstance(description, BackendDescription):
        raise PluginError(f"describe_backend returned {type(description).__name__}, not a BackendDescription")
    if not isinstance(description.api_version, ApiVersion):
        raise PluginError(f"its api_version is {description.api_version!r}, not an ApiVersion")
    info = replace(info, api_version=str(description.api_version))
    reason = incompatibility(description.api_version)
    if reason is not None:
        return replace(info, status="incompatible", reason=reason)
    _check_facts(info.name, description)
    info = replace(info, delegate_id=description.delegate_id, summary=description.summary)
    manager.add_hookspecs(BackendSpec)
    manager.check_pending()
    return LoadedBackend(replace(info, status="ready"), description, manager)


def _check_facts(name: str, description: BackendDescription) -> None:
    for field in ("name", "delegate_id", "distribution", "version", "summary"):
        value = getattr(description, field)
        if not isinstance(value, str) or not (value or field == "summary"):
            raise PluginError(f"its {field} is {value!r}, not a text")
    if description.name != name:
        raise PluginError(f"calls itself {description.name!r}, but its entry point is named {name!r}")
    options: Any = description.options
    if not isinstance(options, type) or not issubclass(options, BackendOptions):
        raise PluginError(f"its options are {options!r}, not a subclass of BackendOptions")
    overread: Any = description.overread_bytes
    if not isinstance(overread, int) or overread < 0:
        raise PluginError(f"its overread_bytes is {overread!r}, not a number of bytes")
