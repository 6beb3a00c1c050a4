"""Whole networks: one delegate each, and the same numbers in both runtimes."""

from __future__ import annotations

import pytest

from delegatekit_conformance import testkit
from delegatekit_conformance.models import build_model


@pytest.mark.parametrize(
    "name",
    ["mobilenet-v2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bert-base", "vit-base", "resnet-50"))],
)
def test_a_network_is_one_delegate_that_is_right(name: str) -> None:
    case = build_model(name, small=True)
    lowered = testkit.lower(case.module, *case.inputs, backend="openvino")
    # Some dozens of layers, each with sums of hundreds of products: far below the 1e-3 that users notice.
    testkit.compare(lowered, tolerance=1e-5)
