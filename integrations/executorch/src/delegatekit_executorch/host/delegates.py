"""A delegate that ExecuTorch loaded: its plugin's runtime, and the arguments that this is called with.

ExecuTorch tells a delegate only at its calls what it is called with, and never which arguments are results. Files of
DelegateKit say it in their manifest, so that a delegate is prepared, and refused, while the file is loaded. Of other
files, the first call tells dtypes and sizes; the results are those arguments with which the runtime takes the blob.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from typing import Final, TypeAlias

import torch

from delegatekit.engine.delegate import DelegateInstance, Runtimes, payload_of
from delegatekit.plugins import find_by_delegate_id
from delegatekit.pte import scalar_type, schema
from delegatekit.pte.manifest import DELEGATE_KEY, MANIFEST_KEY, Manifest, Owner, manifest_in
from delegatekit_api import DelegateKitError, ExecutionError, FormatError, TensorSpec
from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.delegate_arguments import digest

from ..native.library import Argument, Blob, library
from .borrowed import NamedBuffers, is_number, memory, sizes_of, spec_of, tensor_of

#: Largest number of arguments of a call whose results are unknown.
_MOST_SPLITS: Final = 256
_NANOSECONDS: Final = 1e9

#: A call's arguments: its inputs, where None is a number, and its results.
_Specs: TypeAlias = tuple[tuple[TensorSpec | None, ...], tuple[TensorSpec, ...]]


@dataclass(frozen=True)
class Call:
    """A call by ExecuTorch, while it lasts."""

    #: Its address in the library.
    address: int
    arguments: Sequence[Argument]
    #: True if the times of operators are recorded.
    traced: bool


class HostedDelegate:
    """One delegate. Its memory is ExecuTorch's, and valid until `destroy`."""

    def __init__(self, address: int, blob: Blob, chosen: Sequence[str]) -> None:
        """`chosen` are the names of backends that run the delegates of their ids, whoever made them.

        Raises FormatError or RuntimeUnavailableError if the arguments are known and the runtime refuses it.
        """
        self.where: Final = f"delegate {blob.backend.decode()}"
        self._method: Final = blob.method.decode()
        self._blob: Final = memory(blob.data, blob.nbytes)
        self._named: Final = NamedBuffers(address)
        self._table: Final = schema.BackendDelegate(
            id=blob.backend.decode(),
            processed=schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, 0),
            compile_specs=[
                schema.CompileSpec(item.key.decode(), bytes(memory(item.value, item.nbytes)))
                for item in blob.specs[: blob.spec_count]
            ],
        )
        self._lock: Final = Lock()
        known, owner = self._recorded()
        runtimes = Runtimes(lambda identifier, made_by: find_by_delegate_id(identifier, made_by.known, chosen))
        self._found: Final = runtimes.get(str(self._table.id), owner, self.where)
        self._candidates: Final = known
        self._specs: _Specs | None = None
        self._instance: DelegateInstance | None = None
        if len(known) == 1:
            self._specs, self._instance = known[0], self._prepared(known[0])

    def execute(self, call: Call) -> None:
        """Run once. Raises DelegateKitError."""
        with self._lock:
            if self._instance is None or self._specs is None:
                self._specs, self._instance = self._learned(call.arguments)
            elif not self._candidates:
                self._grow(call.arguments)
            self._run(self._instance, self._specs, call)

    def destroy(self) -> None:
        """Release it. ExecuTorch's memory is not used after that."""
        with self._lock:
            if self._instance is not None:
                self._instance.destroy()
            self._instance = None

    def _recorded(self) -> tuple[list[_Specs], Owner]:
        """Its arguments by the file, several if a blob is called in several ways; and the plugin that made it.

        Raises FormatError if the file names the blobs of all its delegates, and not this one.
        """
        blob = digest([self._blob])
        found: dict[_Specs, Owner] = {}
        for key in (MANIFEST_KEY, *(key for key in self._named if key.startswith(DELEGATE_KEY + blob))):
            manifest = _manifest(bytes(self._named[key])) if key in self._named else Manifest()
            same = {place: item for place, item in manifest.arguments.items() if item.blob == blob}
            if manifest.arguments and not same:
                raise FormatError("the blob is none of those that the file's manifest names: damaged", where=self.where)
            here = {place: item for place, item in same.items() if place[0] == self._method} or same
            for place, item in here.items():
                found.setdefault((item.inputs, item.outputs), manifest.owner(*place))
        owners = set(found.values())
        return list(found), owners.pop() if len(owners) == 1 else Owner()

    def _prepared(self, specs: _Specs) -> DelegateInstance:
        inputs, outputs = ([_table(spec) for spec in side] for side in specs)
        payload = payload_of(self._table, self._blob, self._named, inputs, outputs, self._method)
        return DelegateInstance(self._found, payload, self.where)

    def _learned(self, arguments: Sequence[Argument]) -> tuple[_Specs, DelegateInstance]:
        """The arguments of the first call, as the runtime takes them.

        Raises FormatError if it takes none, or if several divisions into inputs and results would do.
        """
        given = [spec_of(argument) for argument in arguments]
        taken: list[tuple[_Specs, DelegateInstance]] = []
        refusals: dict[str, DelegateKitError] = {}
        for specs in self._possible(given):
            try:
                taken.append((specs, self._prepared(specs)))
            except DelegateKitError as error:
                refusals.setdefault(error.what, error)
        if len(taken) == 1:
            return taken[0]
        for _, instance in taken:
            instance.destroy()
        if taken:
            raise FormatError(
                f"the file does not say how many of {len(given)} arguments are results, and {len(taken)} numbers fit",
                where=self.where,
                hint="lower it with DelegateKit, whose files say it",
            )
        changing = any(spec is not None and spec.dynamic for spec in given)
        hint = "the blob is damaged, or of another version" + (
            "; if it is neither: the file does not say how large its inputs get, so call it with the largest ones first"
            * changing
        )
        told = "".join(f"\n    {words}" for words in list(refusals)[:3])
        raise FormatError(
            f"its runtime takes it with none of the call's arguments as results:{told}",
            where=self.where,
            hint=hint,
        )

    def _possible(self, given: Sequence[TensorSpec | None]) -> Iterator[_Specs]:
        """The possible meanings of a call's arguments: those that the file names, or all, fewest results first."""
        if self._candidates:
            yield from (specs for specs in self._candidates if _fit(specs, given))
            return
        if len(given) > _MOST_SPLITS:
            raise FormatError(
                f"has {len(given)} arguments, and the file does not say which of them are results", where=self.where
            )
        for first in reversed(range(len(given))):
            outputs = [spec for spec in given[first:] if spec is not None]
            if len(outputs) < len(given) - first:  # a number is no result
                return
            yield tuple(given[:first]), tuple(outputs)

    def _grow(self, arguments: Sequence[Argument]) -> None:
        """Prepare it for larger inputs than those of earlier calls, if the file does not say how large they get."""
        assert self._specs is not None and self._instance is not None
        inputs, outputs = self._specs
        larger = tuple(_larger(spec, argument) for spec, argument in zip(inputs, arguments, strict=False))
        if larger == inputs:
            return
        if self._found.owns_state:
            raise ExecutionError("is called with larger inputs than before: its state would be lost", where=self.where)
        instance = self._prepared((larger, outputs))
        self._instance.destroy()
        self._specs, self._instance = (larger, outputs), instance

    def _run(self, instance: DelegateInstance, specs: _Specs, call: Call) -> None:
        inputs, outputs = specs
        if len(call.arguments) != len(inputs) + len(outputs):
            expected = len(inputs) + len(outputs)
            raise ExecutionError(f"is called with {len(call.arguments)} arguments, not {expected}", where=self.where)
        given = [
            tensor_of(argument, spec)
            for argument, spec in zip(call.arguments, inputs, strict=False)
            if not is_number(argument) and spec is not None
        ]
        results = [self._output(call, len(inputs) + number, spec) for number, spec in enumerate(outputs)]
        instance.times = [] if call.traced else None
        start = library().dk_ticks()
        instance.execute(given, results)
        for number, (result, spec) in enumerate(zip(results, outputs, strict=True)):
            if spec.dynamic and tuple(result.shape) != spec.shape:
                _resize(call, len(inputs) + number, tuple(result.shape))
        if instance.times is not None:
            _record(call, start, instance.times)

    def _output(self, call: Call, position: int, spec: TensorSpec) -> torch.Tensor:
        """A result's tensor; one whose sizes change has the largest ones, as runtimes expect it."""
        argument = call.arguments[position]
        if spec.dynamic and sizes_of(argument) != spec.shape:
            _resize(call, position, spec.shape)
            argument = _enlarged(argument, spec)
        return tensor_of(argument, spec)


