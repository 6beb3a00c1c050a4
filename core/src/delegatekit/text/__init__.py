"""How numbers, estimates, tables, pages and the texts of others are written for people."""

from __future__ import annotations

from .estimates import layer_lines as layer_lines
from .estimates import summary as summary
from .foreign import indented as indented
from .foreign import one_line as one_line
from .foreign import one_lined as one_lined
from .foreign import visible as visible
from .numbers import BYTES as BYTES
from .numbers import human_size as human_size
from .numbers import human_time as human_time
from .numbers import with_unit as with_unit
from .policy import content_policy as content_policy
from .table import aligned as aligned
