"""Blobs that are the serialized model of a vendor's library, sealed with what the runtime checks, and that runtime.

A head stands before the model: the library's release, the delegate's signature, and settings of the runtime's own.
Where the device's runtime wants the model bare, give that as the blob, and `Seal.header` as a compile spec beside it.
"""

from __future__ import annotations

import re
import struct
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from delegatekit_api import Availability, DelegatePayload, ExecutionError, FormatError, RuntimeUnavailableError
from delegatekit_api.profiling import OperatorTime

from .blob import Seal
from .dtypes import dtype_of
from .interpreting import InterpretingRuntime
from .json_text import decoded, parse_object, to_json
from .signature import (
    Extent,
    Range,
    Signature,
    aligned,
    check_call,
    check_payload,
    check_tensors,
    store_results,
)

if TYPE_CHECKING:
    import torch

#: The length of the head.
_LENGTH: Final = struct.Struct("<Q")
#: A release that may stand in a line which installs it.
_RELEASE: Final = re.compile(r"[A-Za-z0-9][\w.+-]{0,39}", re.ASCII)
#: A model that a library has loaded.
SessionT = TypeVar("SessionT")


@dataclass(frozen=True)
class ForeignModel:
    """A model as a vendor's library serializes it, and what a runtime has to know to run it.

    >>> from delegatekit_toolkit.signature import TensorType
    >>> seal = Seal(b"DEMOBLOB", version=1, name="demo blob")
    >>> vector = TensorType("float32", (Range(1, 8, symbol=0), 3))
    >>> model = ForeignModel("2.1", Signature((vector,), (vector,)), memoryview(b"layers"), {"threads": 4})
    >>> found = ForeignModel.unwrap(seal, model.wrap(seal))
    >>> found.library, found.signature.inputs, bytes(found.model), found.settings
    ('2.1', (TensorType(dtype='float32', shape=(s0=1..8, 3)),), b'layers', {'threads': 4})
    """

    #: The release of the library that wrote the model, in the library's own form.
    library: str
    signature: Signature
    model: bytes | memoryview
    #: What else the runtime has to know.
    settings: Mapping[str, int | str] = field(default_factory=dict)

    def wrap(self, seal: Seal) -> bytes:
        """The model as a blob: the same model gives the same bytes."""
        head = _Head(self.library, self.signature, dict(self.settings))
        text = to_json(asdict(head), compact=True, sort_keys=True).encode()
        return seal.wrap(b"".join((_LENGTH.pack(len(text)), text, self.model)))

    @classmethod
    def unwrap(cls, seal: Seal, blob: bytes | memoryview) -> ForeignModel:
        """The model of a blob, without a copy. Raises FormatError for a blob that is not one, or is damaged.

        What the library makes of the model is not known then: it comes from a file, so that a library which trusts
        what it reads must not get it unchecked.
        """
        body = seal.unwrap(blob)
        if len(body) < _LENGTH.size or (size := _LENGTH.unpack_from(body)[0]) > len(body) - _LENGTH.size:
            raise FormatError("has no whole head before its model", where=seal.name)
        end = _LENGTH.size + size
        head = decoded(_Head, parse_object(body[_LENGTH.size : end], seal.name), seal.name)
        if not _RELEASE.fullmatch(head.library):
            raise FormatError(f"was written by a library {head.library!r:.60}", where=seal.name)
        for kind in (*head.signature.inputs, *head.signature.outputs):
            dtype_of(kind.dtype, seal.name)
            if not all(map(_is_size, kind.shape)):
                raise FormatError(f"has a tensor {kind}", where=seal.name)
        return cls(head.library, head.signature, body[end:], head.settings)


@dataclass(frozen=True)
class _Head:
    library: str
    signature: Signature
    settings: dict[str, int | str]


def _is_size(size: Extent) -> bool:
    return 0 <= size.low <= size.high if isinstance(size, Range) else size >= 0


@dataclass
class ForeignHandle(Generic[SessionT]):
    """A loaded blob; `session` is None once it is destroyed."""

    signature: Signature
    session: SessionT | None


class ForeignRuntime(InterpretingRuntime[ForeignHandle[SessionT]], Generic[SessionT]):
    """A `DelegateRuntime` of such blobs: it checks each blob and each call, before and after the library sees them.

    Where the library has no times of its own, `compute` leaves the list as it is: the delegate is timed as a whole.
    """

    #: The seal of the blobs.
    seal: ClassVar[Seal]

    @abstractmethod
    def availability(self, release: str) -> Availability:
        """The availability of a library that reads what this release wrote; of any release for ""."""

    @abstractmethod
    def load(self, model: ForeignModel) -> SessionT:
        """A model that is ready to run. Raises FormatError for one that the library refuses."""

    @abstractmethod
    def compute(
        self, session: SessionT, inputs: Sequence[torch.Tensor], times: list[OperatorTime] | None
    ) -> Sequence[torch.Tensor]:
        """The results of a call, whose inputs have the dtypes and sizes of the signature. Raises ExecutionError.

        With a list of `times`, append to it what each operator took.
        """

    def is_available(self) -> Availability:
        """The availability of the library."""
        return self.availability("")

    def init(self, payload: DelegatePayload) -> ForeignHandle[SessionT]:
        """Check the blob and load its model.

        Raises FormatError for a blob that it cannot take, and RuntimeUnavailableError where the library is missing, or
        does not read what the one wrote that made the blob.
        """
        model = ForeignModel.unwrap(self.seal, payload.blob)
        if not (ready := self.availability(model.library)).available:
            raise RuntimeUnavailableError(ready.reason, where=self.seal.name)
        check_payload(payload, model.signature, self.seal.name)
        return ForeignHandle(model.signature, self.load(model))

    def run(
        self,
        handle: ForeignHandle[SessionT],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        times: list[OperatorTime] | None,
    ) -> None:
        """Run the model and write the results into `outputs`. Raises ExecutionError for a call that does not fit."""
        if handle.session is None:
            raise ExecutionError("was destroyed", where=self.seal.name)
        sizes = check_call(handle.signature, inputs, outputs, self.seal.name)
        results = self.compute(handle.session, [aligned(item) for item in inputs], times)
        check_tensors("result", handle.signature.outputs, results, sizes, self.seal.name)
        store_results(outputs, results)

    def destroy(self, handle: ForeignHandle[SessionT]) -> None:
        """Release the model; twice is harmless."""
        handle.session = None
