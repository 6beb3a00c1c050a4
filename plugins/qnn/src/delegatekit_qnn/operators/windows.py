"""Windows that calls read: how far they reach, and what lies around them.

The library makes a convolution's or pool's own padding of zeros that are added before it, and reads what was never
written where a window then lies in padding alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from delegatekit_api import Call
from delegatekit_toolkit.arguments import pads_of, per_axis


def setting(call: Call, name: str) -> list[int]:
    """A setting of a convolution for each axis: a kept operator may have one number for all."""
    return list(per_axis(call[name], call["weight"].rank - 2))


def reach(call: Call) -> list[int] | None:
    """The distance from the first to the last element of a window, for each axis; None if the call has no windows."""
    if call.operator == "aten.convolution.default":
        sizes, dilation = call["weight"].shape[2:], setting(call, "dilation")
        return None if call["transposed"] else [(size - 1) * step for size, step in zip(sizes, dilation, strict=True)]
    if "_pool" in call.operator and call.has("kernel_size"):
        return [size - 1 for size in per_axis(call["kernel_size"], 3 if "pool3d" in call.operator else 2)]
    return None


def windows_beyond_padding(call: Call) -> str | None:
    """No window lies in the padding alone."""
    found = reach(call)
    if found is None or all(pad <= far for pad, far in zip(setting(call, "padding"), found, strict=True)):
        return None
    return f"padding {setting(call, 'padding')}: windows lie in it alone"


def pads_within_windows(call: Call) -> str | None:
    """No window of a convolution or pool that reads it lies in what is added alone, also by several in a row."""
    wide = _wide(call, [(0, 0)] * call["self"].rank)
    return f"windows of {wide} lie in the padding alone" if wide else None


def _wide(pad: Call, before: Sequence[tuple[int, int]]) -> str:
    """The operator of which a window lies in what a call and those before it add; empty if there is none."""
    added = pads_of(pad["pad"], pad["self"].rank)
    pads = [(one[0] + other[0], one[1] + other[1]) for one, other in zip(added, before, strict=True)]
    for user in pad.users:
        if user.operator == pad.operator:
            if wide := _wide(user, pads):
                return wide
        elif (found := reach(user)) is not None:
            around = pads[len(pads) - len(found) :]
            if any(max(sides) > far for sides, far in zip(around, found, strict=True)):
                return user.operator
    return ""
