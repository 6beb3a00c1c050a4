"""Sizes that change from call to call, in our engine."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import delegatekit
from delegatekit_conformance import testkit

_N = torch.export.Dim("n", max=16)


@pytest.mark.parametrize(
    ("model", "shape", "changing", "sizes"),
    [
        (torch.nn.Linear(4, 3), (5, 4), 0, (1, 7, 16)),
        (lambda x: (x.reshape(x.shape[0] * 2, 2) * 2).reshape(2, -1), (5, 4), 0, (1, 7, 16)),
        (lambda x: x.sum(0) / x.shape[0] + x, (5, 4), 0, (1, 7, 16)),
        (torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8), 1, (2, 7, 16)),
        (torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.MaxPool2d(2)), (5, 3, 8, 8), 0, (1, 7, 16)),
    ],
)
def test_results_have_the_sizes_of_the_call(
    model: Any, shape: tuple[int, ...], changing: int, sizes: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    dynamic: Any = {changing: _N}
    shapes = (dynamic,) if isinstance(model, torch.nn.Module) else ((dynamic,),)
    lowered = testkit.lower(model, torch.randn(shape), backend="openvino", dynamic_shapes=shapes)
    calls = [(torch.randn(*shape[:changing], size, *shape[changing + 1 :]),) for size in sizes]
    # The stock runtime leaves the outputs at their largest sizes.
    testkit.compare(lowered, *calls, tolerance=1e-5, engines=[testkit.ENGINE])


def test_a_factor_that_is_a_size_is_no_number() -> None:
    """It comes from the ratio of two sizes of an image."""
    x, sizes = torch.randn(2, 2, 4, 6), ({2: torch.export.Dim("n", min=2, max=9)},)

    class Model(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(image, scale_factor=(3.0, 2.0), mode="nearest-exact")

    program = delegatekit.lower(Model(), (x,), backends=["openvino"], dynamic_shapes=sizes)
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](x), Model()(x), rtol=0, atol=0)
