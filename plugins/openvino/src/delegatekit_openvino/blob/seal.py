"""The checks that travel beside a blob, as compile specs: stock ExecuTorch reads the device and ignores the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from delegatekit_api import CompileSpec, FormatError
from delegatekit_toolkit.blob import Seal
from delegatekit_toolkit.signature import Range, Signature, TensorType

WHERE: Final = "OpenVINO delegate"
_DEVICE: Final = "device"
_SEAL_KEY: Final = "delegatekit.seal"
_SETTINGS_KEY: Final = "delegatekit.settings"
_KEYS: Final = (_DEVICE, _SETTINGS_KEY, _SEAL_KEY)
_SEAL: Final = Seal(
    b"DKITOPVN",
    version=1,
    name="OpenVINO blob",
    hint="install the delegatekit-openvino that made the file: `delegatekit inspect FILE` names it",
)


@dataclass(frozen=True)
class Settings:
    """What this package's runtime has to know beside the blob."""

    #: The release that compiled it.
    openvino: str
    #: OpenVINO's name of the precision that float32 is computed in.
    precision: str
    #: 0: as many as PyTorch's.
    threads: int
    signature: Signature


def compile_specs(blob: bytes, device: str, settings: Settings) -> tuple[CompileSpec, ...]:
    """The specs of a blob: its device, the settings of this runtime, and the checksum of the blob and of both."""
    written = _written(settings)
    seal = _SEAL.header(blob) + _SEAL.header(device.encode() + b"\0" + written)
    return (CompileSpec(_DEVICE, device.encode()), CompileSpec(_SETTINGS_KEY, written), CompileSpec(_SEAL_KEY, seal))


def check(blob: memoryview, specs: Sequence[CompileSpec]) -> tuple[str, Settings | None]:
    """The device, and the settings of this runtime: None for a blob of another maker, which has no checksum.

    Raises FormatError if any bit differs from what was written.
    """
    found = {spec.key: bytes(spec.value) for spec in specs}
    if len(found) < len(specs) or (unknown := found.keys() - set(_KEYS)):
        what = "has a compile spec twice" if len(found) < len(specs) else f"has compile specs {sorted(unknown)!r:.80}"
        raise FormatError(f"{what}, which this release does not know", where=WHERE)
    device, settings, seal = found.get(_DEVICE, b"CPU"), found.get(_SETTINGS_KEY), found.get(_SEAL_KEY)
    if (settings is None) != (seal is None):
        raise FormatError("has one of two compile specs that belong together", where=WHERE)
    if settings is not None and seal is not None:
        size = _SEAL.header_size
        _SEAL.check(seal[:size], blob)
        _SEAL.check(seal[size:], device + b"\0" + settings)
    try:
        return device.decode("ascii"), None if settings is None else _read(settings)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"has a damaged compile spec: {error}", where=WHERE) from error


def _written(settings: Settings) -> bytes:
    fields: dict[str, Any] = {
        "openvino": settings.openvino,
        "precision": settings.precision,
        "threads": settings.threads,
    }
    for name, types in (("inputs", settings.signature.inputs), ("outputs", settings.signature.outputs)):
        fields[name] = [
            [
                kind.dtype,
                [size if isinstance(size, int) else [size.low, size.high, size.symbol] for size in kind.shape],
            ]
            for kind in types
        ]
    return json.dumps(fields, sort_keys=True).encode()


def _read(data: bytes) -> Settings:
    fields = json.loads(data)
    inputs, outputs = (
        tuple(
            TensorType(
                str(dtype), tuple(int(size) if isinstance(size, int) else Range(*map(int, size)) for size in shape)
            )
            for dtype, shape in fields[name]
        )
        for name in ("inputs", "outputs")
    )
    signature = Signature(inputs, outputs)
    return Settings(str(fields["openvino"]), str(fields["precision"]), int(fields["threads"]), signature)
