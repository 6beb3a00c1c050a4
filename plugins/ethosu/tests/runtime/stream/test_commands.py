"""Words of a command stream as commands, and data that is not a command stream."""

from __future__ import annotations

import struct

import pytest

from delegatekit_api import FormatError
from delegatekit_ethosu.compiler import compile_program
from delegatekit_ethosu.options import EthosUOptions
from delegatekit_ethosu.runtime.stream import NotExecutableError, decode
from delegatekit_ethosu.runtime.stream.commands import COMMANDS, PAYLOAD_COMMANDS

_STOP = 0xFFFF0000
#: Product 0, 24 KiB of internal memory, 2^7 MACs.
_U55_128 = 0x1807


def payload(*words: int, configuration: int = _U55_128, count: int | None = None) -> bytes:
    """A driver payload around the words of a stream."""
    length = len(words) if count is None else count
    head = [0x31504F43, 0x0010_0001, configuration, 0x10066001, 5, 5, 5, length << 16 | 2]
    return struct.pack(f"<{len(head) + len(words)}I", *head, *words)


def test_the_commands_are_those_that_vela_writes() -> None:
    registers = pytest.importorskip("ethosu.vela.ethos_u55_regs.ethos_u55_regs")
    assert {item.value: item.name.removeprefix("NPU_") for item in registers.cmd0} == COMMANDS
    assert {item.value: item.name.removeprefix("NPU_") for item in registers.cmd1} == PAYLOAD_COMMANDS


@pytest.mark.parametrize(("macs", "kilobytes"), [(32, 16), (64, 16), (128, 24), (256, 48)])
def test_a_program_says_which_npu_it_is_for(small_program: bytes, macs: int, kilobytes: int) -> None:
    stream = decode(compile_program(small_program, EthosUOptions(target=f"ethos-u55-{macs}")).command_stream)
    assert stream.configuration.macs == macs
    assert stream.configuration.internal_memory == 1024 * kilobytes
    assert stream.commands[-1].name == "OP_STOP"


def test_commands_have_their_offsets_parameters_and_payloads() -> None:
    stream = decode(payload(0x0007_010F, 0x0003_4024, 0x8000_0001, _STOP))
    assert [(item.name, item.offset, item.parameter, item.payload) for item in stream.commands] == [
        ("SET_IFM_REGION", 32, 7, 0),
        ("SET_OFM_SCALE", 36, 3, 0x8000_0001),
        ("OP_STOP", 44, 0xFFFF, 0),
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a driver payload"),
        (b"COP1", "no CMD_STREAM action"),
        (b"COP1\0\0", "not a driver payload"),
        (b"COP2\0\0", "not a driver payload"),
        (b"COP3", "not a driver payload"),
        (payload(_STOP)[:-4], "has 1 words, 0 follow"),
        (payload(_STOP, count=2), "has 2 words, 1 follow"),
        (payload(_STOP, configuration=0x1806 | 9), "Ethos-U55 of 32768 MACs"),
        (struct.pack("<4I", 0x31504F43, 4, 5, 5), "driver action 0x04 is unknown"),
        (struct.pack("<3I", 0x31504F43, 1 << 16 | 2, _STOP), "has no CONFIG action"),
        (payload(0x0000_0004, _STOP), "byte 32: code 0x0004 is not an Ethos-U55 command"),
        (payload(0x0000_0100, 0x0000_0106, _STOP), "byte 36: code 0x0106 is not an Ethos-U55 command"),
        (payload(0x0000_4007, 0, _STOP), "byte 32: code 0x4007 is no"),
        (payload(0x0000_8000, 0, _STOP), "byte 32: code 0x8000 is no"),
        (payload(0x0000_0500, _STOP), "byte 32: code 0x0500 is no"),
        (payload(0x0000_4000), "SET_IFM_BASE0 is cut short"),
        (payload(0x0000_0100), "does not end with OP_STOP"),
        (payload(_STOP, _STOP), "1 words follow OP_STOP"),
    ],
)
def test_what_is_no_stream_is_refused_with_its_place(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode(data)


@pytest.mark.parametrize(("target", "reason"), [("ethos-u65-256", "Ethos-U65"), ("ethos-u85-256", "Ethos-U85|second")])
def test_a_stream_for_another_npu_is_whole_but_not_executable(small_program: bytes, target: str, reason: str) -> None:
    with pytest.raises(NotExecutableError, match=reason):
        decode(compile_program(small_program, EthosUOptions(target=target)).command_stream)
