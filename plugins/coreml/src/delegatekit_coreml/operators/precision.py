"""The calls that are computed in float32 on request, where everything else is in float16."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegatekit_api import Call
from delegatekit_toolkit.modules import is_inside, module_paths
from delegatekit_toolkit.support import leavable_names

if TYPE_CHECKING:
    from ..options import CoreMLOptions


def is_wide(call: Call, options: CoreMLOptions) -> bool:
    """True for such a call; readers of unpacked constants compute in their type."""
    is_named = bool(options.float32_operators & leavable_names(call.operator)) or any(
        is_inside(path, name) for path in module_paths(call) for name in options.float32_modules
    )
    return is_named and all(operand.integers is None for operand in call.operands)