@lru_cache(maxsize=8)
def _manifest(data: bytes) -> Manifest:
    """A manifest; each delegate of a file asks for it."""
    return manifest_in({MANIFEST_KEY: memoryview(data)})


def _table(spec: TensorSpec | None) -> schema.Tensor | schema.Int:
    """A value of a file."""
    if spec is None:
        return schema.Int(0)
    dynamic = schema.TensorShapeDynamism.DYNAMIC_BOUND if spec.dynamic else schema.TensorShapeDynamism.STATIC
    return schema.Tensor(
        scalar_type=scalar_type(getattr(torch, spec.dtype)),
        sizes=list(spec.shape),
        dim_order=bytes(spec.dim_order or range(len(spec.shape))),
        shape_dynamism=dynamic,
    )


def _fit(specs: _Specs, given: Sequence[TensorSpec | None]) -> bool:
    """True if a call may be meant by these specs."""
    wanted = (*specs[0], *specs[1])
    return len(wanted) == len(given) and all(
        (spec is None) == (found is None)
        and (
            spec is None or found is None or (spec.dtype == found.dtype and (spec.dynamic or spec.shape == found.shape))
        )
        for spec, found in zip(wanted, given, strict=True)
    )


def _larger(spec: TensorSpec | None, argument: Argument) -> TensorSpec | None:
    """The spec with the sizes of a call where these are larger."""
    if spec is None or not spec.dynamic or len(spec.shape) != argument.ndim:
        return spec
    return replace(spec, shape=tuple(map(max, spec.shape, sizes_of(argument))))


