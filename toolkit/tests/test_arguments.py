"""Axes and window settings, in all the forms that PyTorch accepts."""

from __future__ import annotations

from delegatekit_toolkit.arguments import axes_of, axis_of, per_axis


def test_axes_and_settings_are_read_in_all_their_spellings() -> None:
    assert axes_of(-1, 3) == (2,) and axes_of([2, -3], 3) == (0, 2)
    assert axes_of(None, 2) == axes_of([], 2) == (0, 1) and axes_of(0, 0) == ()
    assert per_axis(3, 2) == per_axis([3], 2) == (3, 3) and per_axis((1, 2), 2) == (1, 2)
    assert per_axis(None, 2, 1) == per_axis((), 2, 1) == (1, 1)
    assert (axis_of(-1, 4), axis_of(2, 4)) == (3, 2)
