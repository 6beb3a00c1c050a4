"""Asymmetric zeros before a convolution: its shader adds them without writing them to memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import delegatekit
from delegatekit_vulkan.runtime import VulkanRuntime

pytestmark = pytest.mark.needs_device


class Padded(nn.Module):
    """A convolution of a padded tensor; `read` also returns the convolution's input."""

    def __init__(self, convolution: nn.Module, pads: tuple[int, ...], read: bool) -> None:
        super().__init__()
        self.convolution, self.pads, self.read = convolution, pads, read

    def forward(self, x: torch.Tensor) -> Any:
        y = F.pad(x * 2, self.pads)
        return (self.convolution(y), y) if self.read else self.convolution(y)


#: Convolution, pads, input, and true if the zeros must be written.
CASES = {
    "stem": (nn.Conv2d(3, 8, 3, 2), (0, 1, 0, 1), (1, 3, 16, 16), False),
    "depthwise": (nn.Conv2d(8, 8, 3, 2, groups=8), (0, 1, 0, 1), (1, 8, 17, 15), False),
    "more before": (nn.Conv2d(8, 8, 3, 1, 1, groups=8), (2, 1, 3, 0), (1, 8, 9, 15), False),
    "pointwise": (nn.Conv2d(8, 8, 1), (2, 0, 1, 0), (1, 8, 7, 8), False),
    "dilated": (nn.Conv2d(8, 4, 3, 2, 1, 2), (2, 0, 1, 0), (1, 8, 11, 12), False),
    "in groups": (nn.Conv2d(8, 4, 3, 2, groups=2), (2, 0, 1, 0), (1, 8, 11, 12), True),
    "over one axis": (nn.Conv1d(4, 6, 3, 2), (3, 1), (1, 4, 12), False),
    "channels": (nn.Conv2d(8, 4, 3), (0, 1, 0, 1, 1, 0), (1, 7, 11, 12), True),
    "transposed": (nn.ConvTranspose2d(8, 4, 3, 2), (0, 1, 0, 1), (1, 8, 11, 12), True),
    "cut": (nn.Conv2d(8, 4, 3), (-1, 2, 0, 1), (1, 8, 11, 12), False),
}


@pytest.mark.parametrize("read", [False, True], ids=["only there", "also elsewhere"])
@pytest.mark.parametrize("name", CASES)
def test_zeros_before_convolutions(name: str, read: bool, handles: list[Any]) -> None:
    convolution, pads, shape, written = CASES[name]
    module, x = Padded(convolution, pads, read).eval(), torch.randn(shape)
    method = delegatekit.load(delegatekit.lower(module, (x,), backends=["vulkan"]).buffer)["forward"]
    for _ in range(2):
        x = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(method(x), module(x), rtol=1e-5, atol=1e-5)
    outputs = [torch.empty(item.sizes) for item in handles[0].graph.outputs]
    steps = [item.name for item in VulkanRuntime().profile(handles[0], [x], outputs)]
    assert any(step.endswith("(fill)") for step in steps) == (written or read), steps
