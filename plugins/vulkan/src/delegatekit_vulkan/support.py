"""What the backend takes: the rows of all families of operators, the conditions of every operator, the partitioner.

This is the one place where operators are checked; the lowerings rely on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delegatekit_toolkit.support import SupportTable, TablePartitioner

from .operators import elementwise, linear, normalization, reduction
from .operators.program import Lower

if TYPE_CHECKING:
    from .options import VulkanOptions

TABLE: Final[SupportTable[Lower]] = SupportTable(
    [*elementwise.ROWS, *linear.ROWS, *normalization.ROWS, *reduction.ROWS], common=()
)


class VulkanPartitioner(TablePartitioner):
    """The table, narrowed by the user's options. Raises OptionError for an unknown operator in `leave_out`."""

    def __init__(self, options: VulkanOptions) -> None:
        super().__init__(TABLE, leave_out=options.leave_out, backend="vulkan")
        self._options = options
