"""Attention is decomposed before it is quantized: two products and a softmax, all of them for the NPU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from network_case import Case
from torch import nn
from torch.nn import functional

import delegatekit
from delegatekit.quantization.ratio import sqnr_db


class Projected(nn.Module):
    """Self-attention as in transformers: linear layers around it, heads side by side."""

    def __init__(self, width: int = 32, heads: int = 4, **settings: Any) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads, self.settings = heads, settings

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape

        def split(value: torch.Tensor) -> torch.Tensor:
            return value.view(batch, length, self.heads, -1).transpose(1, 2)

        sides = (split(layer(x)) for layer in (self.query, self.key, self.value))
        made = functional.scaled_dot_product_attention(*sides, **self.settings)
        return self.out(made.transpose(1, 2).reshape(batch, length, width))


class MultiHead(nn.Module):
    """PyTorch's own layer: one product for queries, keys and values."""

    def __init__(self, weights: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.weights = weights

    def forward(self, x: torch.Tensor) -> Any:
        results = self.attention(x, x, x, need_weights=self.weights)
        return results if self.weights else results[0]


def grouped(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def other_scale(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(query, key, value, scale=0.3)


def shapes(*sizes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(size) for size in sizes)


ATTENTION: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "heads": (functional.scaled_dot_product_attention, ((1, 2, 9, 8),) * 3),
    "samples": (functional.scaled_dot_product_attention, ((3, 2, 9, 8),) * 3),
    "three axes": (functional.scaled_dot_product_attention, ((4, 9, 8),) * 3),
    "two axes": (functional.scaled_dot_product_attention, ((9, 8),) * 3),
    "other lengths": (functional.scaled_dot_product_attention, ((1, 2, 5, 8), (1, 2, 9, 8), (1, 2, 9, 6))),
    "groups of heads": (grouped, ((1, 4, 9, 8), (1, 2, 9, 8), (1, 2, 9, 8))),
    "another scale": (other_scale, ((1, 2, 9, 8),) * 3),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_one_delegate_and_right(name: str, agrees: Callable[..., Any]) -> None:
    function, sizes = ATTENTION[name]
    # A tenth of the weights may be a step away, and these are summed up.
    agrees(function, *shapes(*sizes), share=0.1)


@pytest.mark.parametrize("make", [Projected, lambda: MultiHead(False), lambda: MultiHead(True)])
def test_layers_with_attention_are_one_delegate(make: Callable[[], nn.Module], whole: Any) -> None:
    module, x = make(), torch.randn(2, 10, 32)
    module, lower, ratio = whole(module, x)
    delegated = lower(module, x)
    for got, want in zip(delegated.run(), delegated.eager(), strict=True):
        assert ratio(got, want) > 33


def test_the_scale_is_no_operation(agrees: Callable[..., Any]) -> None:
    (found,) = agrees(other_scale, *shapes(*((1, 2, 9, 8),) * 3), share=0.1, targets=["ethos-u55-128"]).values()
    softmax = agrees(lambda x: x.softmax(-1), *shapes((1, 2, 9, 9)), share=0.1, targets=["ethos-u55-128"])
    (alone,) = softmax.values()
    more = Counter(found.operators)
    more.subtract(alone.operators)
    assert {name: count for name, count in more.items() if count and name not in ("RESHAPE", "TRANSPOSE")} == {
        "MATMUL": 2,
        "RESCALE": 2,
    }
    # The transposition of the keys, once.
    assert more["TRANSPOSE"] == 1


def test_the_keys_of_a_layer_are_transposed_once(whole: Any) -> None:
    module, x = Projected(), torch.randn(1, 10, 32)
    module, lower, _ = whole(module, x)
    # Those of queries, keys, values and result between rows and heads.
    moved = [item.output.name for item in lower(module, x).graph.operations if item.operator.name == "TRANSPOSE"]
    assert len([name for name in moved if "softmax" not in name]) == 4, moved


def test_each_layer_of_attention_is_what_eager_computes() -> None:
    pytest.importorskip("tosa_reference_model")
    x = torch.randn(2, 10, 32)
    module = delegatekit.quantize(Projected().eval(), [torch.randn_like(x) for _ in range(6)], backend="ethosu")
    case = Case(module, x)
    assert (case.delegates, case.fallback()) == (1, [])
    layers = case.layers(x)
    assert {"matmul", "softmax", "matmul_1"} <= {layer.name for layer in layers}
    for layer in layers:
        assert layer.steps <= (1 if layer.name == "softmax" else 0), layer
    for got, want in zip(case.by_command_stream(x), case.by_reference(x), strict=True):
        assert (got.reshape(want.shape) == want).all()


def test_int16_says_why_attention_stays_in_float() -> None:
    x = torch.randn(1, 10, 32)
    module = delegatekit.quantize(Projected().eval(), [x], backend="ethosu", scheme="int16")
    (kept,) = module.quantization.kept
    assert kept.operator == "scaled_dot_product_attention"
    assert kept.reason == "the ethos-u55-128 has no products of int16 matrices; an Ethos-U85 has"


def vision() -> tuple[nn.Module, torch.Tensor]:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    settings = transformers.ViTConfig(image_size=16, patch_size=4, **sizes)
    return Named(transformers.ViTModel(settings, add_pooling_layer=False), "pixel_values"), torch.randn(1, 3, 16, 16)


def text() -> tuple[nn.Module, torch.Tensor]:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    settings = transformers.BertConfig(vocab_size=50, **sizes)
    return Named(transformers.BertModel(settings, add_pooling_layer=False), "inputs_embeds"), torch.randn(1, 9, 32)


class Named(nn.Module):
    """A model of transformers with one input and one output."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(**{self.name: x}).last_hidden_state


@pytest.mark.parametrize("make", [vision, text])
def test_attention_of_transformers_is_quantized_and_delegated(make: Any, whole_program: Any) -> None:
    model, x = make()
    data = [torch.randn_like(x) for _ in range(4)]
    module = delegatekit.quantize(model.eval(), data, backend="ethosu", progress=False)
    parts = [layer.operator for layer in module.quantization.quantized if "attention" in layer.module]
    assert [name for name in parts if name not in ("linear", "add", "layer_norm")] == [
        "mul",
        "matmul",
        "softmax",
        "matmul",
    ]
    assert {layer.operator for layer in module.quantization.kept} <= {"layer_norm"}
    program = delegatekit.lower(module, (x,), backends=["ethosu"])
    assert not {"aten::bmm.out", "aten::_softmax.out"} & delegatekit.report(program).methods[0].fallback.keys()
    assert sqnr_db(delegatekit.load(program.buffer)["forward"](x), module(x)) > 33


def causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def masked(mask: torch.Tensor) -> Any:
    """Attention with a constant mask."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", mask)

        def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            return functional.scaled_dot_product_attention(query, key, value, attn_mask=self.mask)

    return Masked()


class Filled(nn.Module):
    """A softmax with some masked numbers."""

    def __init__(self, mask: torch.Tensor, fill: float = -math.inf, dim: int = -1) -> None:
        super().__init__()
        self.register_buffer("mask", mask)
        self.fill, self.dim = fill, dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(self.mask, self.fill).softmax(self.dim)


def scattered(*shape: int) -> torch.Tensor:
    """A mask of a third of the elements, and no whole row."""
    hidden = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.3
    hidden[..., 0] = False
    return hidden


def drawn_bias(seed: int) -> torch.Tensor:
    return torch.randn(2, 9, 9, generator=torch.Generator().manual_seed(seed))


MASKS: dict[str, Any] = {
    "causal": causal,
    "of every head": masked(~scattered(9, 9)),
    "of each head": masked(~scattered(1, 2, 9, 9)),
    "of samples": masked(~scattered(1, 1, 1, 9)),
    "a bias": masked(drawn_bias(2)),
    "a bias that hides": masked(
        torch.randn(2, 9, 9, generator=torch.Generator().manual_seed(3)).masked_fill(scattered(2, 9, 9), -100.0)
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_constant_masks_are_part_of_the_softmax(name: str, agrees: Callable[..., Any]) -> None:
    agrees(MASKS[name], *shapes(*((2, 2, 9, 8),) * 3), share=0.1)


FILLS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "rows": (Filled(scattered(7, 12)), (7, 12)),
    "a mask for all rows": (Filled(scattered(12)), (3, 7, 12)),
    "a mask for each row": (Filled(torch.tensor([[True], [False]])), (2, 12)),
    "another axis": (Filled(scattered(12, 5).mT[None], dim=1), (2, 5, 12)),
    "a finite fill": (Filled(scattered(7, 12), -1e4), (2, 3, 7, 12)),
    "long": (Filled(torch.ones(300, 300, dtype=torch.bool).triu(1)), (300, 300)),
}


@pytest.mark.parametrize("name", FILLS)
def test_a_softmax_leaves_out_what_is_hidden(name: str, agrees: Callable[..., Any]) -> None:
    module, shape = FILLS[name]
    if name == "a mask for each row":
        module = Filled(module.mask, -1e4)  # in completely masked rows all are equal
    (found, *_) = agrees(module, torch.randn(shape) * 2, share=0.1).values()
    assert "MINIMUM" in found.operators


def test_large_numbers_that_are_hidden_count_for_nothing(agrees: Callable[..., Any]) -> None:
    hidden = scattered(7, 12)
    x = torch.randn(7, 12) + 30.0 * hidden
    (found, *_) = agrees(Filled(hidden), x, share=0.1).values()
    (result,) = found.run()
    assert float(result[hidden].abs().max()) == 0
    # Twelve numbers, each a step off at most.
    torch.testing.assert_close(result.sum(-1), torch.ones(7), rtol=0, atol=12 * found.steps()[0])


class Twice(Filled):
    """A fill with another reader."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.masked_fill(self.mask, self.fill)
        return x.softmax(-1) + x.clamp_min(0)


NO_CHOICE = "the ethos-u55-128 has no choice between two numbers, but in front of a softmax; an Ethos-U85 has"
REASONS: dict[str, tuple[Any, str]] = {
    "-5.0": (Filled(scattered(4, 4), -5.0), NO_CHOICE),
    "computed": (
        lambda x: x.masked_fill(x > 0.5, -math.inf).softmax(-1),
        "the ethos-u55-128 has no softmax whose mask is computed; an Ethos-U85 has",
    ),
    "read twice": (Twice(scattered(4, 4)), "-inf has no place in the range of the others"),
    "five axes": (Filled(scattered(1, 1, 1, 4, 4)), "a mask over 5 axes: 4 is the maximum"),
}


@pytest.mark.parametrize("name", REASONS)
def test_other_fills_stay_in_float_and_ruin_nothing(name: str, module_of: Any) -> None:
    model, reason = REASONS[name]
    x = torch.randn((1, 1, 1, 4, 4) if name == "five axes" else (4, 4))
    layer = nn.Sequential(nn.Linear(4, 4), module_of(model), nn.Linear(4, 4)).eval()
    module = delegatekit.quantize(layer, [x], backend="ethosu", progress=False)
    kept = {row.operator: row.reason for row in module.quantization.kept}
    assert kept["masked_fill"] == reason
    assert sqnr_db(module(x), layer(x)) > 20
    program = delegatekit.lower(module, (x,), backends=["ethosu"])
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](x), module(x), rtol=0, atol=0.02)


def test_a_softmax_kept_in_float_keeps_what_it_hides() -> None:
    layer, x = nn.Sequential(nn.Linear(4, 4), Filled(scattered(4, 4)), nn.Linear(4, 4)).eval(), torch.randn(4, 4)
    module = delegatekit.quantize(layer, [x], backend="ethosu", keep_float=["softmax"])
    assert [row.operator for row in module.quantization.kept] == ["masked_fill", "softmax"]
    assert sqnr_db(module(x), layer(x)) > 20
