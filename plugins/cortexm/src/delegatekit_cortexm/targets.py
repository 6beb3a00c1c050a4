"""The processors, and the instructions that CMSIS-NN has kernels for on each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delegatekit_api import OptionError
from delegatekit_api.devices import TargetInfo

#: Vectors (Helium), packed integers, and neither. A processor with one has those after it, too.
EXTENSIONS: Final = ("mve", "dsp", "scalar")

#: Processor -> the first of the extensions that it may have.
TARGETS: Final = {
    **{f"cortex-m{name}": "mve" for name in ("55", "85")},
    **{f"cortex-m{name}": "dsp" for name in ("4", "7", "33", "35p")},
    **{f"cortex-m{name}": "scalar" for name in ("0", "0plus", "3", "23")},
}

_WORDS: Final = {"mve": "vectors (MVE)", "dsp": "packed integers (DSP)", "scalar": "no extension"}


def extension_of(target: str, wanted: str | None) -> str:
    """The extension that is compiled for. Raises OptionError for one that the processor cannot have."""
    most = TARGETS[target]
    possible = EXTENSIONS[EXTENSIONS.index(most) :]
    if wanted is not None and wanted not in possible:
        raise OptionError(
            f"extension is {wanted!r}, which {target} does not have",
            where="option of backend cortexm",
            hint=f"it may have {' or '.join(possible)}",
        )
    return wanted or most


def list_targets() -> Sequence[TargetInfo]:
    """The processors, the default one first."""
    return [
        TargetInfo(name, f"Arm {name.replace('cortex-m', 'Cortex-M')} with {_WORDS[most]}", {"target": name})
        for name, most in TARGETS.items()
    ]
