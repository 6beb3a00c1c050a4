"""A function as a module, for tests of what becomes of a few operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


class Function(nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)
