"""The registers of an Ethos-U55 while a command stream is read: the last values set, and their fields."""

from __future__ import annotations

from typing import Final

import numpy as np

from delegatekit_api import FormatError

from .commands import PAYLOAD_COMMANDS, Command
from .errors import NotExecutableError

#: Registers whose payload is a scale: the parameter is its shift.
_SCALES: Final = ("OFM_SCALE", "OPA_SCALE", "OPB_SCALE")
#: Registers whose value is a payload, with the parameter above it. All others hold the parameter.
_WIDE: Final = frozenset(PAYLOAD_COMMANDS.values())
#: Addresses and strides have 40 bits.
_ADDRESS_BITS: Final = 40

#: Registers that map the work to the NPU and control concurrency. They do not change a number.
SCHEDULING: Final = ("IFM_IB_END", "IFM2_IB_START", "AB_START", "BLOCKDEP", "OFM_BLK_WIDTH_M1", "OFM_BLK_HEIGHT_M1")


class Registers:
    """The registers set by the stream so far. Reading a register that was never set is an error."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._shifts: dict[str, int] = {}
        self.where = "command stream"

    def set(self, command: Command) -> None:
        """Apply a SET command."""
        name = command.name.removeprefix("SET_")
        if name in _SCALES:
            self._values[name] = command.payload
            self._shifts[name] = command.parameter
        else:
            wide = command.name in _WIDE
            self._values[name] = command.parameter << 32 | command.payload if wide else command.parameter

    def get(self, name: str) -> int:
        """A register's value, unsigned. Raises FormatError if it was never set."""
        try:
            return self._values[name]
        except KeyError:
            raise FormatError(f"register {name} was not set", where=self.where) from None

    def signed(self, name: str, bits: int = 16) -> int:
        """A register's value as a two's complement number."""
        value = self.get(name)
        return value - (1 << bits) if value >> (bits - 1) else value

    def number(self, name: str, dtype: np.dtype[np.generic]) -> int:
        """A register's value for elements of a type: with a sign if they have one."""
        return self.signed(name) if dtype.kind == "i" else self.get(name)

    def stride(self, name: str) -> int:
        """A stride in bytes: it may be negative."""
        return self.signed(name, _ADDRESS_BITS)

    def scale(self, name: str) -> tuple[int, int]:
        """Multiplier and right shift of a scale register."""
        value = self.get(name)
        return value, self._shifts[name]

    def refuse(self, reason: str) -> NotExecutableError:
        """The error for an unsupported feature of the operation being read."""
        return NotExecutableError(reason, where=self.where)
