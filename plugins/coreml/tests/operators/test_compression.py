"""Packed weights: what coremltools unpacks from the package is what the interpreter computes with."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_api import OptionError
from delegatekit_conformance.testkit import Lowered, lower
from delegatekit_coreml.operators.compression import palette
from delegatekit_toolkit.accuracy import tolerance
from delegatekit_toolkit.tables import balanced

X = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 48, 3, padding=1, bias=False), nn.ReLU())
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(48 * 64, 10)).eval()


def lowered(**options: Any) -> Lowered:
    return lower(network(), X, backend="coreml", options={"precision": "float32", **options})


def computed_constants(program: Any) -> list[np.ndarray[Any, Any]]:
    """The packed constants of a program, in their order, as coremltools' own loader computes them."""
    operations = program.functions["main"].operations
    packed = [item for item in operations if item.op_type.startswith("constexpr_")]
    inner = [item for item in packed if any(user in packed for user in item.outputs[0].child_ops)]
    return [item.materialized_val_inference() for item in packed if item not in inner]


FORMS: list[dict[str, Any]] = [
    *({"palettize": bits, "target": target} for bits in (1, 2, 4, 6, 8) for target in ("ios16", "ios18")),
    {"palettize": 3, "target": "ios18"},
    {"palettize": 4, "palette_channels": 16, "target": "ios18"},
    {"palettize": 2, "palette_channels": 7, "target": "ios18"},
    {"prune": 0.6, "target": "ios17"},
    {"prune": 0.6, "target": "ios18"},
]


@pytest.mark.sweep
@pytest.mark.parametrize("options", FORMS, ids=str)
def test_results_are_those_of_the_unpacked_weights(options: dict[str, Any], read_back: Any) -> None:
    found = lowered(**options)
    _, program = read_back(found.delegate.blob)
    weights = computed_constants(program)
    model = copy.deepcopy(found.module).double()
    # The first convolution has 1728 numbers, which is too few.
    assert len(weights) == 2
    for layer, weight in zip((model[2], model[5]), weights, strict=True):
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(np.asarray(weight)))
        if "prune" in options:
            # A whole number of them is 0.
            assert float((layer.weight == 0).double().mean()) == pytest.approx(0.6, abs=1 / layer.weight.numel())
        elif options["target"] == "ios16":
            assert len(layer.weight.unique()) == 1 << options["palettize"]
    with torch.no_grad():
        wanted = model(X.double())
    # Less than the bound for sums of 3072 products: the results are below 1, and kernels add in blocks.
    limit = tolerance("float32", "float32", 1, depth=6)
    torch.testing.assert_close(found.run()[0].double(), wanted, rtol=limit, atol=limit)


def test_weights_of_five_axes_have_tables() -> None:
    # A table has two axes more.
    model = nn.Conv3d(8, 16, 3).eval()
    found = lower(model, torch.randn(1, 8, 4, 4, 4), backend="coreml", options={"palettize": 8, "target": "ios18"})
    # Of weights between -1 / sqrt(216) and 1 / sqrt(216), 256 numbers are at most about 2 / sqrt(216) / 512 off, and
    # 216 inputs of about 0.8 are multiplied by them: 0.046.
    torch.testing.assert_close(found.run()[0], found.eager()[0], rtol=0, atol=0.05)


@pytest.mark.parametrize("bits", [2, 4, 6])
def test_tables_are_as_good_as_those_of_scikit_learn(bits: int) -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    values = torch.randn(5000, generator=torch.Generator().manual_seed(1)) ** 3
    means = cluster.KMeans(1 << bits, n_init=4, random_state=0).fit(values[:, None].numpy())
    table = palette(values, 1 << bits)
    ours = float((values[:, None] - table).abs().amin(1).square().sum())
    assert ours <= 1.001 * float(means.inertia_)


def test_a_table_of_few_numbers_has_them_all() -> None:
    values = torch.tensor([0.5, -1.0, 0.5, 2.0])
    assert palette(values, 4).tolist() == [-1.0, 0.5, 2.0, 2.0]


def test_errors_of_a_channel_add_up_to_nearly_nothing() -> None:
    """With all inputs alike, what a channel computes hardly changes; the single weights hardly get worse for it."""
    values = torch.randn(64, 500, generator=torch.Generator().manual_seed(2)) + 0.1
    table = palette(values.reshape(-1), 16)
    nearest = torch.bucketize(values, (table[1:] + table[:-1]) / 2)
    tables = table.expand(64, 16)
    moved = balanced(values, nearest, tables)

    def errors(found: torch.Tensor) -> torch.Tensor:
        return (tables.gather(1, found) - values).double()

    # A step to the next entry is the least that a sum can change by.
    assert float(errors(moved).sum(1).abs().max()) <= float(table.diff().max()) / 2
    assert float(errors(nearest).sum(1).abs().max()) > 4 * float(errors(moved).sum(1).abs().max())
    assert float(errors(moved).square().sum()) < 1.05 * float(errors(nearest).square().sum())
    assert (moved - nearest).abs().max() == 1


