"""Finds backends: lists entry points from metadata, imports a plugin when it is first used, and contains its faults.

Importing this module, and listing with `check=False`, imports no plugin and not torch.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from delegatekit_api import (
    PROJECT,
    ApiVersion,
    Availability,
    BackendDescription,
    BackendOptions,
    BackendSpec,
    DelegateKitError,
    ObserverSpec,
    PluginError,
    StageEvent,
    incompatibility,
)

if TYPE_CHECKING:
    from delegatekit_api import (
        DelegateRuntime,
        Partitioner,
        PartitionProgram,
        PreprocessResult,
        QuantizationScheme,
    )

BACKEND_GROUP = f"{PROJECT}.backends"
OBSERVER_GROUP = f"{PROJECT}.observers"
#: Environment variable with the names of the only backends to use, separated by commas.
ALLOW_LIST = "DELEGATEKIT_BACKENDS"

_T = TypeVar("_T")


@dataclass(frozen=True)
class BackendInfo:
    """What is known about an installed backend.

    `status` is "ready", "not imported" (only its metadata was read), "broken", "incompatible", "duplicate" or
    "not allowed"; `reason` says why, where it is not ready.
    """

    name: str
    distribution: str
    version: str
    status: str
    reason: str = ""
    api_version: str | None = None
    delegate_id: str | None = None
    summary: str = ""

    @property
    def usable(self) -> bool:
        """Whether programs can be lowered to it."""
        return self.status == "ready"


class LoadedBackend:
    """An imported plugin: each method calls one hook of it and checks that the answer is of the right type."""

    def __init__(self, info: BackendInfo, description: BackendDescription, manager: pluggy.PluginManager) -> None:
        self.info = info
        self.description = description
        self._manager = manager

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.info.name

    @property
    def distribution(self) -> str:
        """The distribution that ships the plugin."""
        return self.info.distribution

    @property
    def version(self) -> str:
        """The distribution's version."""
        return self.info.version

    def has(self, hook: str) -> bool:
        """Whether the plugin implements a hook."""
        return bool(getattr(self._manager.hook, hook).get_hookimpls())

    def make_options(self, values: Mapping[str, Any]) -> BackendOptions:
        """The backend's options from Python values or strings. Raises OptionError."""
        return self.description.options.from_mapping(values, backend=self.name)

    def create_partitioner(self, options: BackendOptions) -> Partitioner:
        """A partitioner for one lowering."""
        partitioner: Any = self._call("create_partitioner", options=options)
        for method in ("keep_operators", "check", "propose"):
            if not callable(getattr(partitioner, method, None)):
                raise PluginError(f"create_partitioner returned an object without {method}()", where=self._where)
        return partitioner  # type: ignore[no-any-return]

    def preprocess(self, partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
        """Compile one partition."""
        return self._call("preprocess", partition=partition, options=options)  # type: ignore[no-any-return]

    def quantization_schemes(self) -> Sequence[QuantizationScheme]:
        """The schemes that the backend's compiler understands; none if the plugin does not quantize."""
        return tuple(self._call("quantization_schemes") or ()) if self.has("quantization_schemes") else ()

    def create_runtime(self) -> DelegateRuntime:
        """The runtime that executes this backend's blobs in this process."""
        return self._call("create_runtime")  # type: ignore[no-any-return]

    def runtime_availability(self) -> Availability:
        """Whether blobs can be executed here. Never raises."""
        if not self.has("create_runtime"):
            return Availability(False, "the plugin has no runtime: files run on the device only")
        try:
            return self.create_runtime().is_available()
        except Exception as error:
            return Availability(False, f"{type(error).__name__}: {error}")

    def _call(self, hook: str, **arguments: Any) -> Any:
        if not self.has(hook):
            raise PluginError(f"does not implement {hook}", where=self._where)
        with redirect_stdout(sys.stderr):
            result = getattr(self._manager.hook, hook)(**arguments)
        if result is None:
            raise PluginError(f"{hook} returned None", where=self._where)
        return result

    @property
    def _where(self) -> str:
        return f"backend {self.name} ({self.distribution} {self.version})"


def backends(*, check: bool = True) -> dict[str, BackendInfo]:
    """All installed backends by name, usable or not.

    With `check`, each allowed plugin is imported and asked who it is; without it only metadata is read.
    """
    found: dict[str, BackendInfo] = {}
    for name, candidates in sorted(_candidates().items()):
        info = _listed(name, candidates)
        if info.status == "not imported" and check:
            loaded = _load(name)
            info = loaded.info if isinstance(loaded, LoadedBackend) else loaded
        found[name] = info
    return found


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
        f"is {info.status}: {info.reason}", where=f"backend {name}", hint="`delegatekit backends` lists what is usable"
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
    _observers.cache_clear()


def notify(event: StageEvent) -> None:
    """Tell all observers about a stage. An observer that fails is reported once and never called again."""
    manager = _observers()
    for implementation in list(manager.hook.on_stage.get_hookimpls()):
        # An observer may leave out arguments that it does not need.
        arguments = {"event": event} if "event" in implementation.argnames else {}
        try:
            with redirect_stdout(sys.stderr):
                implementation.function(**arguments)
        except Exception as error:
            manager.unregister(implementation.plugin)
            warnings.warn(f"observer {implementation.plugin_name} failed and is ignored: {error!r}", stacklevel=2)


def add_observer(observer: object) -> Callable[[], None]:
    """Register an observer of this process; returns the function that removes it."""
    manager = _observers()
    manager.register(observer)

    def remove() -> None:
        if manager.is_registered(observer):
            manager.unregister(observer)

    return remove


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
    distribution = entry_point.dist
    return (distribution.name, distribution.version) if distribution is not None else ("unknown", "unknown")


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
    try:
        with redirect_stdout(sys.stderr):
            plugin = entry_point.load()
            return _introduce(info, plugin)
    except KeyboardInterrupt:
        raise
    except DelegateKitError as error:
        return replace(info, reason=str(error).replace("\n", " "))
    except BaseException as error:  # a plugin may raise anything, SystemExit included; it must not take others down
        return replace(info, reason=f"importing {entry_point.value} failed: {type(error).__name__}: {error}")


def _introduce(info: BackendInfo, plugin: Any) -> LoadedBackend | BackendInfo:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(BackendSpec)
    manager.register(plugin, name=info.name)
    manager.check_pending()
    if not manager.hook.describe_backend.get_hookimpls():
        raise PluginError("has no describe_backend hook", hint="mark the function with delegatekit_api.hookimpl")
    description = manager.hook.describe_backend()
    if not isinstance(description, BackendDescription):
        raise PluginError(f"describe_backend returned {type(description).__name__}, not a BackendDescription")
    if not isinstance(description.api_version, ApiVersion):
        raise PluginError(f"its api_version is {description.api_version!r}, not an ApiVersion")
    info = replace(
        info,
        api_version=str(description.api_version),
        delegate_id=description.delegate_id,
        summary=description.summary,
    )
    reason = incompatibility(description.api_version)
    if reason is not None:
        return replace(info, status="incompatible", reason=reason)
    if description.name != info.name:
        raise PluginError(f"calls itself {description.name!r}, but its entry point is named {info.name!r}")
    return LoadedBackend(replace(info, status="ready"), description, manager)


@cache
def _observers() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(ObserverSpec)
    for entry_point in metadata.entry_points(group=OBSERVER_GROUP):
        try:
            with redirect_stdout(sys.stderr):
                manager.register(entry_point.load(), name=entry_point.name)
        except Exception as error:
            warnings.warn(f"observer {entry_point.name} could not be loaded: {error!r}", stacklevel=2)
    return manager
