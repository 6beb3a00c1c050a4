"""The operators that the backend takes, and its partitioner."""

from __future__ import annotations

from typing import Final

from delegatekit_toolkit.support import SupportTable, TablePartitioner

from .operators import attention
from .options import LlamaOptions

#: The operators that the backend takes.
TABLE: Final = SupportTable[attention.LowerCall](attention.ROWS)


def create_partitioner(options: LlamaOptions) -> TablePartitioner:
    """The partitioner, which goes by the table alone."""
    return TablePartitioner(TABLE, leave_out=options.leave_out, backend="llama")
