"""The support tables of the accelerators, and the partitioner.

Vela has no fallback: supported operators must compile for every accelerator of the target's family. The U85 supports
operators that the U55 and the U65 do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delegatekit_api import OptionError
from delegatekit_toolkit.tosa.lowering.support import UnitPartitioner, integer_table

from .targets import TARGETS

if TYPE_CHECKING:
    from .options import EthosUOptions

#: The operators that every accelerator supports: those of the U55 and the U65. And those of the U85.
TABLE: Final = integer_table(TARGETS["ethos-u55-128"])
TABLE_U85: Final = integer_table(TARGETS["ethos-u85-256"])


class EthosUPartitioner(UnitPartitioner):
    """Takes whole units: an operator with the dequantizes before and the quantizes after it.

    Raises OptionError for an unknown operator in `leave_out`, and for `verify` if the host cannot verify.
    """

    def __init__(self, options: EthosUOptions) -> None:
        target = TARGETS[options.target]
        if options.verify and target.family != "u55":
            hint = "leave it out, and compare with eager what the reference model computes (keep_tosa=True)"
            raise OptionError(
                f"the host executes no commands of the {options.target}", where="option verify", hint=hint
            )
        super().__init__(target, options.leave_out, "ethosu")
