"""Changes of a compiled shader: other constants and other instructions of its SPIR-V, which need no compiler.

The words of the format: https://registry.khronos.org/SPIR-V/specs/unified1/SPIRV.html, 2.3 and 3.52.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from .changes import Change

#: The first word of a module, and the words before its first instruction.
_MAGIC = 0x07230203
_HEADER = 5
_TYPE_INT, TYPE_FLOAT, CONSTANT, SPEC_CONSTANT, _DECORATE = 21, 22, 43, 50, 71
#: The decoration that gives a specialization constant its number.
_SPEC_ID = 1
_BARRIER = 224
_NOP = 0
#: The names of instructions, and what each can become; both have the same words.
_NAMES: Mapping[int, str] = {
    128: "OpIAdd",
    129: "OpFAdd",
    130: "OpISub",
    131: "OpFSub",
    132: "OpIMul",
    133: "OpFMul",
    134: "OpUDiv",
    135: "OpSDiv",
    136: "OpFDiv",
    137: "OpUMod",
    138: "OpSRem",
    139: "OpSMod",
    170: "OpIEqual",
    171: "OpINotEqual",
    172: "OpUGreaterThan",
    173: "OpSGreaterThan",
    174: "OpUGreaterThanEqual",
    175: "OpSGreaterThanEqual",
    176: "OpULessThan",
    177: "OpSLessThan",
    178: "OpULessThanEqual",
    179: "OpSLessThanEqual",
    184: "OpFOrdLessThan",
    186: "OpFOrdGreaterThan",
    188: "OpFOrdLessThanEqual",
    190: "OpFOrdGreaterThanEqual",
    166: "OpLogicalOr",
    167: "OpLogicalAnd",
    194: "OpShiftRightLogical",
    196: "OpShiftLeftLogical",
    197: "OpBitwiseOr",
    199: "OpBitwiseAnd",
}
_OTHERS: Mapping[str, Mapping[int, int]] = {
    "arithmetic": {128: 130, 129: 131, 130: 128, 131: 129, 132: 128, 133: 129, 134: 132, 135: 132, 136: 133}
    | {137: 134, 138: 135, 139: 135, 194: 196, 196: 194, 197: 199, 199: 197},
    "boundary": {172: 174, 174: 172, 173: 175, 175: 173, 176: 178, 178: 176, 177: 179, 179: 177}
    | {184: 188, 188: 184, 186: 190, 190: 186},
    "comparison": {170: 171, 171: 170, 172: 178, 173: 179, 174: 176, 175: 177, 176: 174, 177: 175, 178: 172, 179: 173},
    "logic": {166: 167, 167: 166},
}
#: Instructions whose two operands may not be exchanged without another result.
_ORDERED = frozenset({130, 131, 134, 135, 136, 137, 138, 139})


def changes(data: bytes) -> list[Change]:
    """All changes of a SPIR-V module; `after` has the new words in hexadecimal. None for data that is not a module."""
    if len(data) < 4 * _HEADER or len(data) % 4 or struct.unpack_from("<I", data)[0] != _MAGIC:
        return []
    kinds: dict[int, str] = {}
    found = []
    for number, (offset, words) in enumerate(instructions(data), 1):
        code, count = words[0] & 0xFFFF, len(words)
        if code in (_TYPE_INT, TYPE_FLOAT) and words[2] == 32:
            kinds[words[1]] = "float" if code == TYPE_FLOAT else "int"
        for kind, other in _others(words, kinds):
            after = struct.pack(f"<{count}I", *other).hex()
            found.append(Change(kind, offset, offset + 4 * count, after, (number, number)))
    return found


def spec_ids(data: bytes) -> dict[int, int]:
    """The numbers of a module's specialization constants by their result ids."""
    decorations = (words for _, words in instructions(data) if words[0] & 0xFFFF == _DECORATE and len(words) == 4)
    return {words[1]: words[3] for words in decorations if words[2] == _SPEC_ID}


def specialized(data: bytes) -> int:
    """The number of specialization constants of a module, by the largest of their ids."""
    return 1 + max(spec_ids(data).values(), default=-1)


def apply(data: bytes, change: Change) -> bytes:
    """The changed module."""
    return data[: change.start] + bytes.fromhex(change.after) + data[change.end :]


def words(data: bytes, change: Change) -> tuple[str, str, str]:
    """The instruction's name, and what it was and becomes, to read."""
    texts = []
    for raw in (data[change.start : change.end], bytes.fromhex(change.after)):
        code, *operands = struct.unpack(f"<{len(raw) // 4}I", raw)
        name = {CONSTANT: "OpConstant", SPEC_CONSTANT: "OpSpecConstant", _BARRIER: "OpControlBarrier", _NOP: "OpNop"}
        texts.append(" ".join([(name | dict(_NAMES)).get(code & 0xFFFF, str(code & 0xFFFF)), *map(str, operands)]))
    return f"instruction {change.lines[0]}", texts[0], texts[1]


def instructions(data: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The offset in bytes and the words of each instruction."""
    place = 4 * _HEADER
    while place < len(data):
        count = struct.unpack_from("<I", data, place)[0] >> 16
        if not count or place + 4 * count > len(data):
            return
        yield place, struct.unpack_from(f"<{count}I", data, place)
        place += 4 * count


def _others(words: tuple[int, ...], kinds: Mapping[int, str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    code = words[0] & 0xFFFF
    head = words[0] & 0xFFFF0000
    # Of specialization constants these are defaults only: the dispatch gives the numbers.
    if code == CONSTANT and len(words) == 4 and words[1] in kinds:
        yield from (("number", (*words[:3], bits)) for bits in _numbers(words[3], kinds[words[1]]))
    for kind, others in _OTHERS.items():
        if code in others:
            yield kind, (head | others[code], *words[1:])
    if code in _ORDERED and len(words) == 5 and words[3] != words[4]:
        yield "operands", (*words[:3], words[4], words[3])
    if code == _BARRIER:
        # Instructions without words of their own take its place.
        yield "statement", (1 << 16 | _NOP,) * len(words)


def _numbers(bits: int, kind: str) -> Iterator[int]:
    if kind == "int":
        yield (bits + 1) & 0xFFFFFFFF
        yield (bits - 1) & 0xFFFFFFFF
        return
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    for other in (value * 2 + (not value), value * 0.5 - (not value)):
        if abs(other) < 3e38 and other != value:
            yield struct.unpack("<I", struct.pack("<f", other))[0]