def _enlarged(argument: Argument, spec: TensorSpec) -> Argument:
    """The argument after it was resized to its largest sizes, of which ExecuTorch does not update the bytes."""
    item = torch.empty((), dtype=getattr(torch, spec.dtype)).element_size()
    count = 1
    for size in spec.shape:
        count *= size
    argument.nbytes = count * item
    return argument


def _resize(call: Call, position: int, sizes: Sequence[int]) -> None:
    """Raise ExecutionError if ExecuTorch does not resize an argument so."""
    code = library().dk_resize(call.address, position, len(sizes), (ctypes.c_int32 * len(sizes))(*sizes))
    if code:
        raise ExecutionError(f"argument {position} cannot have the sizes {tuple(sizes)} (0x{code:x})")


def _record(call: Call, start: int, times: Iterable[OperatorTime]) -> None:
    """The operators of a call for ETDump, one after the other from its start.

    An operator is named by its key in the debug map, as ExecuTorch's Inspector expects it; its own name is the
    metadata of a numbered one.
    """
    for item in times:
        end = start + round(item.seconds * _NANOSECONDS)
        words = item.name.encode("utf-8", errors="replace")
        if isinstance(item.key, int):
            library().dk_event(call.address, None, item.key, start, end, words, len(words))
        else:
            name = words if item.key is None else item.key.encode("utf-8", errors="replace")
            library().dk_event(call.address, name, 0, start, end, words, len(words))
        start = end
