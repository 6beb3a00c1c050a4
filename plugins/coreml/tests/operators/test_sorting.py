"""Order and records along an axis, against PyTorch in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from delegatekit_conformance.testkit import compare, lower, refusals
from delegatekit_coreml.options import CoreMLOptions
from delegatekit_coreml.support import CoreMLPartitioner
from delegatekit_toolkit.accuracy import tolerance

X = torch.randn(4, 7, 3, generator=torch.Generator().manual_seed(0))

#: The product of seven numbers is rounded six times.
TOLERANCE = tolerance("float32", "float32", 1, depth=6)

CASES: dict[str, Any] = {
    "sort": lambda x: (*x.sort(1), *x.sort(0, descending=True), x.argsort(-1)),
    "stable values": lambda x: torch.sort(x, stable=True, dim=1)[0],
    "topk": lambda x: (*x.topk(3, 1), *x.topk(2, 0, largest=False), *x.topk(2, -1, sorted=False)),
    "medians": lambda x: (*x.median(1), x.median(), *x.kthvalue(3, 1, keepdim=True), *x.kthvalue(2, 0)),
    "records": lambda x: (*x.cummax(1), *x.cummin(0)),
    "products": lambda x: (x.cumprod(1), x.cumprod(2)),
    "one element": lambda x: (*x.sum().sort(0), x.sum().median()),
}


@pytest.mark.parametrize("target", ["ios15", "ios18"])
@pytest.mark.parametrize("name", CASES)
def test_order_agrees_with_double_precision(name: str, target: str) -> None:
    options = {"precision": "float32", "target": target}
    compare(lower(CASES[name], X, backend="coreml", options=options), tolerance=TOLERANCE)


@pytest.mark.parametrize("name", ["sort", "topk", "medians", "records"])
def test_integers_are_in_exact_order(name: str) -> None:
    # No two are equal: which of these comes first is nowhere said.
    x = torch.randperm(84, generator=torch.Generator().manual_seed(1)).reshape(4, 7, 3) - 40
    compare(lower(CASES[name], x, backend="coreml"))


@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_the_median_with_nan_is_nan_at_its_first_place(precision: str) -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, nan, 3.0, nan], [nan, 1.0, 2.0, 3.0], [inf, -inf, 0.0, 1.0], [nan] * 4])
    lowered = lower(
        lambda x: (*x.median(1), *x.median(0), x.median()), x, backend="coreml", options={"precision": precision}
    )
    for found, wanted in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_places_of_a_stable_order_are_refused() -> None:
    found = refusals(CoreMLPartitioner(CoreMLOptions()), lambda x: torch.sort(x, stable=True)[1], X)
    assert any("the places of a stable order are used" in reason for reason in found)
