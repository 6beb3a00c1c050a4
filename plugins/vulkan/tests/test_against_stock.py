"""Every difference between our blobs and stock's has a reason, which docs/vulkan-stock.md gives."""

from __future__ import annotations

import pytest

from .comparison import MODELS, compare, reason


@pytest.mark.parametrize("name", [*([pytest.param(n, marks=pytest.mark.slow) for n in MODELS])])
def test_every_difference_from_stock_is_explained(name: str) -> None:
    pytest.importorskip("executorch.backends.vulkan", reason="executorch is not installed")
    pytest.importorskip("transformers")
    found = compare(name)
    assert found.same > 0
    assert [line for line in found.differences if reason(line) is None] == []
    assert found.ours.delegates <= found.stock.delegates and found.ours.outside <= found.stock.outside
