"""The checks that travel beside a blob, as compile specs: stock ExecuTorch reads the device and ignores the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from delegatekit_api import CompileSpec, FormatError
from delegatekit_toolkit.blob import Seal
from delegatekit_toolkit.json_text import decoded, parse_object, to_json
from delegatekit_toolkit.signature import Signature

WHERE: Final = "OpenVINO delegate"
#: The option's values -> OpenVINO's names.
PRECISIONS: Final = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
_RELEASE: Final = re.compile(r"[0-9]+\.[0-9]+")
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
    written = to_json(asdict(settings), compact=True, sort_keys=True).encode()
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
    return device.decode("ascii", "replace"), None if settings is None else _read(settings)


def _read(text: bytes) -> Settings:
    settings = decoded(Settings, parse_object(text, WHERE), WHERE)
    if not _RELEASE.fullmatch(settings.openvino):
        raise FormatError(f"is of the release {settings.openvino!r:.40} of OpenVINO, which is none", where=WHERE)
    if settings.precision not in PRECISIONS.values():
        raise FormatError(f"is for a precision {settings.precision!r:.40}, which is not known", where=WHERE)
    return settings
