"""The inside of a compiled delegate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from delegatekit_api.blobs import BlobOperator
from delegatekit_conformance.insides import bits, bytes_of, line_of, told_otherwise


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.arange(6.0)[3:4].as_strided((1,), (7,)),
        torch.tensor(2.5, requires_grad=True),
        torch.empty(0, 3),
    ],
)
def test_the_bytes_of_a_tensor_are_its_elements_in_order_whatever_its_strides(tensor: torch.Tensor) -> None:
    assert bits(tensor) == bytes_of(tensor) == tensor.detach().flatten().clone().numpy().tobytes()


@dataclass
class Compiled:
    blob: list[bytes]
    named_data: tuple[Any, ...] = ()


def test_a_line_has_a_checksum_of_the_bytes_and_what_is_told_of_the_operators() -> None:
    told = [BlobOperator("Clamp", ("x",), ("y",), {"clamp": "0 to 6"}), BlobOperator("Sub", ("y", "x"), ("z",))]
    line: Any = line_of
    first, other = (line(Compiled([data]), told) for data in (b"abc", b"abd"))
    assert first == "352441c2 9ffef237 Clamp clamp=0 to 6; Sub"
    assert other.partition(" ")[2] == first.partition(" ")[2]
    assert line(Compiled([b"abc"]), []) == ""
    assert told_otherwise([first], [other]) is None
    assert told_otherwise(["damaged", ""], ["damaged", first]) is None
    changed = line(Compiled([b"abc"]), told[:1])
    assert told_otherwise([first, other], [other, changed]) == ("Clamp clamp=0 to 6; Sub", "Clamp clamp=0 to 6")
    long = [line(Compiled([b"abc"]), [BlobOperator(f"Add{last}", (), ()), *told[:1]] * 20) for last in "ab"]
    assert all(len(one) < 200 for one in long) and told_otherwise(long[:1], long[1:]) is not None
