"""Analysis tools for programs: reports, comparison with eager, profiles, sweeps over targets, placement, viewers.

Everything here uses the core's reading API. The names are available as those of `delegatekit`, which loads them
on first use: `delegatekit.compare`, `delegatekit.sweep`.
"""

from __future__ import annotations

__all__ = ()
