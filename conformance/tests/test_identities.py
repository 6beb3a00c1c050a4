"""Texts that look like identities: their places, and texts that are none."""

from __future__ import annotations

import gzip
import io
import json
import re
import uuid
import zipfile
from dataclasses import replace
from typing import Any

import pytest

from delegatekit_api import PreprocessResult
from delegatekit_conformance.cases.base import Broken
from delegatekit_conformance.cases.contract import identities
from delegatekit_conformance.cases.specimens import digest
from delegatekit_conformance.context import Context

HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
BASE64 = "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg"


@pytest.mark.parametrize("text", [HEX, HEX[:16], HEX[:40].upper(), str(uuid.UUID(HEX[:32])), BASE64, f"{BASE64}="])
def test_identities_are_found_in_containers(text: str) -> None:
    plain = json.dumps({"version": 3, "identifier": f"model_{text}" if text == HEX else text}).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", plain)
    for data in (
        plain,
        b"\1\2\3" + plain + b"\0",
        packed.getvalue(),
        gzip.compress(plain),
        plain.decode().encode("utf-16"),
    ):
        assert [*identities.texts(data).values()] == [text]


@pytest.mark.parametrize(
    "text", ["aten_native_layer_norm_default_weight", "1234567890123456", "Tensor1x3x224x224xFloat16AsOutput", HEX[:20]]
)
def test_words_and_numbers_are_none(text: str) -> None:
    assert not identities.texts(json.dumps({"name": text}).encode())


def _tried(monkeypatch: pytest.MonkeyPatch, make: Any) -> str:
    """The rule's verdict on a backend whose blobs `make` derives from the reference's."""
    original = identities.preprocess

    def preprocess(*given: Any) -> PreprocessResult:
        result = original(*given)
        blob = b"".join(map(bytes, result.blob)) if isinstance(result.blob, list | tuple) else bytes(result.blob)
        weights = b"".join(identities.bytes_of(item.data) for item in result.named_data)
        layout = re.sub(rb"[0-9a-f]{64}", b"", blob[blob.index(b"{") :])  # without checksum and keys
        return replace(result, named_data=(), blob=make(layout, weights))

    monkeypatch.setattr(identities, "preprocess", preprocess)
    return identities.identities_are_of_all(Context("reference"))


def test_an_identity_of_a_part_is_found_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Broken, match="two models have one identity"):
        _tried(monkeypatch, lambda layout, weights: b'{"id": "%s"}' % digest(layout).encode() + weights)


def test_what_is_sound_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        assert "texts" in _tried(patch, lambda layout, weights: digest(layout + weights).encode() + b"\0" + weights)
    with monkeypatch.context() as patch:
        found = _tried(patch, lambda layout, weights: b"kernel " + HEX.encode() + b"\0" + layout + weights)
        assert found.startswith("no text")
    with monkeypatch.context() as patch:
        _tried(
            patch, lambda layout, weights: (digest(layout) + " " + digest(weights + layout)).encode() + b"\0" + weights
        )
