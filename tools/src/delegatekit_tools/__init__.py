"""What looks at programs: reports, comparison with eager, profiles, sweeps over targets, placement, viewers.

Everything here is written on the core's reading API. The names are used as those of `delegatekit`, which loads them
when they are first used: `delegatekit.compare`, `delegatekit.sweep`.
"""

from __future__ import annotations

__all__ = ()
