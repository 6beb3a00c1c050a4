"""Weights in tables that torchao found: the file has exactly these places and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegatekit
from delegatekit import Compiling
from delegatekit_api import LoweringError
from delegatekit_conformance.testkit import Lowered, lower, refusals
from delegatekit_coreml import plugin
from delegatekit_coreml.options import CoreMLOptions

coreml = pytest.importorskip("torchao.prototype.quantization.codebook_coreml")
WORDS = torch.tensor([[3, 0, 31, 3], [7, 1, 2, 9]])


def network(bits: int, blocks: list[int]) -> nn.Module:
    """A table of words and two layers, quantized as by stock's recipe coreml_codebook_weight_only."""
    from torchao.quantization import quantize_

    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(32, 64), nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 32, bias=False)).eval()
    config = coreml.CodebookWeightOnlyConfig(dtype=getattr(torch, f"uint{bits}"), block_size=blocks)
    quantize_(model, config, lambda module, _: isinstance(module, nn.Embedding | nn.Linear))
    return model


def tables_of(program: Any) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Places, tables, and the numbers that coremltools looks up itself, of each weight in a program."""
    found = [item for item in program.functions["main"].operations if item.op_type == "constexpr_lut_to_dense"]
    return [(item.indices.val, item.lut.val, item.materialized_val_inference()) for item in found]


def weights(model: nn.Module) -> list[Any]:
    """torchao's own, in order."""
    return [layer.weight for layer in model if isinstance(layer, nn.Embedding | nn.Linear)]  # type: ignore[attr-defined]


FORMS = [
    *((bits, [-1, -1], "ios16") for bits in (1, 2, 4, 6, 8)),
    *((bits, [-1, 16], "ios18") for bits in (1, 2, 3, 4, 6, 8)),
    (4, [16, -1], "ios18"),
    (3, [-1, -1], "ios18"),
]


@pytest.mark.parametrize(("bits", "blocks", "target"), FORMS, ids=str)
def test_the_file_has_the_places_and_numbers_of_torchao(
    bits: int, blocks: list[int], target: str, read_back: Any
) -> None:
    model = network(bits, blocks)
    lowered = lower(model, WORDS, backend="coreml", options={"precision": "float32", "target": target})
    _, program = read_back(lowered.delegate.blob)
    found = tables_of(program) if target == "ios18" else [(None, None, item) for item in materialized(program)]
    assert len(found) == 3
    for (places, tables, numbers), weight in zip(found, weights(model), strict=True):
        np.testing.assert_array_equal(np.asarray(numbers), weight.dequantize().numpy())
        if places is not None:
            np.testing.assert_array_equal(np.asarray(places, dtype=np.uint8), weight.codes.numpy())
            np.testing.assert_array_equal(tables, weight.codebook.float().numpy())
    assert torch.equal(lowered.run()[0], lowered.eager()[0])


def materialized(program: Any) -> list[Any]:
    """The numbers that coremltools looks up, in the form before iOS 18."""
    operations = program.functions["main"].operations
    return [item.materialized_val_inference() for item in operations if item.op_type == "constexpr_lut_to_dense"]


@pytest.mark.parametrize("bits", [5, 7])
def test_bits_that_mil_has_not_are_stored_in_one_more(bits: int, read_back: Any) -> None:
    model = network(bits, [-1, 16])
    lowered = lower(model, WORDS, backend="coreml", options={"precision": "float32", "target": "ios18"})
    assert torch.equal(lowered.run()[0], lowered.eager()[0])
    for (_, tables, _), weight in zip(tables_of(read_back(lowered.delegate.blob)[1]), weights(model), strict=True):
        assert tables.shape[-2] == 2 ** (bits + 1)
        np.testing.assert_array_equal(tables[..., : 2**bits, :], weight.codebook.float().numpy())


