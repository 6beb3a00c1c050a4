"""A sealed blob is read back unchanged, or not at all."""

from __future__ import annotations

import pytest

from delegatekit_api import CompileSpec, DelegatePayload, FormatError
from delegatekit_toolkit.blob import Seal, check_specs, compile_spec, named_bytes

SEAL = Seal(b"TESTBLOB", version=3, name="test blob", hint="install the release that made it")
BODY = bytes(range(40))


def payload(specs: tuple[CompileSpec, ...] = (), data: dict[str, memoryview] | None = None) -> DelegatePayload:
    return DelegatePayload("Test", memoryview(b""), specs, (), (), data or {}, lambda keys: b"")


@pytest.mark.parametrize("body", [b"", b"x", BODY])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_body_comes_back(body: bytes, kind: type) -> None:
    blob = SEAL.wrap(body)
    assert blob == SEAL.wrap(body)
    assert len(blob) == SEAL.header_size + len(body)
    assert bytes(SEAL.unwrap(kind(blob))) == body


def test_the_header_is_as_documented() -> None:
    blob = SEAL.wrap(BODY)
    assert blob[:8] == b"TESTBLOB"
    assert int.from_bytes(blob[8:12], "little") == 3
    assert int.from_bytes(blob[16:24], "little") == len(BODY)
    assert blob[24:] == BODY


def test_every_bit_counts() -> None:
    blob = SEAL.wrap(BODY)
    for place in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(FormatError, match="test blob"):
            SEAL.unwrap(damaged)


def test_every_length_counts() -> None:
    blob = SEAL.wrap(BODY)
    for length in range(len(blob)):
        with pytest.raises(FormatError):
            SEAL.unwrap(blob[:length])
    with pytest.raises(FormatError, match="has 41 bytes instead of 40: cut off, or something was appended"):
        SEAL.unwrap(blob + b"\0")


def test_other_blobs_are_told_apart() -> None:
    with pytest.raises(FormatError, match=r"begins with b'OTHERONE', not with b'TESTBLOB'"):
        SEAL.unwrap(Seal(b"OTHERONE", 3, "other").wrap(BODY))
    with pytest.raises(FormatError, match=r"has version 2 .*reads version 3(.|\n)*install the release"):
        SEAL.unwrap(Seal(b"TESTBLOB", 2, "older").wrap(BODY))
    with pytest.raises(FormatError, match="3 bytes are too few: the header has 24"):
        SEAL.unwrap(b"abc")
    with pytest.raises(ValueError, match="is not 8 bytes long"):
        Seal(b"SHORT", 1, "short")


def test_compile_specs_are_read_once() -> None:
    target, mode = CompileSpec("target", b"a1"), CompileSpec("mode", b"fast")
    assert compile_spec(payload((target, mode)), "mode") == b"fast"
    assert compile_spec(payload(), "mode") is None
    with pytest.raises(FormatError, match="mine: has 2 compile specs 'mode'"):
        compile_spec(payload((mode, mode)), "mode", "mine")
    check_specs(payload((target, mode)), {"target", "mode", "more"})
    with pytest.raises(FormatError, match="mine: has a compile spec 'mode', which this release does not know"):
        check_specs(payload((target, mode)), {"target"}, "mine")


def test_named_data_has_its_size() -> None:
    given = payload(data={"w": memoryview(b"1234")})
    assert bytes(named_bytes(given, "w")) == bytes(named_bytes(given, "w", 4)) == b"1234"
    with pytest.raises(FormatError, match="named data w: has 4 bytes instead of 5"):
        named_bytes(given, "w", 5)
    with pytest.raises(FormatError, match="mine: the file has no data 'v'"):
        named_bytes(given, "v", where="mine")
