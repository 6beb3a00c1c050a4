"""The checks that travel beside a blob, as compile specs: stock ExecuTorch reads the device and ignores the others."""

from __future__ import annotations

from typing import Final

from delegatekit_api import CompileSpec, DelegatePayload, FormatError
from delegatekit_toolkit.blob import Seal, check_specs, compile_spec

WHERE: Final = "OpenVINO delegate"
DEVICE: Final = "device"
_SEAL_KEY: Final = "delegatekit.seal"
_SETTINGS_KEY: Final = "delegatekit.settings"
_SEAL: Final = Seal(
    b"DKITOPVN",
    version=1,
    name="OpenVINO blob",
    hint="install the delegatekit-openvino that made the file: `delegatekit inspect FILE` names it",
)


def compile_specs(blob: bytes, device: str, settings: bytes) -> tuple[CompileSpec, ...]:
    """The specs of a blob: its device, the settings of this runtime, and the checksum of the blob and of both."""
    seal = _SEAL.header(blob) + _SEAL.header(device.encode() + b"\0" + settings)
    return (
        CompileSpec(DEVICE, device.encode()),
        CompileSpec(_SETTINGS_KEY, settings),
        CompileSpec(_SEAL_KEY, seal),
    )


def check(payload: DelegatePayload) -> tuple[str, bytes | None]:
    """The device, and the settings of this runtime: None for a blob of another maker, which has no checksum.

    Raises FormatError if any bit differs from what was written.
    """
    check_specs(payload, {DEVICE, _SETTINGS_KEY, _SEAL_KEY}, WHERE)
    found = {key: compile_spec(payload, key, WHERE) for key in (DEVICE, _SETTINGS_KEY, _SEAL_KEY)}
    device, settings, seal = found[DEVICE] or b"CPU", found[_SETTINGS_KEY], found[_SEAL_KEY]
    if (settings is None) != (seal is None):
        raise FormatError("has one of two compile specs that belong together", where=WHERE)
    if settings is not None and seal is not None:
        size = _SEAL.header_size
        _SEAL.check(seal[:size], payload.blob)
        _SEAL.check(seal[size:], device + b"\0" + settings)
    try:
        return device.decode("ascii"), settings
    except UnicodeDecodeError as error:
        raise FormatError("has a damaged compile spec", where=WHERE) from error
