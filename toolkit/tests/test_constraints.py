"""Constraints refuse what they document, and nothing else."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from torch.export import Dim
from torch.nn import functional

from delegatekit_api import Call
from delegatekit_toolkit.constraints import (
    absent,
    constant,
    dtypes,
    element_count,
    elements,
    equals,
    finite,
    finite_constants,
    max_rank,
    rank,
    same_dtypes,
    static_sizes,
)
from delegatekit_toolkit.support import Constraint
from delegatekit_toolkit.testing import call_of

X = torch.ones(2, 3)
WEIGHT = torch.ones(4, 3)
INTEGERS = torch.ones(4, 3, dtype=torch.int8)
ROW, INTEGER_ROW = torch.ones(3), torch.ones(3, dtype=torch.int8)


def dequantized(integers: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = torch.ops.quantized_decomposed.dequantize_per_tensor.default(
        integers, 0.5, 0, -128, 127, torch.int8
    )
    return found


def changing() -> Call:
    return call_of(lambda x: x + x, X, dynamic_shapes=(({0: Dim("n", max=9)},),))


CASES: list[tuple[Constraint, Call, str | None]] = [
    (dtypes("float32"), call_of(torch.neg, X), None),
    (dtypes("float32"), call_of(torch.neg, X.half()), "is float16: float32 is taken"),
    (dtypes("float32", "float16"), call_of(lambda x: x > 0, X), "gt is bool: float32 or float16 are taken"),
    (dtypes("float32", "int64"), call_of(lambda x: x.max(0)[0].relu(), X), None),
    (dtypes("float32"), call_of(lambda x: x * INTEGER_ROW, X), "is int8: float32 is taken"),
    (dtypes("float32", constants=False), call_of(lambda x: x * INTEGER_ROW, X), None),
    (same_dtypes(), call_of(torch.mul, X, X), None),
    (same_dtypes(), call_of(torch.mul, X, X.int()), "float32 and int32: one dtype"),
    (elements(), call_of(torch.neg, X), None),
    (elements(), call_of(torch.neg, X[:0]), "has no elements, (0, 3)"),
    (elements(), changing(), None),
    (max_rank(2), call_of(torch.neg, X), None),
    (max_rank(1), call_of(torch.neg, X), "has 2 axes: 1 is the maximum"),
    (max_rank(1), call_of(lambda x: x.sum(), X), "has 2 axes"),
    (rank("self", 2, 3), call_of(torch.neg, X), None),
    (rank("self", 3), call_of(torch.neg, X), "self has 2 axes: 3 is taken"),
    (rank("bias", 1), call_of(functional.linear, X, WEIGHT), None),
    (static_sizes(), call_of(torch.neg, X), None),
    (static_sizes(), changing(), "has sizes that change from call to call"),
    (constant("weight", "bias"), call_of(torch.nn.Linear(3, 4), X), None),
    (constant("weight"), call_of(functional.linear, X, WEIGHT), "weight is computed: a constant is taken"),
    (constant("weight"), call_of(lambda x: functional.linear(x, dequantized(INTEGERS)), X), None),
    (constant("weight"), call_of(lambda x, w: functional.linear(x, dequantized(w)), X, INTEGERS), "weight is computed"),
    (constant("weight"), call_of(lambda x: functional.linear(x, WEIGHT.neg()), X), "weight is computed"),
    (absent("bias"), call_of(functional.linear, X, WEIGHT), None),
    (absent("weight", "bias"), call_of(torch.nn.Linear(3, 4), X), "weight is given"),
    (absent("dim"), call_of(lambda x: x.sum(()), X), None),
    (equals("alpha", 1), call_of(torch.add, X, X), None),
    (equals("alpha", 1, 2), call_of(lambda x: torch.add(x, x, alpha=3), X), "alpha = 3: only 1 or 2 is taken"),
    (finite("min", "max"), call_of(lambda x: x.clamp(-1, 1), X), None),
    (finite("min", "max"), call_of(lambda x: x.clamp(max=1), X), None),
    (finite("min"), call_of(lambda x: x.clamp(math.nan), X), "min = nan is not a finite number"),
    (finite("max", largest=65504), call_of(lambda x: x.clamp(max=1e5), X), "max = 100000.0 is not a finite number"),
    (finite_constants(), call_of(lambda x: x * ROW, X), None),
    (finite_constants(), call_of(lambda x: x * INTEGER_ROW, X), None),
    (finite_constants(), call_of(torch.nn.Linear(3, 4), X * math.inf), None),
]
INFINITE = torch.tensor([math.inf])


@pytest.mark.parametrize("case", range(len(CASES)))
def test_what_is_refused(case: int) -> None:
    constraint, call, reason = CASES[case]
    found = constraint(call)
    assert found is None if reason is None else found is not None and reason in found, found


def test_infinite_constants_are_named() -> None:
    found = finite_constants()(call_of(lambda x: x * INFINITE, X))
    assert found is not None and found.endswith("is a constant with NaN or infinity")


def test_elements_are_counted_where_sizes_are_fixed() -> None:
    assert element_count(call_of(torch.neg, X).result) == 6
    assert element_count(changing().result) is None


DOCUMENTED: list[tuple[Any, str]] = [
    (dtypes("float32"), "Tensors are float32."),
    (dtypes("float32", "int8"), "Tensors are float32 or int8."),
    (rank("self", 3, 4), "self has 3 or 4 axes."),
    (rank("bias", 1), "bias has 1 axis."),
    (constant("weight"), "weight is a constant."),
    (constant("weight", "bias"), "weight and bias are constants."),
    (absent("bias"), "bias is left out."),
    (equals("alpha", 1), "alpha is 1."),
    (finite("min", "max"), "min and max are finite."),
    (max_rank(4), "At most 4 axes."),
]


@pytest.mark.parametrize(("constraint", "text"), DOCUMENTED)
def test_constraints_document_themselves(constraint: Constraint, text: str) -> None:
    assert constraint.__doc__ == text
