"""The operations of a command stream in readable form: data flow by the bytes of memory. Blobs are stock's."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegatekit_api import FormatError
from delegatekit_api.blobs import BlobOperator
from delegatekit_ethosu.runtime.stream.inside import operators


def told(path: Path) -> list[BlobOperator]:
    return operators(memoryview(path.read_bytes()), {})


@pytest.mark.slow
def test_every_operation_of_stocks_network_leads_from_the_input_to_the_output(stock_files: Path) -> None:
    """Vela computes nothing that is unused, and reads all of the input."""
    found = told(stock_files / "ethos-u55-128.bin")
    from_input = {"input 0"}
    for operator in found:
        if from_input.intersection(operator.reads):
            from_input.update(operator.makes)
    needed = {name for operator in found if "returned" in operator.facts for name in operator.makes}
    assert needed
    for operator in reversed(found):
        assert needed.intersection(operator.makes), operator
        needed.update(operator.reads)
    assert "input 0" in needed
    outside = [item for item in found if not from_input.intersection(item.makes)]
    assert {item.name for item in outside} <= {"dma"}


def test_convolutions_say_what_they_are(stock_files: Path) -> None:
    found = told(stock_files / "ethos-u55-128.bin")
    depthwise = [item for item in found if item.name == "depthwise"]
    assert [item.facts["kernel"] for item in depthwise] == ["3x3"]
    strides = {item.facts.get("stride") for item in found if item.name == "conv"}
    assert "2x2" in strides
    # Its weights are copied beside it before.
    (weights,) = (item for item in found if item.makes == (depthwise[0].reads[1],))
    assert weights.name == "dma" and weights.reads[0].startswith("read-only data")


@pytest.mark.parametrize("target", ["ethos-u65-512", "ethos-u85-256"])
def test_streams_of_other_npus_are_not_known(target: str, stock_files: Path) -> None:
    with pytest.raises(FormatError, match="Ethos-U"):
        told(stock_files / f"{target}.bin")
