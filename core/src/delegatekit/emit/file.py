"""Assembles the file: an execution plan for each lowered method, and the data shared by the methods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from delegatekit_api import NamedData

from ..edge import shared_buffers
from ..lowering import LoweredMethod
from ..plugins import LoadedBackend
from ..pte import PteImage
from ..pte.arguments import arguments_of
from ..pte.estimates import ESTIMATES_KEY, Estimates
from ..pte.manifest import MANIFEST_KEY, Manifest, Owner
from .arena import PlacedValue, PlannedSpace
from .execution_plan import MethodPlan, plan_method
from .shared import FileOptions, Shared
from .sizes import input_axes


@dataclass(frozen=True)
class Emitted:
    """The image of the file, and for each method the debug handles of its instructions, in their order."""

    image: PteImage
    handles: Mapping[str, tuple[tuple[int, ...], ...]]
    #: The spaces of planned memory of each method.
    spaces: Mapping[str, tuple[PlannedSpace, ...]] = field(default_factory=dict)
    #: What lies in them.
    placed: Mapping[str, tuple[PlacedValue, ...]] = field(default_factory=dict)


def emit(methods: Mapping[str, LoweredMethod], producer: str, options: FileOptions) -> Emitted:
    """Assemble the file's image. `producer` is "delegatekit 0.1.0". Weights are not copied.

    Raises UnsupportedError, with the user's source line, for an operator that no backend takes and the runtime cannot
    run.
    """
    shared = Shared(options)
    state = shared_buffers(method.edge for method in methods.values())
    if len(methods) > 1:
        overread = max(method.overread_bytes for method in methods.values())
        shared.spaces.keep(_buffers(methods, state), overread)
    planned = {name: plan_method(name, method, shared) for name, method in methods.items()}
    named_data = shared.outside.named_data(shared.named_data)
    image = PteImage(
        plans=tuple(item.plan for item in planned.values()),
        constants=tuple(shared.constants),
        mutable_state=tuple(shared.mutable_state),
        delegate_blobs=tuple(shared.blobs),
        named_data=(*named_data, *_own_data(methods, planned, producer, state, shared)),
        data_files=shared.outside.files(),
    )
    handles = {name: item.handles for name, item in planned.items()}
    spaces = {name: item.spaces for name, item in planned.items()}
    return Emitted(image, handles, spaces, {name: item.placed for name, item in planned.items()})


def _own_data(
    methods: Mapping[str, LoweredMethod],
    planned: Mapping[str, MethodPlan],
    producer: str,
    state: Collection[str],
    shared: Shared,
) -> list[NamedData]:
    """DelegateKit's own data about the file: the manifest, and the estimates if there are any."""
    delegates = {
        (name, index): delegate for name, method in methods.items() for index, delegate in enumerate(method.delegates)
    }
    libraries = [part.chosen.backend for method in methods.values() for part in method.parts]
    arguments = {
        (name, index): found
        for name, method in methods.items()
        for index, found in arguments_of(
            planned[name].plan,
            shared.blobs,
            {index: len(delegate.results) for index, delegate in enumerate(method.delegates)},
        ).items()
    }
    manifest = Manifest(
        producer=producer,
        owners={key: owner_of(delegate.chosen.backend) for key, delegate in delegates.items()},
        outputs={key: len(delegate.results) for key, delegate in delegates.items()},
        arguments=arguments,
        data_files=shared.outside.keys_of_backends(),
        shared_state=frozenset(state),
        parameters={name: method.edge.parameters for name, method in methods.items() if method.edge.parameters},
        axes={name: axes for name, method in methods.items() if any(axes := input_axes(method.edge.inputs))},
        libraries={item.description.delegate_id: owner_of(item) for item in libraries if item.is_library},
    )
    own = [NamedData(MANIFEST_KEY, manifest.to_json())]
    estimates = Estimates(
        {name: tuple(delegate.estimate for delegate in method.delegates) for name, method in methods.items()}
    )
    if estimates:
        own.append(NamedData(ESTIMATES_KEY, estimates.to_json()))
    return own


def owner_of(backend: LoadedBackend) -> Owner:
    """The owner of what a backend makes."""
    return Owner(backend.distribution, backend.version, str(backend.description.api_version))


def _buffers(methods: Mapping[str, LoweredMethod], shared: Collection[str]) -> list[tuple[int, list[tuple[str, str]]]]:
    """The bytes of each buffer that a method of the file keeps, and the methods and names that share it."""
    found: dict[tuple[str, str], tuple[int, list[tuple[str, str]]]] = {}
    for method, lowered in methods.items():
        for node, buffer in lowered.edge.buffers.items():
            if node not in lowered.plan.owned_buffers:
                key = ("", buffer.name) if buffer.name in shared else (method, buffer.name)
                found.setdefault(key, (buffer.initial.nbytes, []))[1].append((method, buffer.name))
    return list(found.values())