class Layers(nn.Module):
    """An ordinary convolution, a depthwise, a transposed one and a linear layer: 2304, 3200, 9216 and 5120 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 128, 3, padding=1)
        self.blocks = nn.Sequential(nn.Conv2d(128, 128, 5, padding=2, groups=128), nn.ConvTranspose2d(128, 8, 3))
        self.head = nn.Linear(8 * 8, 80)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.blocks(self.stem(x))[..., :8, :8].flatten(2))
        return found


def _in_order(item: set[int] | dict[str, object]) -> str:
    """A name for a test that is the same in every process: sets have no order."""
    if isinstance(item, dict):
        return str({name: sorted(value) if isinstance(value, set) else value for name, value in item.items()})
    return str(sorted(item))


@pytest.mark.parametrize(
    ("options", "packed"),
    [
        ({}, {2304, 9216, 5120}),
        ({"unpacked_layers": ()}, {2304, 3200, 9216, 5120}),
        ({"unpacked_layers": {"linear", "depthwise"}}, {2304, 9216}),
        ({"unpacked_layers": {"convolution"}}, {3200, 5120}),
        ({"unpacked_layers": {"convolution", "depthwise"}}, {5120}),
        ({"unpacked_modules": {"blocks"}}, {2304, 5120}),
        ({"unpacked_modules": {"*.1", "head"}}, {2304}),
        ({"unpacked_modules": {"**"}}, set()),
        ({"unpacked_below": 5121}, {9216}),
    ],
    ids=_in_order,
)
@pytest.mark.parametrize("form", [{"palettize": 2}, {"prune": 0.5}])
def test_layers_can_be_left_as_they_are(
    form: dict[str, Any], options: dict[str, Any], packed: set[int], read_back: Any
) -> None:
    torch.manual_seed(0)
    found = lower(Layers().eval(), torch.randn(1, 2, 8, 8), backend="coreml", options={**form, **options})
    _, program = read_back(found.delegate.blob)
    assert {item.size for item in computed_constants(program)} == packed


def test_a_convolution_with_a_folded_batch_norm_is_named_by_its_own_module(read_back: Any) -> None:
    layers = (nn.Conv2d(3, 80, 3), nn.BatchNorm2d(80), nn.Conv2d(80, 4, 3), nn.BatchNorm2d(4))
    model, options = nn.Sequential(*layers).eval(), {"palettize": 4, "unpacked_modules": {"2"}}
    found = lower(model, torch.randn(1, 3, 8, 8), backend="coreml", options=options)
    _, program = read_back(found.delegate.blob)
    assert {item.size for item in computed_constants(program)} == {80 * 3 * 9}


def test_a_packed_program_is_as_small_as_its_bits() -> None:
    def size(**options: Any) -> int:
        model = nn.Linear(512, 512, bias=False).eval()
        return len(lower(model, torch.randn(1, 512), backend="coreml", options=options).delegate.blob)

    numbers, rest = 512 * 512, 6000
    assert numbers * 2 < size() < numbers * 2 + rest
    for bits in (1, 2, 4, 6, 8):
        assert numbers * bits / 8 < size(palettize=bits) < numbers * bits / 8 + rest
    # A bit for each number, and two bytes for those that are left.
    assert size(prune=0.75) < numbers / 8 + numbers * 2 / 4 + rest


def test_the_report_has_the_bytes_of_each_form() -> None:
    text = str(delegatekit.report(lowered(palettize=4, target="ios18").program))
    assert "weights uint4" in text and "weights fp32" in text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"palettize": 4, "target": "ios15"}, "palettize needs ios16"),
        ({"palettize": 3, "target": "ios17"}, "palettize=3 needs ios18"),
        ({"palettize": 4, "palette_channels": 8, "target": "ios17"}, "palette_channels needs ios18"),
        ({"prune": 0.5, "target": "ios15"}, "prune needs ios16"),
        ({"prune": 0.5, "palettize": 4}, "exclude each other"),
        ({"palette_channels": 8, "target": "ios18"}, "how many channels share a table"),
        ({"palettize": 5}, "is not one of the choices"),
        ({"prune": 1.5}, "is not between 0 and 1"),
        ({"unpacked_modules": {"0"}}, "what palettize and prune leave"),
        ({"unpacked_modules": {"third"}, "prune": 0.5}, "unpacked_modules names 'third'"),
        ({"unpacked_layers": {"attention"}}, "is not one of the choices"),
    ],
)
def test_forms_that_there_are_not_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        lowered(**options)
