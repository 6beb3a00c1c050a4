"""Writing to places that tensors name, against PyTorch in double precision (floats) or bit by bit (integers)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from delegatekit_conformance.testkit import compare, lower, refusals
from delegatekit_coreml.options import CoreMLOptions
from delegatekit_coreml.support import CoreMLPartitioner
from delegatekit_toolkit.accuracy import tolerance

aten = torch.ops.aten
SINGLE = {"precision": "float32"}
X = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0))
SOURCE = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(1))
#: Places along the second axis, different from one another; as large as X but for that axis, and smaller.
WHOLE = torch.tensor([3, 0, 4]).reshape(1, 3, 1).expand(4, 3, 3).contiguous()
PART = WHOLE[:2, :, :2].contiguous()
AGAIN = torch.tensor([1, 1, 4]).reshape(1, 3, 1).expand(4, 3, 3).contiguous()
ROWS = torch.tensor([2, -4])
PLACES = torch.tensor([1, 2])
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")

CASES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "along an axis": (lambda x, i, y: (x.scatter(1, i, y), x.scatter(1, i, 2.5)), (X, WHOLE, SOURCE)),
    "part along an axis": (lambda x, i, y: (x.scatter(1, i, y), x.scatter_add(1, i, y)), (X, PART, SOURCE)),
    "sums": (lambda x, i, y: x.scatter_add(1, i, y), (X, AGAIN, SOURCE)),
    **{
        f"{reduce}, {'with' if include else 'without'} what is there": (
            lambda x, i, y, reduce=reduce, include=include: x.scatter_reduce(1, i, y, reduce, include_self=include),
            (X, index, SOURCE),
        )
        for reduce in REDUCTIONS
        for include, index in ((True, AGAIN), (False, AGAIN), (True, PART))
    },
    "rows": (lambda x, i, y: (x.index_put((i,), y), x.index_put((i,), y, accumulate=True)), (X, ROWS, SOURCE[:2])),
    "middle axis": (lambda x, i, y: aten.index_put(x, [None, i], y), (X, ROWS, SOURCE[:, :2])),
    "two axes": (lambda x, i, y: x.index_put((i, i), y), (X, ROWS, SOURCE[:2, 0])),
    "two axes in the middle": (
        lambda x, i, y: aten.index_put(x, [None, i, i - 1], y),
        (X, PLACES, SOURCE[:, :2, 0]),
    ),
    "axes apart": (lambda x, i, y: aten.index_put(x, [i, None, i], y), (X, PLACES, SOURCE[:2, :, 0])),
    "indices of two axes": (lambda x, i, y: x.index_put((i,), y), (X, torch.tensor([[0, 3], [1, 2]]), SOURCE[:2, :1])),
    "indices of three axes": (lambda x, i, y: x.index_put((i,), y), (X, PLACES.reshape(1, 2, 1), SOURCE[0])),
    "indices of four axes for all": (
        lambda x, i, y: x.index_put((i, i, i), y, accumulate=True),
        (X, PLACES.reshape(1, 2, 1, 1), SOURCE[0, 0, 0]),
    ),
    "a mask": (lambda x, m: (x.index_put((m,), torch.tensor(9.0)), x.masked_fill(m, 1.0)), (X, SOURCE > 0)),
    "a mask of rows": (lambda x, m: x.index_put((m,), torch.tensor(9.0)), (X, SOURCE[:, 0, 0] > 0)),
    "a mask's source": (lambda x, m, y: x.masked_scatter(m, y), (X, SOURCE > 0, SOURCE.flip(0))),
    "copied, added and filled rows": (
        lambda x, i, y: (x.index_copy(1, i, y), x.index_add(1, i, y, alpha=2), x.index_fill(1, i, 3.0)),
        (X, torch.tensor([4, 1]), SOURCE[:, :2]),
    ),
    "elements": (lambda x, i, y: (x.put(i, y), x.take(i)), (X, torch.tensor([[3, -1], [0, 7]]), SOURCE[0, :2, :2])),
}


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["ios15", "ios18"])
@pytest.mark.parametrize("name", CASES)
def test_written_numbers_agree_with_double_precision(name: str, target: str) -> None:
    model, inputs = CASES[name]
    lowered = lower(model, *inputs, backend="coreml", options={**SINGLE, "target": target})
    # Up to three numbers come to one place, and the mean of them divides.
    compare(lowered, tolerance=tolerance("float32", "float32", 1, depth=3))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool])
def test_integers_and_truth_values_are_exact(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> Any:
        written = x.scatter(1, i, y), x.index_put((i[0, :, 0],), y[:3]), x.masked_scatter(y > 0, x)
        if dtype is torch.bool:
            return written
        return *written, x.scatter_add(1, i, y), x.scatter_reduce(1, i, y, "amax", include_self=False)

    x, y = ((10 * item).to(dtype) for item in (X, SOURCE))
    compare(lower(function, x, WHOLE.clamp(max=3), y, backend="coreml"), engines=["delegatekit"])


def test_writes_that_depend_on_a_mask_are_refused() -> None:
    def function(x: torch.Tensor, m: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.index_put((m,), y)

    found = refusals(CoreMLPartitioner(CoreMLOptions()), function, X[0, 0], SOURCE[0, 0] > -9, SOURCE[0, 0])
    assert any("how many are written depends on the mask" in reason for reason in found)


@pytest.mark.parametrize("target", ["ios15", "ios18"])
@pytest.mark.parametrize(
    ("shape", "sizes", "is_indexed"),
    [
        ((4, 5, 1, 3), (1, 4, 1), (False, True)),
        ((4, 5, 1, 3), (1, 1, 1), (True,)),
        ((4, 5, 3), (1, 1, 1, 1, 2), (True, True, True)),
    ],
)
def test_places_or_numbers_of_six_axes_are_refused(
    shape: tuple[int, ...], sizes: tuple[int, ...], is_indexed: tuple[bool, ...], target: str
) -> None:
    """No operand has six axes, but the numbers have those of the index beside those of the rest."""

    def function(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        written: torch.Tensor = aten.index_put(x, [i if item else None for item in is_indexed], y, True)
        return written

    inputs = X.reshape(shape), torch.zeros(sizes, dtype=torch.int64), SOURCE[0, 0, 0]
    assert function(*inputs).shape == shape
    found = refusals(CoreMLPartitioner(CoreMLOptions(target=target)), function, *inputs)
    assert any("axes beside" in reason for reason in found)
