"""Schemes whose weights are places in tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit.plugins import LoadedBackend
from delegatekit.quantization import load_quantized
from delegatekit_api import QuantizationError
from delegatekit_api.schemes import QuantizationRule, QuantizationScheme, TensorQuantization, per_channels

pytest.importorskip("torchao")


def even(values: torch.Tensor, entries: int) -> torch.Tensor:
    """Numbers at equal distances, the largest first."""
    return torch.linspace(float(values.max()), float(values.min()), entries)


def wrong(values: torch.Tensor, entries: int) -> torch.Tensor:
    return torch.zeros(entries + 1)


def unbounded(values: torch.Tensor, entries: int) -> torch.Tensor:
    return torch.full((entries,), torch.nan)


ONE = TensorQuantization("uint4", table=even)
SEVERAL = replace(ONE, granularity=per_channels(4), scale_dtype="float16")
LAYERS = ("linear", "embedding", "conv2d")
FORMS = {
    "one": ONE,
    "several": SEVERAL,
    "three-bits": TensorQuantization("uint8", high=7, table=even),
    "wrong": replace(ONE, table=wrong),
    "unbounded": replace(ONE, table=unbounded),
}
SCHEMES = tuple(
    QuantizationScheme(name, "", "weight-only", (QuantizationRule(LAYERS, weight=form),))
    for name, form in FORMS.items()
)


@pytest.fixture(autouse=True)
def _schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadedBackend, "quantization_schemes", lambda self, options=None: SCHEMES)


def quantize(model: nn.Module, *inputs: torch.Tensor, scheme: str, **settings: Any) -> Any:
    return delegatekit.quantize(model.eval(), [inputs], backend="reference", scheme=scheme, **settings)


def layer(inputs: int = 20, outputs: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, outputs))


X = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("scheme", "bits", "rows"), [("one", 4, 8), ("several", 4, 4), ("three-bits", 3, 8)])
def test_weights_are_the_numbers_of_their_tables(scheme: str, bits: int, rows: int) -> None:
    model = layer()
    module = quantize(model, X, scheme=scheme)
    state = module.state_dict()
    places, tables = state["0_weight_quantized"], state["0_weight_tables"]
    assert places.dtype is torch.uint8 and tables.shape == (8 // rows, 1, 2**bits, 1)
    weight = torch.cat([table.reshape(-1)[part.long()] for table, part in zip(tables, places.split(rows), strict=True)])
    assert torch.equal(module(X), nn.functional.linear(X, weight, model[0].bias))
    for part, table in zip(model[0].weight.detach().split(rows), tables, strict=True):
        wanted = even(part, 2**bits).flip(0)
        assert torch.equal(table.reshape(-1), wanted.half().float() if scheme == "several" else wanted)
        # No number is further from its own than the next one but one.
        assert (weight - model[0].weight).abs().max() < 1.5 * (wanted[1] - wanted[0]) * 1.01


@pytest.mark.parametrize("deferred", [False, True])
def test_a_program_without_backends_computes_the_same(deferred: bool) -> None:
    module = quantize(layer(), X, scheme="several", deferred=deferred)
    assert torch.equal(module(X), quantize(layer(), X, scheme="several")(X))
    program = delegatekit.lower(module, (X,), backends=[])
    assert torch.equal(delegatekit.load(program.buffer)["forward"](X), module(X))


def test_a_saved_program_is_read_in_another_process(tmp_path: Path) -> None:
    import subprocess
    import sys

    module = quantize(layer(), X, scheme="several")
    torch.export.save(torch.export.export(module, (X,)), tmp_path / "m.pt2")
    torch.save((X, module(X)), tmp_path / "x.pt")
    code = (
        "import sys, torch; from delegatekit.quantization import load_quantized\n"
        "program = load_quantized(sys.argv[1]); x, wanted = torch.load(sys.argv[2])\n"
        "assert torch.equal(program.module()(x), wanted)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "m.pt2", tmp_path / "x.pt"], check=True)
    assert torch.equal(load_quantized(tmp_path / "m.pt2").module()(X), module(X))


def test_channels_that_the_number_does_not_divide_stay_in_float() -> None:
    model = nn.Sequential(nn.Linear(20, 8), nn.Linear(8, 6))
    (kept,) = quantize(model, X, scheme="several").quantization.kept
    assert kept.reason == "groups of 4 do not divide its 6 output channels"


def test_the_number_of_channels_is_an_argument() -> None:
    state = quantize(layer(), X, scheme="several", group_size=2).state_dict()
    assert len(state["0_weight_tables"]) == 4
    with pytest.raises(QuantizationError, match="scheme one has no groups"):
        quantize(layer(), X, scheme="one", group_size=2)
    with pytest.raises(QuantizationError, match="group_size=0: a group of 0 channels"):
        quantize(layer(), X, scheme="several", group_size=0)


def test_convolutions_and_words() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    image = torch.randn(1, 3, 6, 6)
    module = quantize(model, image, scheme="several")
    assert module.state_dict()["0_weight_tables"].shape == (2, 1, 1, 1, 16, 1)
    assert (module(image) - model(image)).norm() < 0.2 * model(image).norm()
    words = nn.Sequential(nn.Embedding(8, 5)).eval()
    rows = torch.tensor([0, 7])
    assert (quantize(words, rows, scheme="one")(rows) - words(rows)).abs().max() < 0.4


@pytest.mark.parametrize("scheme", ["wrong", "unbounded"])
def test_a_function_that_finds_no_table_is_told_of(scheme: str) -> None:
    with pytest.raises(QuantizationError, match="its function for tables gave no 16 finite numbers"):
        quantize(layer(), X, scheme=scheme)


def test_integers_that_are_there_already_stay() -> None:
    from torchao.quantization import IntxWeightOnlyConfig, PerAxis, quantize_

    model = nn.Sequential(nn.Linear(20, 8), nn.Linear(8, 8)).eval()
    quantize_(model, IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)), lambda _, name: name == "0")
    module = quantize(model, X, scheme="one")
    (kept,) = module.quantization.kept
    assert kept.reason == "its weight is int8 in blocks of 1 x 20 already: the scheme has tables"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: per_channels(0), "a group of 0 channels"),
        (
            lambda: TensorQuantization("int4", granularity=per_channels(4)),
            "several channels share a table, not a scale",
        ),
        (lambda: TensorQuantization("int4", table=even), "places in a table are 0 to 2..bits - 1, not -8 to 7"),
        (lambda: TensorQuantization("uint8", high=20, table=even), "not 0 to 20"),
        (lambda: TensorQuantization("uint4", symmetric=True, table=even), "a table has no scale"),
        (lambda: QuantizationRule(("linear",), input=ONE), "tables are for weights"),
        (
            lambda: QuantizationScheme("a", "", rules=(QuantizationRule(("linear",), weight=ONE),)),
            "tables are for weight-only schemes",
        ),
    ],
)
def test_tables_that_make_no_sense(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_tables_in_words() -> None:
    assert str(ONE) == "tables of 16 float32 numbers per tensor"
    assert str(SEVERAL) == "tables of 16 float16 numbers per 4 channels"
