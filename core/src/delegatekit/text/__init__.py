"""How numbers, estimates and tables are written for people."""

from __future__ import annotations

from .estimates import layer_lines as layer_lines
from .estimates import summary as summary
from .numbers import BYTES as BYTES
from .numbers import human_size as human_size
from .numbers import human_time as human_time
from .numbers import with_unit as with_unit
from .table import aligned as aligned
