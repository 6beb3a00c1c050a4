"""The observer of histograms: the same ranges as torchao's, faster."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("torchao")

from torchao.quantization.pt2e.observer import HistogramObserver

from delegatekit.quantization import observers
from delegatekit.quantization.observers import QuickHistogramObserver


def normal(count: int = 4000, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


PARTS = [normal(seed=seed) for seed in range(3)]
#: Observed data: a tensor for each calibration input.
VALUES = {
    "normal": PARTS,
    "outliers": [torch.cat([part, 100 * part[:3]]) for part in PARTS],
    "relu": [part.relu() for part in PARTS],
    "long tail": [part.exp().exp().clamp(max=1e6) for part in PARTS],
    "growing": [part * 10**index for index, part in enumerate(PARTS)],
    "two heaps": [torch.cat([part - 10, part[:50] + 30]) for part in PARTS],
    "few values": [torch.tensor([-1.0, 0.0, 0.5, 2.0, 2.0])],
    "one value": [torch.tensor([3.0])],
    "zeros": [torch.zeros(10)],
    "tiny": [1e-12 * part for part in PARTS],
    "whole numbers": [part.mul(3).round() for part in PARTS],
    "many": [normal(300_000)],
}


@pytest.mark.parametrize("scheme", [torch.per_tensor_affine, torch.per_tensor_symmetric])
@pytest.mark.parametrize("kind", VALUES)
def test_ranges_are_those_of_torchao(kind, scheme):
    settings = {"dtype": torch.int8, "qscheme": scheme, "quant_min": -128, "quant_max": 127, "eps": 2.0**-60}
    theirs, ours = HistogramObserver(**settings), QuickHistogramObserver(**settings)
    for part in VALUES[kind]:
        theirs(part)
        ours(part)
    assert torch.equal(ours.histogram, theirs.histogram)
    error = observers._Error(ours)
    for first, last in ((0, 2047), (0, 2000), (17, 2047), (300, 301), (1000, 1300), (5, 5), (2047, 2047)):
        assert error(first, last) == theirs._compute_quantization_error(first, last)
    for found, wanted in zip(ours.calculate_qparams(), theirs.calculate_qparams(), strict=True):
        assert torch.equal(found, wanted)


def test_what_was_found_is_kept_until_more_is_seen(monkeypatch):
    observer = QuickHistogramObserver(dtype=torch.int8, qscheme=torch.per_tensor_affine)
    searches = []
    search = QuickHistogramObserver._search
    monkeypatch.setattr(QuickHistogramObserver, "_search", lambda self: searches.append(1) or search(self))
    observer(PARTS[0])
    first = observer.calculate_qparams()
    assert observer.calculate_qparams() == first and len(searches) == 1
    observer(10 * PARTS[1])
    assert observer.calculate_qparams() != first and len(searches) == 2
