"""What travels beside a blob as compile specs, which the device does not read: signature and checksum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from delegatekit_api import CompileSpec, FormatError
from delegatekit_toolkit.blob import Seal
from delegatekit_toolkit.dtypes import dtype_of
from delegatekit_toolkit.json_text import decoded, parse_object, to_json
from delegatekit_toolkit.signature import Range, Signature

from .container import WHERE

_SIGNATURE_KEY: Final = "delegatekit.signature"
_SEAL_KEY: Final = "delegatekit.seal"
_KEYS: Final = {_SIGNATURE_KEY, _SEAL_KEY}
_SEAL: Final = Seal(
    b"DKITMLX0",
    version=1,
    name=WHERE,
    hint="install the delegatekit-mlx that made the file: `delegatekit inspect FILE` names it",
)


def compile_specs(blob: bytes, signature: Signature) -> tuple[CompileSpec, ...]:
    """The specs of a blob: the signature, and the checksums of both."""
    text = to_json(asdict(signature), compact=True, sort_keys=True).encode()
    seal = _SEAL.header(blob) + _SEAL.header(text)
    return (CompileSpec(_SIGNATURE_KEY, text), CompileSpec(_SEAL_KEY, seal))


def check(blob: memoryview, specs: Sequence[CompileSpec]) -> Signature | None:
    """The signature of a blob: None for one of another maker, which has neither it nor a checksum.

    Raises FormatError if any bit differs from what was written.
    """
    found = {spec.key: bytes(spec.value) for spec in specs}
    if len(found) < len(specs):
        raise FormatError("has a compile spec twice", where=WHERE)
    if not found.keys() & _KEYS:
        return None
    if found.keys() != _KEYS:
        raise FormatError(f"has compile specs {sorted(found)!r:.80}, not {sorted(_KEYS)!r}", where=WHERE)
    text, seal, size = found[_SIGNATURE_KEY], found[_SEAL_KEY], _SEAL.header_size
    _SEAL.check(seal[:size], blob)
    _SEAL.check(seal[size:], text)
    signature = decoded(Signature, parse_object(text, WHERE), WHERE)
    for kind in (*signature.inputs, *signature.outputs):
        dtype_of(kind.dtype, WHERE)
        for extent in kind.shape:
            if not (0 <= extent.low <= extent.high if isinstance(extent, Range) else extent >= 0):
                raise FormatError(f"has a tensor {kind}", where=WHERE)
    return signature
