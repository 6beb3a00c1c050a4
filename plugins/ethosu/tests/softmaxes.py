"""Softmaxes along several axes, long, short and of nearly equal numbers: (function, shape, deviation)."""

from __future__ import annotations

SOFTMAXES = {
    "rows": (lambda x: x.softmax(-1), (2, 10), 3.0),
    "channels": (lambda x: x.softmax(1), (1, 5, 6, 6), 3.0),
    "long": (lambda x: x.softmax(-1), (1, 4, 1000), 3.0),
    "flat": (lambda x: x.softmax(-1), (2, 197), 0.1),
    "logarithm": (lambda x: x.log_softmax(-1), (2, 10), 3.0),
    "long logarithm": (lambda x: x.log_softmax(-1), (2, 1000), 3.0),
}
