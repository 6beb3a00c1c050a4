"""Element types: torch's and OpenVINO's."""

from __future__ import annotations

from typing import Final

import torch

#: torch's dtype -> the attribute of `openvino.Type`.
NAMES: Final = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "boolean",
}
#: OpenVINO's name -> torch's dtype, in which programs have integers of 4 bits.
DTYPES: Final = {name: dtype for dtype, name in NAMES.items()} | {"i4": torch.int8}
#: Significant bits of the floating-point types that values have; -1: the compositions' mark of booleans.
DIGITS: Final = {torch.float32: 24, torch.float16: 11, torch.bool: -1}
