"""Features of the Ethos-U85 alone: numbers from the reference model, and the others' refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import delegatekit
from delegatekit_ethosu.targets import TARGETS

U55, U65, U85 = "ethos-u55-128", "ethos-u65-256", "ethos-u85-256"
X = (4, 8)


class Table(nn.Module):
    """A look-up, and an operator after it."""

    def __init__(self, reads: Callable[..., Any], size: int = 8) -> None:
        super().__init__()
        self.table = nn.Embedding(10, size)
        self.register_buffer("chosen", torch.tensor([1, 3, 3]))
        self.register_buffer("mask", torch.ones(4, 8).triu(1) > 0)
        self.reads = reads

    def forward(self, *inputs: Any) -> Any:
        return self.reads(self, *inputs)


def some(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def indices(*shape: int, below: int = 10, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(4)).to(dtype)


CHOICES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "between two": (lambda s, a, b: torch.where(a * 2 > b * 2, a * 2, b * 2), (some(*X), some(8))),
    "between constants": (
        lambda s, a: torch.where(s.mask, 1.5, a * 2) + torch.where(a * 2 > 0.5, a * 2, -1.0),
        (some(*X),),
    ),
    "a constant mask": (lambda s, a: (a * 2).masked_fill(s.mask, 0.7), (some(*X),)),
    "a mask of the caller": (lambda s, a, m: (a * 2).masked_fill(m, 0.7), (some(2, 3, *X), some(3, 1, 8) > 0)),
    "moved before": (
        lambda s, a: (a * 2).transpose(0, 1).masked_fill((a * 3).transpose(0, 1) < 0.1, -0.2),
        (some(*X),),
    ),
    "a clamp behind": (lambda s, a, b: torch.relu(torch.where(a * 2 > b * 2, a * 2, b * 2)), (some(*X), some(*X))),
    "of five axes": (lambda s, a: torch.where(a * 2 > 0, a * 2, 0.3), (some(2, 1, 3, *X),)),
    "of none": (lambda s, a: torch.where(a * 2 > 0, a * 2, 0.3), (some(),)),
    "logic": (
        lambda s, a, b: torch.where((a * 2 > 0) & (b * 2 <= 0.25) | ~(a * 2 == b * 2) ^ s.mask, a * 2, b * 2),
        (some(*X), some(4, 1)),
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("scheme", ["int8", "int16"])
@pytest.mark.parametrize("name", CHOICES)
def test_a_large_one_chooses_between_numbers(name: str, scheme: str, agrees: Any) -> None:
    function, inputs = CHOICES[name]
    found = agrees(Table(function), *inputs, scheme=scheme, targets=[U85])
    assert "SELECT" in found[U85].operators


@pytest.mark.sweep
@pytest.mark.parametrize("scheme", ["int8", "int16"])
@pytest.mark.parametrize("name", ["eq", "ne", "gt", "ge", "lt", "le"])
def test_a_large_one_compares(name: str, scheme: str, agrees: Any) -> None:
    compare = getattr(torch, name)

    def compared(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = torch.relu(a), torch.relu(b)
        numbers = (0.0, 0.31, -1.0, 1e6, math.inf, math.nan)
        return compare(a, b), compare(a * 0.5, b * 3), a + b, *(compare(a, number) for number in numbers)

    (found,) = agrees(compared, some(2, *X), some(4, 1), scheme=scheme, targets=[U85]).values()
    results = found.run()
    assert [result.dtype for result in results] == [torch.bool, torch.bool, torch.float32, *[torch.bool] * 6]
    # Numbers of one scale, and the clamp's zeros, are compared as in eager.
    assert results[0].any() and not results[0].all() and results[3].any() == (name not in ("lt",))


def test_truth_values_are_combined(agrees: Any) -> None:
    def logic(a: torch.Tensor, b: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
        p, q = a * 2 > 0, b * 2 < 0.3
        named = torch.logical_and(p, q), torch.logical_or(q, m), torch.logical_xor(p, m), torch.logical_not(p)
        return *named, p & m, p | q, p ^ q, ~q, a * 2

    agrees(logic, some(2, *X), some(*X), some(4, 1) > 0, targets=[U85])


LOOK_UPS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "words": (lambda s, i: s.table(i) * 2, (indices(2, 5),)),
    "words alone": (lambda s, i: s.table(i), (indices(7),)),
    "positions, too": (lambda s, i: s.table(i) + s.table(s.chosen), (indices(2, 3),)),
    "of any integers": (lambda s, i: s.table(i.to(torch.int32)) * 2, (indices(3, dtype=torch.int64),)),
    "of computed rows": (lambda s, a, i: torch.index_select(a * 2, 1, i), (some(3, 6, 4), indices(5, below=6))),
    "of constant columns": (lambda s, a: torch.index_select(a * 2, -1, s.chosen) + 1, (some(*X),)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("scheme", ["int8", "int16"])
@pytest.mark.parametrize("name", LOOK_UPS)
def test_a_large_one_looks_up_rows(name: str, scheme: str, agrees: Any) -> None:
    function, inputs = LOOK_UPS[name]
    found = agrees(Table(function), *inputs, scheme=scheme, targets=[U85], share=0.01)
    assert "GATHER" in found[U85].operators


def test_a_table_is_rounded_once(whole_program: Any) -> None:
    layer = Table(lambda s, i: s.table(i)).eval()
    i = torch.arange(10, dtype=torch.int32)
    module: Any = delegatekit.quantize(layer, [i], backend="ethosu", options={"target": U85})
    with torch.no_grad():
        (step,) = whole_program(module, i, target=U85).steps()
        assert float((module(i) - layer(i)).abs().max()) <= step * 0.51


def test_indices_of_64_bits_are_read_outside(module_of: Any) -> None:
    layer = Table(lambda s, i, a: s.table(i) + a).eval()
    inputs = indices(3, dtype=torch.int64), some(3, 8)
    module: Any = delegatekit.quantize(layer, [inputs], backend="ethosu", options={"target": U85})
    (kept,) = module.quantization.kept
    assert kept.operator == "embedding" and "its indices are int64, the NPU reads int32" in kept.reason


def hidden(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (scores * 2).masked_fill(mask, -1e9).softmax(-1)


@pytest.mark.parametrize("scheme", ["int8", "int16"])
def test_a_large_one_hides_by_masks_of_the_caller(scheme: str, whole_program: Any, decibels: Any) -> None:
    # One sample is padded, the other is masked completely: there all are equal.
    mask = torch.tensor([[[[False] * 5 + [True] * 2]], [[[True] * 7]]])
    layer, inputs = Table(lambda s, *given: hidden(*given)).eval(), (some(2, 3, 6, 7), mask)
    options = {"target": U85}
    module: Any = delegatekit.quantize(layer, [inputs], backend="ethosu", scheme=scheme, options=options)
    found = whole_program(module, *inputs, target=U85)
    (result,) = found.run()
    if scheme == "int8":
        assert float(((result - module(*inputs)) / found.steps()[0]).abs().round().max()) <= 1
    else:
        assert decibels(result, module(*inputs)) > 60
    assert float(result[0, ..., 5:].abs().max()) == 0
    torch.testing.assert_close(result[1], torch.full((3, 6, 7), 1 / 7), rtol=0, atol=2 * found.steps()[0])


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_a_large_one_multiplies_matrices_of_int16(whole_program: Any, module_of: Any, decibels: Any) -> None:
    inputs = [some(1, 2, 9, 8) * factor for factor in (1.0, 2.0, 0.5)]
    options = {"target": U85}
    layer = module_of(attention)
    module: Any = delegatekit.quantize(layer, [tuple(inputs)], backend="ethosu", scheme="int16", options=options)
    assert [row.operator for row in module.quantization.quantized] == [
        "mul",
        "matmul",
        "masked_fill + softmax",
        "matmul",
    ]
    delegated = whole_program(module, *inputs, target=U85)
    assert delegated.operators.count("MATMUL") == 2
    assert decibels(delegated.run()[0], module(*inputs)) > 70
    assert decibels(module(*inputs), layer(*inputs)) > 60


@pytest.mark.parametrize("target", [name for name in TARGETS if "u85" in name])
def test_every_large_one_takes_them(target: str, whole_program: Any) -> None:
    def everything(s: Any, i: torch.Tensor, a: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        rows = s.table(i) * 2
        products = torch.matmul(rows, a.transpose(-1, -2))
        scores = products.masked_fill(m, -1e9).softmax(-1)
        return torch.where(scores > 0.2, scores, torch.index_select(scores, 1, s.chosen.to(torch.int32)[:1]))

    inputs = indices(2, 5), some(2, 6, 8), some(2, 1, 6) > 0
    layer = Table(everything).eval()
    for scheme in ("int8", "int16"):
        options = {"target": target}
        module: Any = delegatekit.quantize(layer, [inputs], backend="ethosu", scheme=scheme, options=options)
        assert not module.quantization.kept, str(module.quantization)
        operators = whole_program(module, *inputs, target=target).operators
        assert {"GATHER", "MATMUL", "SELECT", "GREATER_EQUAL"} <= {*operators}


RESIZES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "half as large again": (nn.Upsample(scale_factor=1.5), (2, 4, 6, 8)),
    "nearest, other sizes": (nn.Upsample((13, 5)), (1, 4, 7, 9)),
    "smaller": (nn.Upsample((3, 2)), (1, 4, 7, 9)),
    "from one": (nn.Upsample((7, 5), mode="bilinear"), (1, 4, 1, 1)),
    "bilinear": (nn.Upsample((13, 5), mode="bilinear"), (2, 4, 7, 9)),
    "bilinear, three times": (nn.Upsample(scale_factor=3, mode="bilinear"), (1, 4, 5, 6)),
    "bilinear, smaller": (nn.Upsample((3, 2), mode="bilinear"), (1, 4, 7, 9)),
    "corners": (nn.Upsample((13, 18), mode="bilinear", align_corners=True), (2, 4, 7, 9)),
    "corners, twice": (nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), (1, 4, 5, 6)),
    "many steps": (nn.Upsample((513, 4), mode="bilinear"), (1, 1, 512, 3)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("scheme", ["int8", "int16"])
@pytest.mark.parametrize("name", RESIZES)
def test_a_large_one_makes_images_of_any_size(name: str, scheme: str, agrees: Any) -> None:
    module, shape = RESIZES[name]
    share = 0.01 if module.mode == "nearest" else 0.4 if scheme == "int16" else 0.1
    for model in (module, nn.Sequential(nn.Conv2d(shape[1], 4, 1), module)):
        allowed = share if model is module else max(share, 0.2)
        agrees(model, some(*shape), scheme=scheme, targets=[U85], share=allowed)


def test_resized_numbers_may_get_another_scale(whole_program: Any) -> None:
    import torch.ao.quantization.fx._decomposed

    q, fine, coarse = torch.ops.quantized_decomposed, (0.02, 9, -128, 127), (0.031, -7, -128, 127)

    class Resized(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for settings in (fine, coarse):
                x = q.quantize_per_tensor(x, *settings, torch.int8)
                x = q.dequantize_per_tensor(x, *settings, torch.int8)
                if settings is fine:
                    x = functional.interpolate(x, (7, 9), mode="bilinear")
            return x

    module, x = Resized().eval(), some(1, 3, 4, 5)
    delegated = whole_program(module, x, target=U85)
    away = (delegated.run()[0] - module(x)).abs() / coarse[0]
    assert float(away.max()) < 1.01 and float((away > 0.5).float().mean()) < 0.01


#: Quantized for the U85 -> the others' reason, in `quantize` and in `lower`.
LACKS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], str, str]] = {
    "matmul": (
        lambda s, a, b: torch.matmul(a, b),
        (some(2, 4, 8), some(2, 8, 3)),
        "int16",
        "products of int16 matrices",
    ),
    "mm": (lambda s, a, b: torch.mm(a, b), (some(4, 8), some(8, 3)), "int16", "products of int16 matrices"),
    "where": (
        lambda s, a, m: torch.where(m, a * 2, 0.5),
        (some(*X), some(*X) > 0),
        "int8",
        "choice between two numbers, but in front of a softmax",
    ),
    "masked_fill": (lambda s, a, m: hidden(a, m), (some(*X), some(8) > 0), "int8", "softmax whose mask is computed"),
    "gt": (lambda s, a: (a * 2 > 0.3, a * 2), (some(*X),), "int8", "comparisons and booleans"),
    "upsample_nearest2d": (
        lambda s, a: functional.interpolate(a * 2, (5, 7)),
        (some(1, 2, 4, 5),),
        "int8",
        "nearest resizing but by whole factors (from (4, 5) to (5, 7))",
    ),
    "upsample_bilinear2d": (
        lambda s, a: functional.interpolate(a * 2, (8, 10), mode="bilinear", align_corners=True),
        (some(1, 2, 4, 5),),
        "int8",
        "bilinear resizing but by 2, 4 or 8 between centres (from (4, 5) to (8, 10), corners aligned)",
    ),
    "embedding": (lambda s, i: s.table(i) * 2, (indices(2, 3),), "int8", "look-up of rows by indices"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("target", [U55, U65])
@pytest.mark.parametrize("name", LACKS)
def test_the_others_say_what_they_lack(name: str, target: str) -> None:
    function, inputs, scheme, what = LACKS[name]
    layer = Table(function).eval()
    lacked, bracket, sizes = what.partition(" (")
    reason = f"the {target} has no {lacked}; an Ethos-U85 has{bracket}{sizes}"

    def quantize(chosen: str) -> Any:
        # Another operator is quantized in any case.
        module = nn.ModuleList([layer, nn.Linear(4, 4)])
        module.forward = lambda x, *inputs: (module[1](x), layer(*inputs))  # type: ignore[method-assign]
        data, options = [(some(2, 4), *inputs)], {"target": chosen}
        return delegatekit.quantize(module.eval(), data, backend="ethosu", scheme=scheme, options=options)

    kept = {row.operator: row.reason for row in quantize(target).quantization.kept}
    assert kept[name] == reason
    module, inputs = quantize(U85), (some(2, 4), *inputs)
    assert not module.quantization.kept
    options = {"ethosu": {"target": target, "keep_tosa": True}}
    explanation = delegatekit.explain(module, inputs, backends=["ethosu"], options=options)
    assert reason in {text for row in explanation.rows for text in row.reasons.values()}
    # Refused operators run outside, with the same numbers.
    program = delegatekit.lower(module, inputs, backends=["ethosu"], options=options)
    for got, want in zip(
        pytree.tree_leaves(delegatekit.load(program.buffer)["forward"](*inputs)),
        pytree.tree_leaves(module(*inputs)),
        strict=True,
    ):
        torch.testing.assert_close(got, want, rtol=0, atol=0.05)


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS)
def test_whole_factors_and_longer_strides_are_for_all(target: str, whole_program: Any) -> None:
    layer = nn.Sequential(
        nn.ConvTranspose2d(8, 6, 4, 3),
        nn.Upsample(scale_factor=3),
        nn.Conv2d(6, 4, 1),
        nn.Upsample(scale_factor=(2, 1)),
    )
    x, results = some(1, 8, 3, 4), []
    for scheme in ("int8", "int16"):
        module: Any = delegatekit.quantize(layer.eval(), [x], backend="ethosu", scheme=scheme)
        assert not module.quantization.kept
        results.append(whole_program(module, x, target=target).operators)
    assert all("TILE" in operators or target.startswith("ethos-u85") for operators in results)
