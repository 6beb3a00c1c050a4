"""Named data that are made again when they are written, and zeros."""

from __future__ import annotations

import pytest
import torch

from delegatekit_api import NamedData, PluginError
from delegatekit_toolkit.content import content_key
from delegatekit_toolkit.later import Later, Shelf, zeros


class Maker:
    """Makes two tensors, and counts how often."""

    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0

    def __call__(self) -> list[NamedData]:
        self.count += 1
        return [NamedData(f"{self.name}{number}", torch.full((8,), float(number)), 32) for number in range(2)]


def test_what_has_room_stays_as_it_is_and_takes_it() -> None:
    shelf, (one, two, three) = Shelf(room=150), (Maker(name) for name in "abc")
    for maker, kind in ((one, torch.Tensor), (two, torch.Tensor), (three, Later)):
        found = shelf.put_off(maker(), maker, "here")
        assert list(found) == [f"{maker.name}0", f"{maker.name}1"]
        assert {type(item.data) for item in found.values()} == {kind}


def test_each_maker_is_called_once_if_its_data_are_read_together() -> None:
    shelf, makers = Shelf(room=0), [Maker(name) for name in "abc"]
    put = [shelf.put_off(maker(), maker, "here") for maker in makers]
    for found in put:
        for key, item in found.items():
            later = item.data
            assert isinstance(later, Later) and (item.key, item.alignment, later.nbytes) == (key, 32, 32)
            assert later.digest.hex() == content_key(later.read())
    assert [maker.count for maker in makers] == [2, 2, 2]
    put[0]["a0"].data.read()  # type: ignore[union-attr]
    assert makers[0].count == 3


@pytest.mark.parametrize("again", [[], [NamedData("key", b"other")]])
def test_data_that_are_not_the_same_again_are_refused(again: list[NamedData]) -> None:
    item = Shelf(room=0).put_off([NamedData("key", b"data")], lambda: again, "backend x")["key"]
    with pytest.raises(PluginError, match="backend x, named data key: is not the same each time it is made"):
        item.data.read()  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_zeros_are_those_of_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    found = zeros(shape, dtype)
    assert torch.equal(found, torch.zeros(shape, dtype=dtype)) and found.is_contiguous()
    found.fill_(1)
    assert torch.equal(found, torch.ones(shape, dtype=dtype))
