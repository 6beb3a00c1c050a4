"""Sizes that the integer lowering keeps to, and the features that not all devices have.

The sizes are the narrowest that a device in use has: programs within them compile for every one.
"""

from __future__ import annotations

from typing import Final

#: Axes of a tensor.
MAX_RANK: Final = 6
#: Elements along one axis of a feature map.
MAX_AXIS: Final = 1 << 16
MAX_STRIDE: Final = 3
MAX_DILATION: Final = 2
#: Of transposed convolutions: more rows and columns than any network makes from one.
MAX_TRANSPOSED_STRIDE: Final = 16
#: Height, and elements, of a convolution's kernel and of a pooling's window.
KERNEL: Final = (64, 4096)
WINDOW: Final = (256, 1 << 16)
#: Steps from one pixel to the next, and the largest factor by which images are made smaller.
MAX_RESIZE_STEPS: Final = 1 << 11
MAX_SHRINKING: Final = 16
#: Windows of averages that exclude the padding.
PADDED_WINDOW: Final = 8
#: Sums of the exponentials of a softmax, each below 2^15, fit 31 bits.
MAX_SOFTMAX: Final = 1 << 15
#: From the smallest to the largest score of a log_softmax, whose steps are 2^-16 in 29 bits.
MAX_SCORES: Final = 1 << 13
#: Sums of squares in a norm of int8 and int16, of differences from the mean and from the zero point, fit 29 bits.
MAX_NORM: Final = 1 << 14
MAX_ROOT_MEAN_SQUARE: Final = 1 << 12
#: Axes up to which two operands are broadcast.
COMMON_RANK: Final = 4

# -- features that narrow devices lack, in words ----------------------------------------------------------------------

WIDE_PRODUCTS: Final = "products of int16 matrices"
CHOICES: Final = "choice between two numbers, but in front of a softmax"
COMPUTED_MASKS: Final = "softmax whose mask is computed"
COMPARISONS: Final = "comparisons and booleans"
LOOK_UPS: Final = "look-up of rows by indices"
RESIZES: Final = {
    "nearest": "nearest resizing but by whole factors",
    "bilinear": "bilinear resizing but by 2, 4 or 8 between centres",
}
