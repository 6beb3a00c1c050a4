"""Models of a vendor's library as blobs: what was written is read, damage is refused, calls are checked."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import pytest
import torch

from delegatekit_api import (
    Availability,
    DelegatePayload,
    ExecutionError,
    FormatError,
    RuntimeUnavailableError,
    TensorSpec,
)
from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.blob import Seal
from delegatekit_toolkit.foreign import ForeignModel, ForeignRuntime
from delegatekit_toolkit.signature import Range, Signature, TensorType
from delegatekit_toolkit.testing import payload_of

SEAL = Seal(b"DKITTEST", version=1, name="test blob")
ROWS = TensorType("float32", (Range(1, 4, 0), 2))
MODEL = ForeignModel("1.2", Signature((ROWS,), (ROWS,)), b"twice", {"threads": 2})
HEAD = {
    "library": "1.2",
    "signature": {"inputs": [{"dtype": "float32", "shape": [{"low": 1, "high": 4, "symbol": 0}, 2]}], "outputs": []},
    "settings": {},
}


class Doubling(ForeignRuntime[bytes]):
    """A library of release 1.5, whose models are the word twice."""

    seal = SEAL

    def availability(self, release: str) -> Availability:
        return Availability(release <= "1.5", f"needs {release}")

    def load(self, model: ForeignModel) -> bytes:
        if bytes(model.model) not in (b"twice", b"wrong"):
            raise FormatError("is no model")
        return bytes(model.model)

    def compute(
        self, session: bytes, inputs: Sequence[torch.Tensor], times: list[OperatorTime] | None
    ) -> list[torch.Tensor]:
        if times is not None:
            times.append(OperatorTime("twice", 0.5))
        return [2 * item if session == b"twice" else item[0] for item in inputs]


def payload(model: ForeignModel = MODEL, rows: int = 4) -> DelegatePayload:
    spec = TensorSpec("float32", (rows, 2), dynamic=True)
    return payload_of(model.wrap(SEAL), [spec], [spec])


def test_a_model_runs_with_the_sizes_of_each_call() -> None:
    runtime = Doubling()
    handle = runtime.init(payload())
    for rows in (1, 3):
        output = torch.empty(4, 2)
        runtime.execute(handle, [torch.ones(rows, 2)], [output])
        assert output.tolist() == [[2.0, 2.0]] * rows
    assert runtime.profile(handle, [torch.ones(1, 2)], [torch.empty(4, 2)]) == [OperatorTime("twice", 0.5)]
    with pytest.raises(ExecutionError, match="input 0"):
        runtime.execute(handle, [torch.ones(5, 2)], [torch.empty(4, 2)])
    runtime.destroy(handle)
    runtime.destroy(handle)
    with pytest.raises(ExecutionError, match="destroyed"):
        runtime.execute(handle, [torch.ones(1, 2)], [torch.empty(4, 2)])


def test_results_that_are_not_those_of_the_signature_are_not_stored() -> None:
    runtime, output = Doubling(), torch.full((4, 2), 7.0)
    handle = runtime.init(payload(ForeignModel("1.2", MODEL.signature, b"wrong")))
    with pytest.raises(ExecutionError, match="result 0"):
        runtime.execute(handle, [torch.ones(2, 2)], [output])
    assert (output == 7).all()


def test_a_model_of_a_newer_library_or_another_program_is_refused() -> None:
    with pytest.raises(RuntimeUnavailableError, match=r"needs 1\.9"):
        Doubling().init(payload(ForeignModel("1.9", MODEL.signature, b"twice")))
    with pytest.raises(FormatError, match="input 0"):
        Doubling().init(payload(rows=5))


def test_every_damaged_bit_is_noticed() -> None:
    blob = MODEL.wrap(SEAL)
    assert ForeignModel.unwrap(SEAL, blob) == ForeignModel("1.2", MODEL.signature, memoryview(b"twice"), {"threads": 2})
    for place in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(FormatError):
            ForeignModel.unwrap(SEAL, bytes(damaged))


@pytest.mark.parametrize(
    "head",
    [
        {**HEAD, "library": "1.2; rm -rf ~"},
        {**HEAD, "library": ""},
        {**HEAD, "more": 1},
        {**HEAD, "signature": {"inputs": [{"dtype": "load", "shape": []}], "outputs": []}},
        {**HEAD, "signature": {"inputs": [{"dtype": "float32", "shape": [-1]}], "outputs": []}},
        {
            **HEAD,
            "signature": {"inputs": [], "outputs": [{"dtype": "int8", "shape": [{"low": 3, "high": 2, "symbol": 0}]}]},
        },
        {**HEAD, "settings": {"threads": [1]}},
        [],
    ],
)
def test_a_crafted_head_is_refused(head: object) -> None:
    text = json.dumps(head).encode()
    with pytest.raises(FormatError):
        ForeignModel.unwrap(SEAL, SEAL.wrap(struct.pack("<Q", len(text)) + text))


@pytest.mark.parametrize("body", [b"", struct.pack("<Q", 1), struct.pack("<Q", 2**64 - 1) + b"{}"])
def test_a_head_beyond_the_end_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError, match="no whole head"):
        ForeignModel.unwrap(SEAL, SEAL.wrap(body))
