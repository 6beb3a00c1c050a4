"""The layout of what OpenVINO 2025 exports for a CPU, and names in it that do not depend on the process.

offset  bytes  what (little endian)
0       6 x 8  offset and size of the properties, of the constants, and of the model
48             properties (XML), constants, and the model: XML, each byte combined with one of a key
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import unescape

from delegatekit_api import FormatError

_HEADER: Final = struct.Struct("<6Q")
#: The key of OpenVINO's `codec_xor`.
_KEY: Final = bytes((0x30, 0x60, 0x70, 0x02, 0x04, 0x08, 0x3F, 0x6F, 0x72, 0x74, 0x78, 0x7F))
_WHERE: Final = "OpenVINO blob"
_LAYER: Final = re.compile(r'<layer id="\d+" name="([^"]*)" type="([^"]*)"')
_NAMES: Final = re.compile(r'((?: name| names|output_names|name="fused_names" version="0" value)=")([^"]*)"')


@dataclass(frozen=True)
class Layout:
    """The parts of a blob."""

    properties: memoryview
    constants: memoryview
    #: The model in clear text.
    model: str


def read_layout(blob: bytes | memoryview) -> Layout:
    """The parts of a blob. Raises FormatError for one that ends too early, or has another layout."""
    data = memoryview(blob).cast("B")
    if len(data) < _HEADER.size:
        raise FormatError(f"{len(data)} bytes are too few for the header", where=_WHERE)
    fields = _HEADER.unpack_from(data)
    parts = []
    for start, size in zip(fields[::2], fields[1::2], strict=True):
        if start < _HEADER.size or start + size > len(data):
            raise FormatError("ends too early, or is not what OpenVINO 2025 exports for a CPU", where=_WHERE)
        parts.append(data[start : start + size])
    properties, constants, model = parts
    try:
        text = _masked(bytes(model)).decode()
    except UnicodeDecodeError as error:
        raise FormatError("has a damaged model", where=_WHERE) from error
    return Layout(properties, constants, text)


def renamed(blob: bytes, known: frozenset[str]) -> tuple[bytes, dict[str, str]]:
    """The blob with the names that OpenVINO gave, which count what the process made, numbered from 0 instead.

    Also returns the new names by the old ones.
    """
    layout = read_layout(blob)
    start, size = _HEADER.unpack_from(blob)[4:]
    if start + size != len(blob):
        raise FormatError("does not end with the model", where=_WHERE)
    new: dict[str, str] = {}
    for name, kind in _LAYER.findall(layout.model):
        if unescape(name) not in known:
            new.setdefault(name, f"{kind}_made_{len(new)}")

    def replaced(match: re.Match[str]) -> str:
        return match[1] + ",".join(new.get(part, part) for part in match[2].split(",")) + '"'

    text = _masked(_NAMES.sub(replaced, layout.model).encode())
    fields = list(_HEADER.unpack_from(blob))
    fields[5] = len(text)
    return b"".join((_HEADER.pack(*fields), memoryview(blob)[_HEADER.size : start], text)), new


def _masked(data: bytes) -> bytes:
    """Bytes combined with the key, which is its own inverse."""
    repeated = _KEY * (len(data) // len(_KEY) + 1)
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated[: len(data)], "little")).to_bytes(
        len(data), "little"
    )