def test_half_precision_rounds_the_numbers_and_nothing_else(read_back: Any) -> None:
    model = network(4, [-1, 16])
    lowered = lower(model, WORDS, backend="coreml", options={"target": "ios18"})
    for (_, tables, _), weight in zip(tables_of(read_back(lowered.delegate.blob)[1]), weights(model), strict=True):
        np.testing.assert_array_equal(tables, weight.codebook.float().half().numpy())


@pytest.mark.parametrize(("bits", "blocks"), [(4, [-1, 16]), (3, [-1, -1])], ids=str)
def test_older_targets_get_numbers_where_they_have_no_such_tables(bits: int, blocks: list[int]) -> None:
    model = network(bits, blocks)
    lowered = lower(model, WORDS, backend="coreml", options={"precision": "float32", "target": "ios17"})
    assert b"constexpr" not in lowered.delegate.blob
    assert torch.equal(lowered.run()[0], lowered.eager()[0])
    found = refusals(plugin.create_partitioner(CoreMLOptions(target="ios17")), model, WORDS)
    assert "quant.dequantize_codebook.default needs ios18: the target is ios17" in found


class Given(nn.Module):
    """A layer whose weight is looked up, in a form of its own."""

    def __init__(self, codes: torch.Tensor, tables: torch.Tensor, **more: Any) -> None:
        super().__init__()
        self.codes, self.tables, self.more = nn.Buffer(codes), nn.Buffer(tables), more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        more = {"nbits": 2, "block_size": [-1, -1], **self.more}
        weight = torch.ops.quant.dequantize_codebook(self.codes.int(), self.tables, **more)
        return nn.functional.linear(x, weight.to(x.dtype))


def given(codes: torch.Tensor, tables: torch.Tensor, **more: Any) -> Lowered:
    x = torch.randn(2, codes.shape[1], generator=torch.Generator().manual_seed(0))
    return lower(Given(codes, tables, **more), x, backend="coreml", options={"target": "ios18", "precision": "float32"})


CODES = torch.randint(0, 4, (8, 12), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def test_blocks_along_both_axes() -> None:
    lowered = given(CODES, torch.randn(2, 3, 4, 1), block_size=[4, 4])
    assert b"constexpr_lut_to_dense" in lowered.delegate.blob
    assert torch.equal(lowered.run()[0], lowered.eager()[0])


def test_numbers_in_half_precision() -> None:
    lowered = given(CODES, torch.randn(1, 1, 4, 1), output_dtype=torch.float16)
    assert b"constexpr_lut_to_dense" in lowered.delegate.blob
    assert torch.equal(lowered.run()[0], lowered.eager()[0])


def test_more_tables_than_blocks_are_computed_before() -> None:
    """PyTorch reads the first table alone; MIL would read both."""
    lowered = given(CODES, torch.randn(2, 1, 4, 1))
    assert b"constexpr_lut_to_dense" not in lowered.delegate.blob
    assert torch.equal(lowered.run()[0], lowered.eager()[0])


def test_a_place_beyond_its_table_is_refused() -> None:
    """Eager raises IndexError."""
    with pytest.raises(LoweringError, match="has places 0 to 9 in tables of 4 numbers"):
        given(torch.cat([CODES, torch.full((1, 12), 9, dtype=torch.uint8)]), torch.randn(1, 1, 4, 1))


def test_many_places_stay_places() -> None:
    """As int32 they are four times as large, which PyTorch's constants may not become otherwise."""
    codes = torch.randint(0, 4, (1100, 2048), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    lowered = given(codes, torch.randn(1, 1, 4, 1))
    assert len(lowered.buffer) < 1.02 * codes.numel() / 4
    assert torch.equal(lowered.run()[0], lowered.eager()[0])


def test_a_compiler_in_a_process_of_its_own_writes_the_same() -> None:
    model, options = network(4, [-1, 16]), {"coreml": {"target": "ios18"}}
    one, other = (
        delegatekit.lower(
            model, (WORDS,), backends=["coreml"], options=options, compiling=Compiling(isolate=isolate, cache=False)
        ).buffer
        for isolate in (False, True)
    )
    assert one == other
