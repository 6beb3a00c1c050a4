"""Quantized programs: in float32 exactly the quantized module's results, in files as small as possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_api import OptionError
from delegatekit_conformance.testkit import Lowered, compare, lower, refusals
from delegatekit_coreml import plugin
from delegatekit_coreml.options import CoreMLOptions
from delegatekit_toolkit.testing import signal_to_noise


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 64), nn.GELU(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        found: torch.Tensor = self.head(x + torch.relu(self.second(x)))
        return found


#: The noise of float32 in sums of 256 products is 0.4 sqrt(256) 2^-24 of the result (`oracle.tolerance`): 128 dB, and
#: 121 dB after five layers. 11 dB are left for the functions in between; one differing integer would be detected.
EXACT = 110


def images(count: int) -> list[tuple[torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(2, 3, 16, 16, generator=generator),) for _ in range(count)]


def quantized(scheme: str, **options: Any) -> tuple[nn.Module, Lowered]:
    """The float network, and its quantized form lowered."""
    torch.manual_seed(0)
    model = Network().eval()
    found = delegatekit.quantize(model, images(3), backend="coreml", scheme=scheme, options=options)
    return model, lower(found, *images(1)[0], backend="coreml", options=options)


@pytest.mark.parametrize(
    ("scheme", "target"),
    [
        ("int8", "ios17"),
        ("int8", "ios18"),
        ("int8-weight-only", "ios16"),
        ("int8-weight-only", "ios18"),
        ("int4-weight-only", "ios18"),
        *((f"{bits}-bit-tables", target) for bits in (4, 6, 8) for target in ("ios16", "ios18")),
    ],
)
def test_a_quantized_program_is_exact_in_float32(scheme: str, target: str) -> None:
    _, lowered = quantized(scheme, target=target, precision="float32")
    assert signal_to_noise(lowered.run()[0], lowered.eager()[0].detach()) > EXACT


# Normal numbers in 8 bits have 41 dB: 6 dB a bit, minus 7 dB because the largest is four deviations away. Rounded
# activations of five layers cost 10 dB of these. Four bits fewer are 24 dB less, in the two linear layers only. Tables
# of the best numbers for uniform ones, which these weights are, have 6 dB a bit; five layers cost up to 7 dB of these.
@pytest.mark.parametrize(
    ("scheme", "least"),
    [
        *(("int8", 30), ("int8-weight-only", 40), ("int4-weight-only", 18)),
        *(("8-bit-tables", 41), ("6-bit-tables", 29), ("4-bit-tables", 17)),
    ],
)
def test_a_quantized_program_is_near_the_float_one_in_half_precision(scheme: str, least: float) -> None:
    model, lowered = quantized(scheme, target="ios18")
    with torch.no_grad():
        wanted = model(*lowered.inputs)
    assert signal_to_noise(lowered.run()[0], wanted) > least


@pytest.mark.parametrize("precision", ["float16", "float32"])
@pytest.mark.parametrize("scheme", ["int8-weight-only", "int4-weight-only"])
def test_scales_of_weights_are_those_of_the_file(scheme: str, precision: str) -> None:
    rows, options = torch.randn(3, 96).half().float(), {"target": "ios18", "precision": precision}
    module = delegatekit.quantize(
        nn.Sequential(nn.Linear(96, 24)).eval(), [(rows,)], backend="coreml", scheme=scheme, options=options
    )
    (scales,) = (value for name, value in module.state_dict().items() if name.endswith("_scale"))
    assert torch.equal(scales, scales.half().float()) == (precision == "float16")
    held = scales.half() if precision == "float16" else scales
    lowered = lower(module, rows, backend="coreml", options=options)
    assert held.numpy().tobytes() in lowered.delegate.blob
    (result,), wanted = lowered.run(), module(rows).detach()
    # In half precision weights and results are rounded to 11 bits.
    allowed = 2 * 2.0**-11 * float(wanted.abs().max()) if precision == "float16" else 0.0
    torch.testing.assert_close(result, wanted, rtol=0, atol=allowed)


@pytest.mark.parametrize("precision", ["float16", "float32"])
@pytest.mark.parametrize(("scheme", "target"), [("4-bit-tables", "ios18"), ("6-bit-tables", "ios16")])
def test_tables_are_those_of_the_file(scheme: str, target: str, precision: str, read_back: Any) -> None:
    torch.manual_seed(0)
    options = {"target": target, "precision": precision}
    model = nn.Sequential(nn.Embedding(32, 96), nn.Linear(96, 40)).eval()
    words = torch.tensor([[1, 31, 5]])
    module = delegatekit.quantize(model, [(words,)], backend="coreml", scheme=scheme, options=options)
    lowered = lower(module, words, backend="coreml", options=options)
    _, program = read_back(lowered.delegate.blob)
    found = [item for item in program.functions["main"].operations if item.op_type == "constexpr_lut_to_dense"]
    state: Any = module.state_dict()
    numbers = []
    for name, item in zip(("0_weight", "1_weight"), found, strict=True):
        places, tables = state[f"{name}_quantized"], state[f"{name}_tables"]
        held = tables.half() if precision == "float16" else tables
        # 40 channels are not groups of 16.
        assert len(tables) == (2 if target == "ios18" and name == "0_weight" else 1)
        assert torch.equal(held.float(), tables)
        if target == "ios18":
            assert item.lut.val.dtype == held.numpy().dtype
            assert (item.lut.val == held.numpy()).all() and (item.indices.val == places.numpy()).all()
        numbers.append(torch.from_numpy(np.array(item.materialized_val_inference(), dtype=np.float32)))
        bits = int(scheme[0])
        looked_up = torch.ops.quant.dequantize_codebook(
            places.int(), tables, bits, [places.shape[0] // len(tables), -1]
        )
        assert torch.equal(numbers[-1], looked_up)
    with torch.no_grad():
        wanted = nn.functional.linear(numbers[0][words], numbers[1], model[1].bias)
        assert torch.equal(module(words), wanted)
    if precision == "float32":
        assert torch.equal(lowered.run()[0], wanted)


def test_words_and_head_share_a_table() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(128, 64), nn.Linear(64, 128, bias=False)
            self.head.weight = self.words.weight

        def forward(self, words: torch.Tensor) -> Any:
            return self.head(self.words(words))

    options, words = {"target": "ios18"}, torch.tensor([[1, 100]])
    module = delegatekit.quantize(Tied().eval(), [(words,)], backend="coreml", scheme="4-bit-tables", options=options)
    blob = lower(module, words, backend="coreml", options=options).delegate.blob
    assert len(blob) < 128 * 64 / 2 + 8 * 16 * 2 + 6_000  # once


def test_places_of_a_deferred_weight_are_those_of_the_others() -> None:
    options = {"target": "ios18", "precision": "float32"}
    model, rows = nn.Sequential(nn.Linear(96, 48)).eval(), torch.randn(3, 96)
    blobs, results = [], []
    for deferred in (False, True):
        module = delegatekit.quantize(
            model, [(rows,)], backend="coreml", scheme="4-bit-tables", options=options, deferred=deferred
        )
        lowered = lower(module, rows, backend="coreml", options=options)
        results += [module(rows), lowered.run()[0]]
        blobs.append(lowered.delegate.blob)
    assert all(torch.equal(result, results[0]) for result in results)
    assert blobs[0] == blobs[1]


def test_another_number_of_channels_shares_a_table() -> None:
    model, rows, options = nn.Sequential(nn.Linear(96, 24)).eval(), torch.randn(3, 96), {"target": "ios18"}
    module = delegatekit.quantize(
        model, [(rows,)], backend="coreml", scheme="4-bit-tables", options=options, group_size=8
    )
    assert module.state_dict()["0_weight_tables"].shape == (3, 1, 16, 1)


def test_depthwise_convolutions_stay_as_they_are() -> None:
    model = nn.Sequential(nn.Conv2d(3, 32, 1), nn.Conv2d(32, 32, 3, groups=32)).eval()
    x = torch.randn(1, 3, 8, 8)
    module: Any = delegatekit.quantize(model, [(x,)], backend="coreml", scheme="4-bit-tables")
    (layer,) = module.quantization.kept
    assert layer.reason == "a depthwise convolution: each of its few weights matters"


def test_four_bits_take_half_of_eight() -> None:
    def weights(scheme: str) -> int:
        model = nn.Sequential(nn.Linear(512, 512, bias=False)).eval()
        found = delegatekit.quantize(
            model, [(torch.randn(1, 512),)], backend="coreml", scheme=scheme, options={"target": "ios18"}
        )
        return len(lower(found, torch.randn(1, 512), backend="coreml", options={"target": "ios18"}).delegate.blob)

    eight, four = weights("int8-weight-only"), weights("int4-weight-only")
    assert 512 * 512 < eight < 512 * 512 * 1.1
    # A scale of two bytes for each group of 32 weights.
    assert 512 * 512 / 2 < four < 512 * 512 * (1 / 2 + 2 / 32) * 1.1


def test_the_target_decides_which_schemes_there_are() -> None:
    def names(target: str) -> list[str]:
        return [scheme.name for scheme in plugin.quantization_schemes(CoreMLOptions(target=target))]

    assert names("ios15") == []
    tables = ["8-bit-tables", "6-bit-tables", "4-bit-tables"]
    assert names("ios16") == ["int8-weight-only", *tables]
    assert names("ios17") == ["int8", "int8-weight-only", *tables]
    assert names("ios18") == ["int8", "int8-weight-only", "int4-weight-only", *tables]


def test_a_scheme_that_the_target_has_not_is_refused() -> None:
    with pytest.raises(OptionError, match="no scheme"):
        quantized("int4-weight-only", target="ios17")


def test_quantized_values_cross_the_border_as_bytes() -> None:
    import torch.ao.quantization.fx._decomposed

    class Half(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            steps = torch.ops.quantized_decomposed.quantize_per_tensor.default(x, 0.05, 128, 0, 255, torch.uint8)
            real = torch.ops.quantized_decomposed.dequantize_per_tensor.default(steps, 0.05, 128, 0, 255, torch.uint8)
            return steps, real * 2

    lowered = lower(Half(), torch.randn(3, 4), backend="coreml", options={"precision": "float32"})
    compare(lowered)


@pytest.mark.parametrize(
    ("dtype", "group", "target"),
    [
        (torch.int8, None, "ios16"),
        (torch.int8, None, "ios18"),
        (torch.int8, 16, "ios18"),
        (torch.int4, None, "ios18"),
        (torch.int4, 16, "ios18"),
    ],
)
def test_weights_that_torchao_quantized_stay_integers(dtype: torch.dtype, group: int | None, target: str) -> None:
    model, x = torchao_model(dtype, group), torch.randn(3, 64)
    lowered = lower(model, x, backend="coreml", options={"precision": "float32", "target": target})
    assert signal_to_noise(lowered.run()[0], lowered.eager()[0].detach()) > EXACT
    bits = 4 if dtype is torch.int4 else 8
    # In addition to the integers: scales, and 12 KB of names and types.
    assert len(lowered.delegate.blob) < 64 * 256 * 2 * bits // 8 + (256 + 64) * (64 // (group or 64)) * 8 + 12_000


def torchao_model(dtype: torch.dtype, group: int | None) -> nn.Module:
    """A network with linear layers quantized by torchao's weight-only configuration."""
    from torchao.quantization import IntxWeightOnlyConfig, PerAxis, PerGroup, quantize_

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).eval()
    quantize_(model, IntxWeightOnlyConfig(weight_dtype=dtype, granularity=PerGroup(group) if group else PerAxis(0)))
    return model


def test_weights_of_two_bits_are_refused() -> None:
    options = CoreMLOptions(target="ios18")
    found = refusals(plugin.create_partitioner(options), torchao_model(torch.int2, None), torch.randn(3, 64))
    assert any("constants of -2 to 1: MIL stores 8 or 4 bits" in reason for reason in found), found
