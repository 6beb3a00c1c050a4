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
    QuantizationScheme,
    StageEvent,
    TargetInfo,
    incompatibility,
)

if TYPE_CHECKING:
    from delegatekit_api import (
        DelegateRuntime,
        Partitioner,
        PartitionProgram,
        PreprocessResult,
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

    def takes(self, hook: str, argument: str) -> bool:
        """Whether the plugin's implementation of a hook has an argument of this name."""
        found = getattr(self._manager.hook, hook).get_hookimpls()
        return any(argument in implementation.argnames for implementation in found)

    def describe(self) -> BackendDescription:
        """Ask the plugin again who it is; `description` is what it said when it was loaded."""
        return self._call("describe_backend")  # type: ignore[no-any-return]

    def make_options(self, values: Mapping[str, Any]) -> BackendOptions:
        """The backend's options from Python values or strings. Raises OptionError."""
        return self.description.options.from_mapping(values, backend=self.name)

    def create_partitioner(self, options: BackendOptions) -> Partitioner:
        """A partitioner for one lowering."""
        return self._create("create_partitioner", ("keep_operators", "check", "propose"), options=options)  # type: ignore[no-any-return]

    def preprocess(self, partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
        """Compile one partition. Raises what the plugin raises: the caller knows which nodes it was about."""
        return self._ask("preprocess", partition=partition, options=options)  # type: ignore[no-any-return]

    def preprocess_methods(
        self, methods: Mapping[str, Sequence[PartitionProgram]], options: BackendOptions
    ) -> Mapping[str, Sequence[PreprocessResult]]:
        """Compile the partitions of all methods in one call. Raises what the plugin raises."""
        return self._ask("preprocess_methods", methods=methods, options=options)  # type: ignore[no-any-return]

    def quantization_schemes(self, options: BackendOptions | None = None) -> Sequence[QuantizationScheme]:
        """The schemes that the backend's compiler understands, with these options (None: the default ones).

        None if the plugin does not quantize.
        """
        if not self.has("quantization_schemes"):
            return ()
        chosen = self.make_options({}) if options is None else options
        schemes = self._call("quantization_schemes", options=chosen)
        if not isinstance(schemes, Sequence) or not all(isinstance(scheme, QuantizationScheme) for scheme in schemes):
            raise PluginError("quantization_schemes did not return a list of QuantizationScheme", where=self._where)
        return tuple(schemes)

    def targets(self) -> tuple[TargetInfo, ...]:
        """The devices that the backend compiles for; none if the plugin does not tell."""
        if not self.has("targets"):
            return ()
        found = self._call("targets")
        if not isinstance(found, Sequence) or not all(isinstance(target, TargetInfo) for target in found):
            raise PluginError("targets did not return a list of TargetInfo", where=self._where)
        return tuple(found)

    def create_quantizer(self, scheme: str, options: BackendOptions) -> Any:
        """A torchao Quantizer of the plugin's own, for a scheme without rules."""
        return self._create("create_quantizer", ("annotate", "validate"), scheme=scheme, options=options)

    def create_runtime(self) -> DelegateRuntime:
        """The runtime that executes this backend's blobs in this process."""
        return self._create("create_runtime", ("is_available", "init", "execute", "destroy"))  # type: ignore[no-any-return]

    def runtime_availability(self) -> Availability:
        """Whether blobs can be executed here. Never raises."""
        if not self.has("create_runtime"):
            return Availability(False, "the plugin has no runtime: files run on the device only")
        try:
            with redirect_stdout(sys.stderr):
                answer: Any = self.create_runtime().is_available()
        except (Exception, SystemExit) as error:
            return Availability(False, f"{type(error).__name__}: {error}")
        if not isinstance(answer, Availability):
            return Availability(False, f"is_available returned {answer!r}, not an Availability")
        return answer

    def _create(self, hook: str, methods: Sequence[str], **arguments: Any) -> Any:
        """What a hook made, which must have these methods."""
        result = self._call(hook, **arguments)
        for method in methods:
            if not callable(getattr(result, method, None)):
                raise PluginError(f"{hook} returned an object without {method}()", where=self._where)
        return result

    def _call(self, hook: str, **arguments: Any) -> Any:
        """The answer of a hook; what it raises becomes a PluginError."""
        try:
            return self._ask(hook, **arguments)
        except DelegateKitError:
            raise
        except Exception as error:
            raise PluginError(f"{hook} failed: {type(error).__name__}: {error}", where=self._where) from error

    def _ask(self, hook: str, **arguments: Any) -> Any:
        if not self.has(hook):
            raise PluginError(f"does not implement {hook}", where=self._where)
        try:
            with redirect_stdout(sys.stderr):
                result = getattr(self._manager.hook, hook)(**arguments)
        except SystemExit as error:  # a vendor's tool, called as a library, that exits must not end our process
            raise RuntimeError(f"the plugin called exit({error.code!r})") from error
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
    _ask_observers("on_stage", event=event)


def extra_conformance_cases(backend: str) -> tuple[Any, ...]:
    """The conformance cases that observers add for a backend, all in one."""
    return tuple(case for cases in _ask_observers("conformance_cases", backend=backend) for case in cases or ())


def _ask_observers(hook: str, **arguments: Any) -> list[Any]:
    manager = _observers()
    answers = []
    # pluggy's own call would stop at the first observer that fails.
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        # An observer may leave out arguments that it does not need.
        given = {name: value for name, value in arguments.items() if name in implementation.argnames}
        try:
            with redirect_stdout(sys.stderr):
                answers.append(implementation.function(**given))
        except (Exception, SystemExit) as error:
            manager.unregister(implementation.plugin)
            warnings.warn(f"observer {implementation.plugin_name} failed and is ignored: {error!r}", stacklevel=2)
    return answers


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
    """Name and version of the distribution, "unknown" where its metadata is damaged."""
    try:
        distribution = entry_point.dist
        if distribution is not None:
            return (distribution.name or "unknown", distribution.version or "unknown")
    except Exception:  # whatever a half-deleted installation makes importlib.metadata raise
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


@cache
def _observers() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(ObserverSpec)
    for entry_point in metadata.entry_points(group=OBSERVER_GROUP):
        try:
            with redirect_stdout(sys.stderr):
                manager.register(entry_point.load(), name=entry_point.name)
        except (Exception, SystemExit) as error:
            warnings.warn(f"observer {entry_point.name} could not be loaded: {error!r}", stacklevel=2)
    return manager
