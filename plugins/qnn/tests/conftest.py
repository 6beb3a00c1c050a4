"""Shared fixtures of the QNN backend's tests: lowered modules run on the vendor's simulator, compared with eager.

If the vendor's library is missing, tests that need it are skipped with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from delegatekit.plugins import get_backend
from delegatekit_conformance.testkit import Lowered, lower
from delegatekit_qnn.blob.installation import Missing, find_installation

#: agree(module, *inputs, tolerance=..., **options): whole in one delegate, with the results of double precision.
Agree = Callable[..., Lowered]

#: float16 has 11 bits; functions are approximated.
HALF_TOLERANCE = 4e-3


@pytest.fixture(scope="session")
def library() -> None:
    """Skip if the library is missing; it is searched, and not loaded."""
    found = find_installation()
    if isinstance(found, Missing):
        pytest.skip(found.reason)


@pytest.fixture
def simulator() -> None:
    """Skip if the library that compiles and runs programs is missing.

    The check runs in the runtime's own process: once loaded, the library disturbs other vendors' libraries.
    """
    available = get_backend("qnn").runtime_availability()
    if not available.available:
        pytest.skip(available.reason)


@pytest.fixture
def agree(simulator: None) -> Agree:
    """Lower a module or function whole into one delegate and check the simulator's results."""

    def check(model: Any, *inputs: torch.Tensor, tolerance: float = HALF_TOLERANCE, **options: Any) -> Lowered:
        lowered = lower(model, *inputs, backend="qnn", options=options)
        results, references = lowered.run(), lowered.eager(dtype=torch.float64)
        assert len(results) == len(references)
        for place, (result, reference) in enumerate(zip(results, references, strict=True)):
            exact = not result.dtype.is_floating_point
            assert exact is not reference.dtype.is_floating_point
            torch.testing.assert_close(
                result if exact else result.double(),
                reference if exact else reference.double(),
                rtol=0 if exact else tolerance,
                atol=0 if exact else tolerance,
                msg=f"output {place}: {result} instead of {reference}",
            )
        return lowered

    return check
