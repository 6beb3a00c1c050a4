"""The words of an Ethos-U55 command stream as named commands.

A stream is inside a driver payload: the four letters COP1, a CONFIG action (the target NPU), and the CMD_STREAM action
with the words. A word is 32 bits: an opcode in bits 0 to 9, in bits 14 and 15 whether a second word with a 32-bit
payload follows, and a parameter in bits 16 to 31.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from delegatekit_api import FormatError

from .errors import NotExecutableError

#: Commands of one word, by opcode. Those from 0x100 on set a register.
COMMANDS: Final = {
    0x000: "OP_STOP",
    0x001: "OP_IRQ",
    0x002: "OP_CONV",
    0x003: "OP_DEPTHWISE",
    0x005: "OP_POOL",
    0x006: "OP_ELEMENTWISE",
    0x010: "OP_DMA_START",
    0x011: "OP_DMA_WAIT",
    0x012: "OP_KERNEL_WAIT",
    0x013: "OP_PMU_MASK",
    0x100: "SET_IFM_PAD_TOP",
    0x101: "SET_IFM_PAD_LEFT",
    0x102: "SET_IFM_PAD_RIGHT",
    0x103: "SET_IFM_PAD_BOTTOM",
    0x104: "SET_IFM_DEPTH_M1",
    0x105: "SET_IFM_PRECISION",
    0x107: "SET_IFM_UPSCALE",
    0x109: "SET_IFM_ZERO_POINT",
    0x10A: "SET_IFM_WIDTH0_M1",
    0x10B: "SET_IFM_HEIGHT0_M1",
    0x10C: "SET_IFM_HEIGHT1_M1",
    0x10D: "SET_IFM_IB_END",
    0x10F: "SET_IFM_REGION",
    0x111: "SET_OFM_WIDTH_M1",
    0x112: "SET_OFM_HEIGHT_M1",
    0x113: "SET_OFM_DEPTH_M1",
    0x114: "SET_OFM_PRECISION",
    0x115: "SET_OFM_BLK_WIDTH_M1",
    0x116: "SET_OFM_BLK_HEIGHT_M1",
    0x117: "SET_OFM_BLK_DEPTH_M1",
    0x118: "SET_OFM_ZERO_POINT",
    0x11A: "SET_OFM_WIDTH0_M1",
    0x11B: "SET_OFM_HEIGHT0_M1",
    0x11C: "SET_OFM_HEIGHT1_M1",
    0x11F: "SET_OFM_REGION",
    0x120: "SET_KERNEL_WIDTH_M1",
    0x121: "SET_KERNEL_HEIGHT_M1",
    0x122: "SET_KERNEL_STRIDE",
    0x123: "SET_PARALLEL_MODE",
    0x124: "SET_ACC_FORMAT",
    0x125: "SET_ACTIVATION",
    0x126: "SET_ACTIVATION_MIN",
    0x127: "SET_ACTIVATION_MAX",
    0x128: "SET_WEIGHT_REGION",
    0x129: "SET_SCALE_REGION",
    0x12D: "SET_AB_START",
    0x12F: "SET_BLOCKDEP",
    0x130: "SET_DMA0_SRC_REGION",
    0x131: "SET_DMA0_DST_REGION",
    0x132: "SET_DMA0_SIZE0",
    0x133: "SET_DMA0_SIZE1",
    0x180: "SET_IFM2_BROADCAST",
    0x181: "SET_IFM2_SCALAR",
    0x185: "SET_IFM2_PRECISION",
    0x189: "SET_IFM2_ZERO_POINT",
    0x18A: "SET_IFM2_WIDTH0_M1",
    0x18B: "SET_IFM2_HEIGHT0_M1",
    0x18C: "SET_IFM2_HEIGHT1_M1",
    0x18D: "SET_IFM2_IB_START",
    0x18F: "SET_IFM2_REGION",
}

#: Commands of two words, by opcode: each sets a register to its payload. The parameter holds bits 32 and up of
#: addresses and strides, and the shift of scales.
PAYLOAD_COMMANDS: Final = {
    0x00: "SET_IFM_BASE0",
    0x01: "SET_IFM_BASE1",
    0x02: "SET_IFM_BASE2",
    0x03: "SET_IFM_BASE3",
    0x04: "SET_IFM_STRIDE_X",
    0x05: "SET_IFM_STRIDE_Y",
    0x06: "SET_IFM_STRIDE_C",
    0x10: "SET_OFM_BASE0",
    0x11: "SET_OFM_BASE1",
    0x12: "SET_OFM_BASE2",
    0x13: "SET_OFM_BASE3",
    0x14: "SET_OFM_STRIDE_X",
    0x15: "SET_OFM_STRIDE_Y",
    0x16: "SET_OFM_STRIDE_C",
    0x20: "SET_WEIGHT_BASE",
    0x21: "SET_WEIGHT_LENGTH",
    0x22: "SET_SCALE_BASE",
    0x23: "SET_SCALE_LENGTH",
    0x24: "SET_OFM_SCALE",
    0x25: "SET_OPA_SCALE",
    0x26: "SET_OPB_SCALE",
    0x30: "SET_DMA0_SRC",
    0x31: "SET_DMA0_DST",
    0x32: "SET_DMA0_LEN",
    0x33: "SET_DMA0_SKIP0",
    0x34: "SET_DMA0_SKIP1",
    0x80: "SET_IFM2_BASE0",
    0x81: "SET_IFM2_BASE1",
    0x82: "SET_IFM2_BASE2",
    0x83: "SET_IFM2_BASE3",
    0x84: "SET_IFM2_STRIDE_X",
    0x85: "SET_IFM2_STRIDE_Y",
    0x86: "SET_IFM2_STRIDE_C",
    0x90: "SET_WEIGHT1_BASE",
    0x91: "SET_WEIGHT1_LENGTH",
    0x92: "SET_SCALE1_BASE",
    0x93: "SET_SCALE1_LENGTH",
}

#: Driver actions, by id: the number of words after the tag. CMD_STREAM's own length is in its tag.
_CONFIG: Final = 0x01
_COMMAND_STREAM: Final = 0x02
_NOP: Final = 0x05
#: Bits 14 and 15 of a word, and which of their values are one-word and two-word commands.
_MODES: Final = {0: COMMANDS, 1: PAYLOAD_COMMANDS}
_OPCODE: Final = 0x3FF
#: Bits 10 to 13 are reserved: a word that sets one is not a command.
_RESERVED: Final = 0x3C00
_PRODUCT_U55: Final = 0
_PRODUCTS: Final = {1: "Ethos-U65", 2: "Ethos-U85"}


@dataclass(frozen=True)
class Configuration:
    """The NPU that a stream was made for: multiply-accumulate units and bytes of its internal memory."""

    macs: int
    internal_memory: int


@dataclass(frozen=True)
class Command:
    """One command. `offset` is that of its first word, in bytes from the start of the payload."""

    offset: int
    name: str
    parameter: int
    payload: int = 0


@dataclass(frozen=True)
class CommandStream:
    """A decoded stream: its target NPU, and its commands. The last one is OP_STOP."""

    configuration: Configuration
    commands: tuple[Command, ...]


def decode(data: bytes | memoryview) -> CommandStream:
    """Decode the driver payload of an Ethos-U55 program.

    Raises FormatError, with the offset, if it is truncated or has a word that is not a command, and NotExecutableError
    if it is for another NPU.
    """
    mark = data[:4]
    if mark not in (b"COP1", b"COP2") or len(data) % 4:
        raise FormatError("is not a driver payload: whole words that begin with COP1 or COP2", where="command stream")
    if mark == b"COP2":
        raise NotExecutableError("is of the second form, which no Ethos-U55 has", where="command stream")
    words = struct.unpack(f"<{len(data) // 4}I", data)
    configuration = None
    place = 1
    while place < len(words):
        tag = words[place]
        action = tag & 0xFF
        if action == _NOP:
            place += 1
        elif action == _CONFIG and place + 2 < len(words):
            configuration = _configuration(words[place + 1], 4 * place + 4)
            place += 3
        elif action == _COMMAND_STREAM:
            break
        else:
            raise FormatError(f"driver action {action:#04x} is unknown", where=_at(4 * place))
    else:
        raise FormatError("has no CMD_STREAM action", where="command stream")
    if configuration is None:
        raise FormatError("has no CONFIG action: which NPU it is for is unknown", where="command stream")
    count = (tag >> 16) | ((tag >> 8 & 0xFF) << 16)
    place += 1
    if place + count != len(words):
        raise FormatError(f"CMD_STREAM has {count} words, {len(words) - place} follow", where=_at(4 * place - 4))
    return CommandStream(configuration, _commands(words, place))


def _configuration(word: int, offset: int) -> Configuration:
    product = word >> 28
    if product != _PRODUCT_U55:
        name = _PRODUCTS.get(product, f"product {product}")
        raise NotExecutableError(f"is for an {name}, not for an Ethos-U55", where=_at(offset))
    macs = 1 << (word & 0xF)
    if macs not in (32, 64, 128, 256):
        raise FormatError(f"is for an Ethos-U55 of {macs} MACs, which does not exist", where=_at(offset))
    return Configuration(macs, 1024 * (word >> 8 & 0xFF))


def _commands(words: tuple[int, ...], place: int) -> tuple[Command, ...]:
    """The commands from word `place` on."""
    commands = []
    while place < len(words):
        word, offset = words[place], 4 * place
        names = _MODES.get(word >> 14 & 3)
        name = None if names is None or word & _RESERVED else names.get(word & _OPCODE)
        if name is None:
            raise FormatError(f"code {word & 0xFFFF:#06x} is not an Ethos-U55 command", where=_at(offset))
        size = 2 if names is PAYLOAD_COMMANDS else 1
        if place + size > len(words):
            raise FormatError(f"{name} is cut short", where=_at(offset))
        commands.append(Command(offset, name, word >> 16, words[place + 1] if size == 2 else 0))
        place += size
        if name == "OP_STOP" and place != len(words):
            raise FormatError(f"{len(words) - place} words follow OP_STOP", where=_at(offset))
    if not commands or commands[-1].name != "OP_STOP":
        raise FormatError("does not end with OP_STOP", where="command stream")
    return tuple(commands)


def _at(offset: int) -> str:
    return f"command stream, byte {offset}"
