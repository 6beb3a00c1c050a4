"""The envelope of a blob: a header, the flatbuffer of `schema`, and a section of constants.

The header's fields and their offsets are those of ExecuTorch's Vulkan delegate (1.5).
"""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = b"VH00"
IDENTIFIER: Final = b"VK00"
#: Zeros, magic, header length, offset and size of the flatbuffer, offset and size of the constants.
HEADER: Final = struct.Struct("<4x4sHIIIQ")
#: Alignment of the flatbuffer and of the constants, in bytes.
ALIGNMENT: Final = 16
#: Offset of the flatbuffer: after the header, aligned.
FLATBUFFER_OFFSET: Final = -(-HEADER.size // ALIGNMENT) * ALIGNMENT
VERSION: Final = "0"
