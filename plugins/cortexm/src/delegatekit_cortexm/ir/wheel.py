"""ExecuTorch's wheel, which has the library's operators in Python and CMSIS-NN's binding: found, not imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from delegatekit_api import Availability


def availability(part: str, what: str, extra: str) -> Availability:
    """The availability of a file or folder of `executorch/backends/cortex_m`; `what` names it in words."""
    found = find_spec("executorch")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        if Path(place, "backends", "cortex_m", part).exists():
            return Availability(True)
    return Availability(False, f"{what} missing: pip install 'delegatekit-cortexm[{extra}]'")
