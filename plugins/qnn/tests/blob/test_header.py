"""The blob: written blobs are read back, damage is detected, and stock's blobs are read, as are ours by stock."""

from __future__ import annotations

import random
import struct

import pytest

from delegatekit_api import FormatError
from delegatekit_qnn.blob.header import HEADER_SIZE, Blob, border, read_blob, write_blob

CONTEXT = bytes(range(256)) * 3
BORDER = border("forward", [("float32", (1, 3))], [("uint8", (2,))])
BLOB = write_blob(Blob(CONTEXT, "2.49.40", (BORDER, 7)))


def test_what_is_written_is_read() -> None:
    found = read_blob(BLOB)
    assert (bytes(found.context), found.version, found.borders) == (CONTEXT, "2.49.40", (BORDER, 7))
    assert bytes(read_blob(memoryview(BLOB)).context) == CONTEXT


def test_the_bytes_follow_from_the_content() -> None:
    assert write_blob(Blob(CONTEXT, "2.49.40", (BORDER, 7))) == BLOB
    signatures = {write_blob(Blob(CONTEXT + bytes([number]), ""))[4:12] for number in range(200)}
    assert len(signatures) == 200
    assert all(struct.unpack("<q", item)[0] >= 0 for item in signatures)


def test_the_border_is_that_of_the_method_its_types_and_shapes() -> None:
    plain = [("float32", (1, 3))], [("uint8", (2,))]
    others = [
        border("prefill", *plain),
        border("forward", [("float32", (3, 1))], plain[1]),
        border("forward", [("int32", (1, 3))], plain[1]),
        border("forward", [*plain[0], ("float32", (1,))], plain[1]),
        border("forward", plain[0], []),
        border("forward", plain[1], plain[0]),
    ]
    assert len({BORDER, *others}) == 7
    # A tensor without axes has one in QNN.
    assert border("f", [("bool", ())], []) == border("f", [("bool", [1])], [])


def test_more_methods_than_fit_are_not_told() -> None:
    most = tuple(range(48))
    assert read_blob(write_blob(Blob(CONTEXT, "1", most))).borders == most
    assert read_blob(write_blob(Blob(CONTEXT, "1", (*most, 48)))).borders == ()


@pytest.mark.parametrize("place", range(len(BLOB)))
def test_damage_of_any_byte_is_noticed(place: int) -> None:
    for bit in range(8):
        damaged = bytearray(BLOB)
        damaged[place] ^= 1 << bit
        with pytest.raises(FormatError):
            read_blob(damaged)


def test_what_is_cut_off_or_added_is_noticed() -> None:
    for size in (0, 3, 20, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 1, len(BLOB) - 1):
        with pytest.raises(FormatError):
            read_blob(BLOB[:size])
    with pytest.raises(FormatError, match="has 769 bytes of context instead of 768"):
        read_blob(BLOB + b"\0")


def test_random_bytes_are_refused() -> None:
    source = random.Random(0)
    for _ in range(2000):
        size = source.choice([0, 10, 255, 256, 300])
        data = bytearray(source.randbytes(size))
        if source.random() < 0.5:
            data[:4] = BLOB[:4]
        if source.random() < 0.5 and size > 24:
            data[20:24] = b"DKQ1"
        with pytest.raises(FormatError):
            read_blob(data)


def stock_blob(context: bytes) -> bytes:
    """A blob written by ExecuTorch's own code: nothing follows the length."""
    return struct.pack("<IQQ", 0x5678ABCD, 1_700_000_000_000_000_000, len(context)).ljust(HEADER_SIZE, b"\0") + context


def test_blobs_that_stock_wrote_are_read() -> None:
    found = read_blob(stock_blob(CONTEXT))
    assert (bytes(found.context), found.version, found.borders) == (CONTEXT, "", ())


def test_stock_reads_our_blob() -> None:
    adaptor = pytest.importorskip(
        "executorch.backends.qualcomm.python.PyQnnManagerAdaptor", reason="executorch has no binding of QNN here"
    )
    strip = getattr(adaptor, "StripProtocol", None) or adaptor.QnnManager.StripProtocol
    assert bytes(strip(BLOB)) == CONTEXT
