"""The support table: the operators' rows, and the constraints that hold for all of them."""

from __future__ import annotations

from delegatekit_toolkit.constraints import dtypes, elements
from delegatekit_toolkit.support import SupportTable

from .operators import ROWS

TABLE = SupportTable(ROWS, common=(dtypes("float32"), elements()))
