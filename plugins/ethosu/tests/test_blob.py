"""The delegate blob: packed data reads back, damage is refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from delegatekit_api import FormatError
from delegatekit_ethosu import blob
from delegatekit_ethosu.blob import Binding, Blob
from delegatekit_ethosu.compiler import compile_program
from delegatekit_ethosu.options import EthosUOptions


@pytest.fixture(scope="module")
def packed(small_program: bytes) -> bytes:
    return blob.pack(compile_program(small_program))


def test_a_blob_reads_back(small_program: bytes, packed: bytes) -> None:
    compiled = compile_program(small_program, EthosUOptions())
    found = blob.unpack(packed)
    assert found == Blob(
        compiled.command_stream, compiled.read_only, compiled.scratch_size, compiled.inputs, compiled.outputs
    )
    assert found.inputs[0].shape == (1, 1, 1, 8, 8, 16)
    assert found.outputs[0].shape == (1, 1, 1, 1, 1, 16)
    assert blob.pack(found) == packed
    assert blob.unpack(memoryview(packed)) == found
    assert len(packed) % 16 == 0
    assert packed[-32:].startswith(b"vela_end_stream\0")


def test_blocks_may_lie_outside(packed: bytes) -> None:
    found = blob.unpack(packed)
    key = "0123456789abcdef" * 4
    inside, outside = (
        blob._HEADER.pack(b"weight_data", len(data), flag) + data + bytes(-len(data) % 16)
        for data, flag in ((found.read_only, 0), (key.encode(), 1))
    )
    assert inside in packed
    moved = packed.replace(inside, outside)
    assert blob.unpack(moved, {key: found.read_only}) == found
    with pytest.raises(FormatError, match=r"block weight_data at offset \d+: its data is outside, .* missing"):
        blob.unpack(moved)


def _with(**changes: object) -> Callable[[bytes], bytes]:
    def change(packed: bytes) -> bytes:
        return blob.pack(Blob(**{**vars(blob.unpack(packed)), **changes}))  # type: ignore[arg-type]

    return change


def _binding(*shape: int, element_size: int = 1, address: int = 0, region: int = 1) -> tuple[Binding, ...]:
    return (Binding(shape, element_size, address, region),)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda packed: b"", "block vela_bin_stream at offset 0: the blob ends"),
        (lambda packed: packed[:-16], "block vela_end_stream .*: the blob ends"),
        (lambda packed: packed + bytes(16), "16 bytes follow"),
        (lambda packed: packed.replace(b"cmd_data", b"cmd_dat_"), "block cmd_data at offset 32: another name"),
        (lambda packed: packed[:48] + struct.pack("<I", 1 << 31) + packed[52:], "exceed the blob"),
        (lambda packed: packed[:53] + b"\1" + packed[54:], "its header is damaged"),
        (lambda packed: packed[:52] + b"\2" + packed[53:], "its header is damaged"),
        (_with(scratch_size=64), "lies outside the arena of 64 bytes"),
        (_with(inputs=_binding(1, 1, 1, 1, 1, 0)), r"block inputs: tensor 0 has the shape"),
        (_with(inputs=_binding(1, 1, 1, 1, 1, 4, element_size=3)), "of 3 bytes"),
        (_with(outputs=_binding(1, 1, 1, 1, 1, 4, address=-4)), "block outputs: tensor 0 lies outside"),
        (_with(outputs=_binding(1, 1, 1, 1, 1, 4, region=0)), "block outputs: tensor 0 lies outside"),
        (_with(outputs=_binding(*[1 << 30] * 6)), "block outputs, tensor 0: has the sizes .*: more than 64 GiB"),
        (_with(inputs=_binding(1, 1, 1, 1, 1, 4) * 2), "block inputs: two of them have one place"),
        (_with(inputs=_binding(1, 1, 1, 1, 1, 4) + _binding(1, 1, 1, 1, 1, 4, address=3)), "lies over block inputs"),
    ],
)
def test_damage_gives_one_clear_error(packed: bytes, damage: Callable[[bytes], bytes], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        blob.unpack(damage(packed))


def test_a_count_of_tensors_must_fit_its_block(packed: bytes) -> None:
    at = packed.index(b"inputs\0") + 32
    for count in (0, 2, 0xFFFFFFFF):
        damaged = packed[:at] + struct.pack("<I", count) + packed[at + 4 :]
        with pytest.raises(FormatError, match=f"block inputs: has 40 bytes for {count} tensors"):
            blob.unpack(damaged)


def test_random_damage_gives_format_errors_only(packed: bytes) -> None:
    dice = random.Random(0)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(packed)
        for _ in range(8):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            blob.unpack(damaged[: dice.randint(len(packed) - 64, len(packed))])
        except FormatError:
            refused += 1
    assert refused > 500
