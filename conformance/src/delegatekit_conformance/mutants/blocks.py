"""The blocks of a compiled shader that a dispatch may reach, given the numbers of its specialization constants.

A shader for many operators branches by these constants: most of its blocks are unreachable for any one dispatch. Blocks
are numbered from 1, in the order of the module; sets of them are masks (bit n is block n), as those of lines are. Bit 0
means the module: each dispatch has it.
The words of the format: https://registry.khronos.org/SPIR-V/specs/unified1/SPIRV.html, 2.2.5 and 3.52.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from .shaders import CONSTANT, SPEC_CONSTANT, TYPE_FLOAT, instructions, spec_ids

_TYPE_BOOL, _FUNCTION, _LABEL = 20, 54, 248
_TRUE, _FALSE, _COMPOSITE = 41, 42, 44
_SPEC_TRUE, _SPEC_FALSE, _SPEC_COMPOSITE, _SPEC_OPERATION = 48, 49, 51, 52
_BRANCH, _CONDITIONAL, _SWITCH = 249, 250, 251
_CONSTANTS: Final = frozenset({_TRUE, _FALSE, CONSTANT, _SPEC_TRUE, _SPEC_FALSE, SPEC_CONSTANT})
#: Instructions of a module that make an id of others, and all that give one to a number.
_MADE: Final = frozenset({_COMPOSITE, _SPEC_COMPOSITE, _SPEC_OPERATION})
_DEFINING: Final = _CONSTANTS | _MADE

_Value = bool | int | float


def _unsigned(value: _Value) -> int:
    return int(value) & 0xFFFFFFFF


def _of_unsigned(compare: Callable[[int, int], bool]) -> Callable[[_Value, _Value], bool]:
    return lambda a, b: compare(_unsigned(a), _unsigned(b))


#: Operations that can be evaluated on known numbers.
_COMPUTED: Mapping[int, Callable[..., _Value]] = {
    128: operator.add,
    130: operator.sub,
    132: operator.mul,
    164: operator.eq,
    165: operator.ne,
    166: lambda a, b: bool(a or b),
    167: lambda a, b: bool(a and b),
    168: operator.not_,
    169: lambda condition, a, b: a if condition else b,
    170: operator.eq,
    171: operator.ne,
    172: _of_unsigned(operator.gt),
    173: operator.gt,
    174: _of_unsigned(operator.ge),
    175: operator.ge,
    176: _of_unsigned(operator.lt),
    177: operator.lt,
    178: _of_unsigned(operator.le),
    179: operator.le,
}


class Blocks:
    """The blocks of one module, and the branches between them."""

    def __init__(self, data: bytes) -> None:
        """`data` is a SPIR-V module."""
        self._types: dict[int, int] = {}
        self._given = spec_ids(data)
        #: The instruction that defines an id, where its value may be known.
        self._defined: dict[int, tuple[int, ...]] = {}
        #: The instructions outside of blocks, and those of each block.
        self._module: list[tuple[int, ...]] = []
        self._blocks: list[list[tuple[int, ...]]] = []
        self._labels: dict[int, int] = {}
        #: The first block of each function: counted as called in any case.
        self._entries: list[int] = []
        #: The block of each instruction; 0 for those outside.
        self._places: list[int] = [0]
        inside = False
        for _, words in instructions(data):
            code = words[0] & 0xFFFF
            if code == _LABEL:
                self._blocks.append([])
                self._labels[words[1]] = len(self._blocks)
                self._entries += [] if inside else [len(self._blocks)]
                inside = True
            elif code == _FUNCTION:
                inside = False
            self._places.append(len(self._blocks) if inside else 0)
            (self._blocks[-1] if inside else self._module).append(words)
            if code in (_TYPE_BOOL, TYPE_FLOAT):
                self._types[words[1]] = code
            elif code in _CONSTANTS or code == _SPEC_OPERATION or (code in _COMPUTED and len(words) > 3):
                self._defined[words[2]] = words

    @property
    def all(self) -> int:
        """All blocks, and the module."""
        return (1 << len(self._blocks) + 1) - 1

    def of_instruction(self, number: int) -> int:
        """The blocks in which an instruction (from 1) matters: its own; of what a module defines, those that use it."""
        block = self._places[number] if number < len(self._places) else 0
        if block:
            return 1 << block
        words = self._module[sum(1 for place in self._places[1:number] if not place)]
        return self._using({words[2]}) if words[0] & 0xFFFF in _DEFINING else self.all

    def _using(self, names: set[int]) -> int:
        """The blocks that use one of the ids, or a value that the module derives from them."""
        for words in self._module:
            if words[0] & 0xFFFF in _MADE and names & set(words[3:]):
                names.add(words[2])
        found = 0
        for number, block in enumerate(self._blocks, 1):
            if any(names & set(words[1:]) for words in block):
                found |= 1 << number
        return found or self.all

    def reached(self, numbers: Sequence[float]) -> int:
        """The blocks that may be reached where the specialization constants have these numbers, from the first on."""
        known: dict[int, _Value | None] = {}
        found, left = 1, [*self._entries]
        while left:
            number = left.pop()
            if found >> number & 1:
                continue
            found |= 1 << number
            left += [self._labels[label] for label in self._next(self._blocks[number - 1][-1], numbers, known)]
        return found

    def _next(self, words: tuple[int, ...], numbers: Sequence[float], known: dict[int, _Value | None]) -> Sequence[int]:
        """The labels at which it may go on after a block's last instruction."""
        code = words[0] & 0xFFFF
        if code == _BRANCH:
            return words[1:2]
        if code not in (_CONDITIONAL, _SWITCH):
            return ()
        value = self._value(words[1], numbers, known)
        if code == _CONDITIONAL:
            return words[2:4] if value is None else words[2:3] if value else words[3:4]
        literals, labels = words[3::2], words[4::2]
        if value is None:
            return (words[2], *labels)
        return (dict(zip(literals, labels, strict=True)).get(_unsigned(value), words[2]),)

    def _value(self, name: int, numbers: Sequence[float], known: dict[int, _Value | None]) -> _Value | None:
        """The value of an id; None if it is not known before the shader runs."""
        if name not in known:
            known[name] = None
            known[name] = self._computed(self._defined.get(name, ()), numbers, known)
        return known[name]

    def _computed(
        self, words: tuple[int, ...], numbers: Sequence[float], known: dict[int, _Value | None]
    ) -> _Value | None:
        code = words[0] & 0xFFFF if words else 0
        if code in (_SPEC_TRUE, _SPEC_FALSE, SPEC_CONSTANT):
            place = self._given.get(words[2], len(numbers))
            if place >= len(numbers):
                return None
            kind = self._types.get(words[1])
            value = numbers[place]
            return bool(value) if kind == _TYPE_BOOL else float(value) if kind == TYPE_FLOAT else int(value)
        if code in (_TRUE, _FALSE):
            return code == _TRUE
        if code == CONSTANT:
            return _number(words[3], self._types.get(words[1]) == TYPE_FLOAT) if len(words) == 4 else None
        if code == _SPEC_OPERATION:
            code, words = words[3], (0, *words[1:3], *words[4:])
        if code not in _COMPUTED:
            return None
        operands = [self._value(name, numbers, known) for name in words[3:]]
        return None if None in operands else _COMPUTED[code](*operands)


def _number(bits: int, is_float: bool) -> _Value:
    (value,) = struct.unpack("<f" if is_float else "<i", struct.pack("<I", bits))
    found: _Value = value
    return found
