"""torchao's histogram observer, with a faster search for the range, which is infinite if numbers are."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchao.quantization.pt2e.observer import HistogramObserver

#: The fraction of the values that is cut off in one step of the search.
_STEP = 1e-5


class QuickHistogramObserver(HistogramObserver):  # type: ignore[misc]
    """Finds the same range as torchao's observer, computing with numbers instead of tensors of one element each.

    The search is torchao's: from both ends, the side on which a step cuts off more bins is cut, until the squared error
    of rounding grows. It takes up to 100 000 steps; those that cut off nothing are skipped here. The result is
    cached: torchao asks once for each user of a value, and for each bias.
    """

    min_val: torch.Tensor

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        #: The input of the last search, and the first and last bin of its result.
        self._found: tuple[torch.Tensor, tuple[int, int]] | None = None

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        """Note the numbers. From infinities and NaNs on, which torchao's observer leaves out, the range is infinite."""
        if x_orig.numel() and not all(bool(end.isfinite()) for end in torch.aminmax(x_orig.detach())):
            self.min_val = torch.full_like(self.min_val, -math.inf)
        if self.min_val == -math.inf:
            return x_orig
        noted: torch.Tensor = super().forward(x_orig)
        return noted

    def _non_linear_param_search(self) -> tuple[torch.Tensor, torch.Tensor]:
        seen = torch.cat([self.histogram, self.min_val.reshape(1), self.max_val.reshape(1)])
        if self._found is None or not torch.equal(self._found[0], seen):
            self._found = seen, self._search()
        first, last = self._found[1]
        width = (self.max_val - self.min_val) / self.bins
        return self.min_val + width * first, self.min_val + width * (last + 1)

    def _search(self) -> tuple[int, int]:
        cut, kept = _shares()
        below, total = torch.cumsum(self.histogram, dim=0).numpy(), float(self.histogram.sum())
        # For each fraction the bin up to which it reaches; torchao compares in single precision.
        lefts = np.searchsorted(below, (cut * total).astype(np.float32), "left")
        rights = np.searchsorted(below, (kept * total).astype(np.float32), "right") - 1
        falling = -rights
        first, last = 0, self.bins - 1
        low, high, least = 0, 0, math.inf
        error_of = _Error(self)
        while high + 1 < len(kept) and low + 1 < len(cut) and cut[low] < kept[high]:
            left = max(first, min(int(lefts[low + 1]), last))
            right = min(last, max(int(rights[high + 1]), first))
            if (left, right) == (first, last):
                # Skip to the step that cuts off the last bin.
                high = max(high + 1, int(np.searchsorted(falling, -last, "right")) - 1)
                continue
            if left - first > last - right:
                low, bins = low + 1, (left, last)
            else:
                high, bins = high + 1, (first, right)
            error = error_of(*bins)
            if error > least:
                break
            least, (first, last) = error, bins
        return first, last


class _Error:
    """torchao's `_compute_quantization_error`, bit for bit, with half of its operators: the others return constants."""

    def __init__(self, observer: HistogramObserver) -> None:
        self._levels = observer.dst_nbins
        self._bins = observer.bins
        self._width = (observer.max_val.item() - observer.min_val.item()) / observer.bins
        self._numbers = torch.arange(observer.bins, dtype=torch.float32)
        self._density = observer.histogram / self._width if self._width else observer.histogram

    def __call__(self, first: int, last: int) -> float:
        """The squared error if the values of the bins from first to last are rounded to the levels between them."""
        level = self._width * (last - first + 1) / self._levels
        if level == 0.0:
            return 0.0
        begin = (self._numbers - first).mul_(self._width)
        end = begin + self._width
        level_of_begin, level_of_end = self._whole(begin, level), self._whole(end, level)
        half = torch.tensor(level / 2)
        most = half * half * half
        # From the start of a bin to the end of its level, the levels between, from the start of the last to the end.
        begin.sub_((level_of_begin + 0.5).mul_(level))
        error = (most - begin * begin * begin).div_(3).mul_(self._density)
        between = level_of_end.sub(level_of_begin).sub_(1)
        error.add_(between.mul_(self._density * ((most + most) / 3)))
        end.sub_(level_of_end.mul_(level).add_(level / 2))
        error.add_((end * end * end).add_(most).div_(3).mul_(self._density))
        return error.sum().item()

    def _whole(self, values: torch.Tensor, level: float) -> torch.Tensor:
        """The whole quotient of values and level. In double precision the quotients of singles are never rounded up
        to the next whole number; torch's own division by floor is five times as slow."""
        single = torch.tensor(level).item()
        return values.double().div_(single).floor_().clamp_(0, self._levels - 1).float()


@cache
def _shares() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The fractions below the range's lower and upper end after 0, 1, 2, ... steps, added up as torchao does."""
    steps = np.full(round(1 / _STEP) + 2, _STEP)
    steps[0] = 0.0
    cut = np.add.accumulate(steps)
    steps[0] = 1.0
    return cut, np.subtract.accumulate(steps)
