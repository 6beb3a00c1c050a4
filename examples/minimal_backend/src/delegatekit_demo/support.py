"""The support table: the operators' rows, and the constraints that hold for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegatekit_toolkit.constraints import dtypes, elements
from delegatekit_toolkit.support import SupportTable, TablePartitioner

from .operators import ROWS

if TYPE_CHECKING:
    from .options import DemoOptions

TABLE = SupportTable(ROWS, common=(dtypes("float32"), elements()))


def partitioner(options: DemoOptions) -> TablePartitioner:
    """The support table, less what the user leaves out."""
    return TablePartitioner(TABLE, leave_out=options.leave_out, backend="demo")
