"""Constants that are computed on read take memory only while they are referenced."""

from __future__ import annotations

import gc
import weakref

import torch

from delegatekit.compiling.constants import Pieces, map_constants, write_constants
from delegatekit.edge import build_edge
from delegatekit.edge.constants import Constants


def _computed(count: int = 3) -> tuple[Constants[int], list[int]]:
    calls: list[int] = []
    constants: Constants[int] = Constants()

    def value(number: int) -> torch.Tensor:
        calls.append(number)
        return torch.full((1000,), float(number))

    for number in range(count):
        constants.compute(number, lambda number=number: value(number))
    return constants, calls


def test_nothing_is_computed_before_it_is_read() -> None:
    constants, calls = _computed()
    others = constants.renamed({"b": 1, "a": 0})
    taken: Constants[str] = Constants({"own": torch.ones(1)})
    taken.update(others)
    assert list(taken) == ["own", "b", "a"]
    assert 0 in constants and "a" in taken and len(constants) == 3
    assert not calls
    assert taken["b"][0] == 1
    assert calls == [1]


def test_a_computed_value_is_one_object_as_long_as_it_lives_and_then_gone() -> None:
    constants, calls = _computed()
    first = constants[0]
    assert constants.renamed({"x": 0})["x"] is first
    assert [key for key, _ in constants.known()] == [0]
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
    assert not list(constants.known())
    assert constants[0][0] == 0
    assert calls == [0, 0]


def test_what_a_view_has_read_keeps_its_address_until_it_is_released() -> None:
    constants, calls = _computed()
    kept = constants.keeping()
    by_name = kept.renamed({"zero": 0})
    address = kept[0].data_ptr()
    assert by_name["zero"].data_ptr() == address == constants[0].data_ptr()
    assert calls == [0]
    assert kept.release(0)
    assert not list(constants.known())
    assert kept[0][0] == 0
    assert calls == [0, 0]
    held = Constants({0: torch.ones(2)}).keeping()
    assert not held.release(0)


def test_passing_on_keeps_nothing_that_is_kept() -> None:
    constants, calls = _computed()
    passing = constants.keeping().passing()
    assert [int(value[0]) for value in passing.values()] == [0, 1, 2]
    assert [int(value[0]) for value in passing.values()] == [0, 1, 2]
    assert calls == [0, 1, 2] * 2


def test_a_file_of_constants_tells_computed_ones_apart_whatever_their_address(tmp_path) -> None:
    constants, _ = _computed(20)
    shared = torch.arange(5.0)
    constants[20] = shared
    constants[21] = shared.detach()
    places = write_constants(tmp_path / "constants", [constants])
    read = map_constants(tmp_path / "constants", places)
    for number in range(20):
        assert torch.equal(read[number], torch.full((1000,), float(number)))
    assert places[20] == places[21]
    assert torch.equal(read[21], shared)


def test_pieces_are_found_in_what_lies_in_memory_alone() -> None:
    constants, calls = _computed()
    held = constants[1]
    pieces = Pieces(constants)
    assert calls == [1]
    assert pieces.find(held[10:20]) == (1, 40)
    assert pieces.find(torch.ones(3)) is None


def test_a_layer_with_its_norm_folded_in_is_computed_when_it_is_read() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.BatchNorm2d(64)).eval()
    with torch.no_grad():
        model[1].running_var.uniform_(0.5, 2)
        model[1].running_mean.uniform_(-1, 1)
        model[1].weight.uniform_(-2, 2)
    x = torch.randn(1, 3, 8, 8)
    edge = build_edge(torch.export.export(model, (x,)))
    known = dict(edge.constants.known())
    weight = next(node for node in edge.constants if "folded_weight" in node.name)
    assert weight not in known
    (call,) = (node for node in edge.graph.nodes if node.op == "call_function")
    bias = edge.constants[call.args[2]]
    result = torch.nn.functional.conv2d(x.double(), edge.constants[weight].double(), bias.double())
    # Two roundings of each weight to float32, and one of the bias.
    bound = (
        4
        * torch.finfo(torch.float32).eps
        * torch.nn.functional.conv2d(x.double().abs(), edge.constants[weight].double().abs(), bias.double().abs())
    )
    assert bool(((result - model.double()(x.double())).abs() <= bound).all())


class Converted(torch.nn.Module):
    """Products with constants of another type, and a view of one."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0, 1, count).bfloat16())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight.float().view(2, -1)


def test_a_large_folded_constant_is_computed_when_it_is_read_and_a_small_one_held() -> None:
    for count, held in ((1 << 10, True), (1 << 20, False)):
        model = Converted(count).eval()
        method = build_edge(torch.export.export(model, (torch.ones(2, count // 2),), strict=False))
        (folded,) = method.constants
        assert method.constants.is_held(folded) == held
        assert torch.equal(method.constants[folded], model.weight.float().view(2, -1))
        assert [node.op for node in method.graph.nodes].count("call_function") == 1
