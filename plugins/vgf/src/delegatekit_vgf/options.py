"""The options of the VGF backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delegatekit_api import BackendOptions, option
from delegatekit_toolkit.options import leave_out_option, whole_graph_option

#: Flags of the converter that make another file of the same program.
_FLAGS: Final = ("--disable-replicated-composites", "--emit-debug-info")


def _check_flags(flags: tuple[str, ...]) -> str | None:
    unknown = next((flag for flag in flags if flag not in _FLAGS), None)
    return None if unknown is None else f"{unknown} is not among {', '.join(_FLAGS)}"


@dataclass(frozen=True)
class VgfOptions(BackendOptions):
    """Options for lowering to VGF files."""

    leave_out: frozenset[str] = leave_out_option()
    whole_graph: bool = whole_graph_option()
    converter_flags: tuple[str, ...] = option(
        (),
        help="Flags of the model converter: --disable-replicated-composites for devices without "
        "VK_EXT_shader_replicated_composites, --emit-debug-info for names inside of the module.",
        check=_check_flags,
    )
