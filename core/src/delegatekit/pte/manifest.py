"""The makers of a .pte and its delegates: the named data "delegatekit.manifest", which is JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from delegatekit_toolkit.delegate_arguments import Arguments, digest
from delegatekit_toolkit.flatbuffer import serialize
from delegatekit_toolkit.json_text import read_object, to_json

from . import schema
from .axes import InputAxes, axes_from_json, axes_to_json
from .dataflow import calls
from .kernels import library_of
from .reader import PteFile

#: Key of the manifest among the file's named data.
MANIFEST_KEY = "delegatekit.manifest"
#: Start of the keys of manifests of single blobs, in files that ExecuTorch's own pipeline writes; the blob's `digest`
#: follows. Methods and indices of the delegates in them mean nothing.
DELEGATE_KEY = f"{MANIFEST_KEY}."
#: Size limit: JSON unfolds to many times its size in memory, and larger data is not DelegateKit's.
_LARGEST = 4 << 20


@dataclass(frozen=True)
class Owner:
    """The plugin that made a delegate; "unknown" in files of other writers."""

    distribution: str = "unknown"
    version: str = "unknown"
    api_version: str = "unknown"

    @property
    def known(self) -> str | None:
        """The distribution; None if the file does not name it."""
        return None if self.distribution == Owner().distribution else self.distribution

    def maker(self, delegate_id: str) -> str:
        """The maker of a delegate of this id: "delegatekit-NAME 0.1.0"; the id if the file does not name the owner."""
        return delegate_id if self == Owner() else f"{self.distribution} {self.version}"

    def to_json(self) -> dict[str, str]:
        """Its items in the manifest."""
        return {"distribution": self.distribution, "version": self.version, "api": self.api_version}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Owner:
        """The owner of a delegate, from the manifest."""
        return cls(*(str(item.get(key, "unknown")) for key in ("distribution", "version", "api")))


@dataclass(frozen=True)
class Manifest:
    """The tool that wrote a file, and the owners of its delegates by method and index."""

    producer: str = "unknown"
    owners: Mapping[tuple[str, int], Owner] = field(default_factory=dict)
    #: The data files that were written with the .pte, by name ("" is the one named like the .pte), with the
    #: keys of the named data in each.
    data_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Number of outputs of each delegate, by method and index.
    outputs: Mapping[tuple[str, int], int] = field(default_factory=dict)
    #: Blob and arguments of each delegate, by method and index.
    arguments: Mapping[tuple[str, int], Arguments] = field(default_factory=dict)
    #: Names of the buffers that are shared by all methods that have them.
    shared_state: frozenset[str] = frozenset()
    #: Names of each method's parameters: those positional at export, then keywords.
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The changing sizes of its inputs, for each method that has any.
    axes: Mapping[str, InputAxes] = field(default_factory=dict)
    #: The plugins whose operators the file calls, by namespace.
    libraries: Mapping[str, Owner] = field(default_factory=dict)

    def outputs_of(self, method: str) -> dict[int, int]:
        """Number of outputs of each delegate of a method."""
        return {index: count for (name, index), count in self.outputs.items() if name == method}

    def owner(self, method: str, index: int) -> Owner:
        """The owner of a method's delegate."""
        return self.owners.get((method, index), Owner())

    def to_json(self) -> bytes:
        """The manifest in the file's form; empty items are left out."""
        content: dict[str, Any] = {
            "producer": self.producer,
            "delegates": [
                {
                    "method": method,
                    "index": index,
                    "outputs": self.outputs[method, index],
                    **owner.to_json(),
                    **(self.arguments[method, index].to_json() if (method, index) in self.arguments else {}),
                }
                for (method, index), owner in self.owners.items()
            ],
        }
        if self.libraries:
            content["libraries"] = {name: owner.to_json() for name, owner in self.libraries.items()}
        if self.parameters:
            content["parameters"] = {name: list(names) for name, names in self.parameters.items()}
        if self.axes:
            content["axes"] = {name: axes_to_json(inputs) for name, inputs in self.axes.items()}
        if self.shared_state:
            content["shared_state"] = sorted(self.shared_state)
        if self.data_files:
            content["data_files"] = {name: list(keys) for name, keys in self.data_files.items()}
        return to_json(content, indent=None, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """The manifest of a file. Missing or damaged items are "unknown"."""
        content = read_object(data)
        found = [
            (str(item.get("method")), index, item)
            for item in _of_type(list, content.get("delegates"))
            if isinstance(item, dict) and isinstance(index := item.get("index"), int)
        ]
        return cls(
            producer=str(content.get("producer", "unknown")),
            owners={(method, index): Owner.from_json(item) for method, index, item in found},
            outputs={
                (method, index): count for method, index, item in found if isinstance(count := item.get("outputs"), int)
            },
            arguments={
                (method, index): arguments
                for method, index, item in found
                if (arguments := Arguments.from_json(item)) is not None
            },
            data_files={
                name: tuple(key for key in keys if isinstance(key, str))
                for name, keys in _of_type(dict, content.get("data_files")).items()
                if isinstance(keys, list)
            },
            shared_state=frozenset(
                name for name in _of_type(list, content.get("shared_state")) if isinstance(name, str)
            ),
            parameters={
                method: tuple(map(str, names))
                for method, names in _of_type(dict, content.get("parameters")).items()
                if isinstance(names, list)
            },
            axes={name: axes_from_json(item) for name, item in _of_type(dict, content.get("axes")).items()},
            libraries={
                name: Owner.from_json(item)
                for name, item in _of_type(dict, content.get("libraries")).items()
                if isinstance(item, dict)
            },
        )


def read_manifest(file: PteFile) -> Manifest:
    """The file's manifest, or what is known of single blobs. Missing or damaged items are "unknown"."""
    keys = [key for key in file.named_data if key.startswith(DELEGATE_KEY)]
    if MANIFEST_KEY in file.named_data or not keys:
        return manifest_in(file.named_data)
    owners: dict[str, Owner] = {}
    outputs: dict[str, int] = {}
    for known in (manifest_in(file.named_data, key) for key in keys):
        for place, item in known.arguments.items():
            owners[item.blob], outputs[item.blob] = known.owner(*place), len(item.outputs)
    found = {
        (str(plan.name), index): blob
        for plan in file.program.execution_plan or ()
        for index, delegate in enumerate(plan.delegates or ())
        if (blob := digest([file.delegate_blob(delegate)])) in owners
    }
    return Manifest(
        owners={place: owners[blob] for place, blob in found.items()},
        outputs={place: outputs[blob] for place, blob in found.items()},
    )


def manifest_in(named_data: Mapping[str, memoryview], key: str = MANIFEST_KEY) -> Manifest:
    """The manifest among named data."""
    stored = named_data.get(key, memoryview(b"{}"))
    return Manifest.from_json(bytes(stored)) if len(stored) <= _LARGEST else Manifest()


def _of_type(kind: Any, value: Any) -> Any:
    """The value, or an empty one if it is of another type."""
    return value if isinstance(value, kind) else kind()


def content_key(file: PteFile) -> str:
    """The key of a file's content: a digest of its tables, and of its manifest, which has the blobs' digests."""
    return key_of(file.program, file.named_data.get(MANIFEST_KEY, b""))


def key_of(program: schema.Program, manifest: bytes | memoryview) -> str:
    """The `content_key` of a file with these tables and this manifest."""
    return digest([serialize(program, schema.PTE_IDENTIFIER), manifest])


def owners_of(manifest: Manifest, plan: schema.ExecutionPlan) -> dict[int, str]:
    """The makers of the delegates and library operators that instructions call, by position.

    "delegatekit-NAME 0.1.0", or the delegate id or namespace.
    """
    found = {}
    for position, call in enumerate(calls(plan)):
        if isinstance(call, schema.KernelCall):
            library = library_of((plan.operators or [])[call.op_index].full_name)
            if library is not None:
                found[position] = manifest.libraries.get(library, Owner()).maker(library)
        if isinstance(call, schema.DelegateCall):
            owner = manifest.owner(str(plan.name), call.delegate_index)
            table = (plan.delegates or [])[call.delegate_index]
            found[position] = owner.maker(str(table.id))
    return found
