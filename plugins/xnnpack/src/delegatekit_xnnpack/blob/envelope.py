"""The envelope of a blob: a header, the flatbuffer of `schema`, and a constant section.

The header's fields and their offsets are those of ExecuTorch's XNNPACK backend (1.5).
"""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = b"XH00"
IDENTIFIERS: Final = (b"XN00", b"XN01")
#: Zeros, magic, header length, offset and size of the flatbuffer, offset and size of the constant section.
HEADER: Final = struct.Struct("<4x4sHIIIQ")
#: The header with padding: the flatbuffer begins here.
FLATBUFFER_OFFSET: Final = 32
#: Alignment of the constant section and of named data, in bytes.
ALIGNMENT: Final = 16
#: The runtime refuses more arguments.
MAX_EXTERNS: Final = 4096
