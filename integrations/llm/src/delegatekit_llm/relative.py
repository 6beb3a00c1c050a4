"""Biases of attention by the distance between tokens, as a lookup in a table.

T5's layers compute the number of a distance's bias by logarithms. Where the result is close to the next number,
another runtime's logarithm gives another bias; here the model's own function is called once, for all distances.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

#: The model's function from distances to numbers of biases.
_FUNCTION: Final = "_relative_position_bucket"


class RelativePositions(torch.nn.Module):
    """The numbers of the biases of a stack of layers, for tokens that are at most `reach` apart."""

    #: Distance plus `reach` -> number; empty if no layer has such biases.
    numbers: torch.Tensor

    def __init__(self, stack: torch.nn.Module, reach: int) -> None:
        super().__init__()
        self.reach = reach
        # In a tuple, so that they stay the model's alone.
        self._layers = tuple(layer for layer in stack.modules() if getattr(layer, "has_relative_attention_bias", False))
        self.register_buffer("numbers", torch.zeros(0, dtype=torch.int64), persistent=False)
        if self._layers:
            layer: Any = self._layers[0]
            self.numbers = getattr(layer, _FUNCTION)(
                torch.arange(-reach, reach + 1),
                bidirectional=not layer.is_decoder,
                num_buckets=layer.relative_attention_num_buckets,
                max_distance=layer.relative_attention_max_distance,
            )

    @contextmanager
    def tabulated(self) -> Iterator[None]:
        """The layers look the numbers up meanwhile."""

        def looked_up(distances: torch.Tensor, **_: Any) -> torch.Tensor:
            return self.numbers[distances + self.reach]

        for layer in self._layers:
            layer.__dict__[_FUNCTION] = looked_up
        try:
            yield
        finally:
            for layer in self._layers:
                del layer.__dict__[_FUNCTION]
