"""TOSA's level 8K, which the files are for: the largest numbers of some kinds."""

from __future__ import annotations

from typing import Final

#: Axes of a tensor.
AXES: Final = 6
#: Tensors that are joined at once.
LIST: Final = 64
#: Sizes of windows with their gaps, steps between them, and padding.
WINDOW: Final = 8192
#: The factor by which images are made larger or smaller, and numerators and denominators of factors.
SCALE: Final = 256
SCALE_NUMBERS: Final = 1 << 11
#: Rows and columns of an image that is made larger or smaller, before and after.
RESIZED: Final = (1 << 14) - 1
