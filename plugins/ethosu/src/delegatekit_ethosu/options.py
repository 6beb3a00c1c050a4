"""The options of the Ethos-U backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delegatekit_api import BackendOptions, option
from delegatekit_toolkit.options import leave_out_option

from .targets import TARGETS

_DISABLE = "scheduler", "disable_feature"
#: Flags of Vela's command line that apply here -> section and key of the compiler's settings, and the value (None: the
#: flag has one). Flags with a backend option of their own are left out.
VELA_FLAGS: dict[str, tuple[str, str, str | None]] = {
    "--disable-chaining": (*_DISABLE, "Grouping"),
    "--disable-fwd": (*_DISABLE, "FWD"),
    "--disable-cascading": (*_DISABLE, "Cascading"),
    "--disable-buffering": (*_DISABLE, "WeightBuffering"),
    "--disable-ifm-reuse": (*_DISABLE, "ReuseIFM"),
    "--tensor-allocator": ("scheduler", "tensor_allocator", None),
    "--cpu-tensor-alignment": ("scheduler", "cpu_tensor_alignment", None),
    "--cop-format": ("compiler", "cop_format", None),
    "--experimental-softmax-int16-neg-exp-range": ("graph", "softmax_int16_neg_exp_range", None),
}


def _one_of(*choices: str) -> Callable[[str], str | None]:
    return lambda value: None if value in choices else f"is not {' or '.join(choices)}"


def _alignment(value: str) -> str | None:
    size = int(value) if value.isdecimal() else 0
    return None if size >= 16 and size & (size - 1) == 0 else "is not a power of two from 16 on"


def _exponent_range(value: str) -> str | None:
    try:
        return None if 0 < float(value) < 65535 else "is not between 0 and 65535"
    except ValueError:
        return "is not a number"


#: Flags with a value -> the fault of a value, or None. The compiler itself ignores what it does not know.
_VALUES: dict[str, Callable[[str], str | None]] = {
    "--tensor-allocator": _one_of("HillClimb", "LinearAlloc"),
    "--cpu-tensor-alignment": _alignment,
    "--cop-format": _one_of("COP1", "COP2"),
    "--experimental-softmax-int16-neg-exp-range": _exponent_range,
}


def _check_flags(flags: tuple[str, ...]) -> str | None:
    for flag in flags:
        name, _, value = flag.partition("=")
        known = VELA_FLAGS.get(name)
        if known is None:
            return f"{name} is not among {', '.join(VELA_FLAGS)}"
        if (known[2] is None) != bool(value) or "\n" in flag:
            return f"{name} needs a value ({name}=...)" if known[2] is None else f"{name} takes no value"
        wrong = _VALUES[name](value) if value else None
        if wrong is not None:
            return f"{flag} {wrong}"
    return None


@dataclass(frozen=True)
class EthosUOptions(BackendOptions):
    """Options for compiling for an Ethos-U. The blob needs none at run time."""

    target: str = option(
        "ethos-u55-128",
        help="The accelerator: family and number of multiplications in a cycle.",
        choices=tuple(TARGETS),
    )
    system_config: str | None = option(
        None,
        help="Clock and memories of the system: the name of a System_Config in the configuration file. By default what "
        "stock ExecuTorch chooses for the family (`delegatekit targets ethosu` shows it).",
    )
    memory_mode: str | None = option(
        None,
        help="The memories of weights and activations: the name of a Memory_Mode in the configuration file. By default "
        "what stock ExecuTorch chooses for the family.",
    )
    config: str | None = option(
        None,
        help="Path of a configuration file (.ini) in Vela's format. By default the one packaged with Vela.",
    )
    optimize: str = option(
        "performance",
        help='"performance": the fastest program that keeps to the arena limit; "size": the one with the least SRAM.',
        choices=("performance", "size"),
    )
    arena_limit: int | None = option(
        None,
        help="Bytes of SRAM that the compiler aims at for activations. It exceeds them if it finds nothing smaller: "
        "`--budget sram=...` refuses then. By default the memory mode's, or none.",
        check=lambda size: None if size is None or 0 < size <= 1 << 40 else "it is not between 1 and 2**40",
    )
    vela_flags: tuple[str, ...] = option(
        (),
        help="Further flags of Vela's command line, such as --disable-cascading or --tensor-allocator=LinearAlloc.",
        check=_check_flags,
    )
    leave_out: frozenset[str] = leave_out_option()
    keep_tosa: bool = option(
        False,
        help="Put the TOSA program into the file, beside the compiled one, for verification on the host. The device "
        "does not read it.",
    )
    verify: bool = option(
        False,
        help="Execute the compiled program on the host, and refuse it if it gives other bits than the TOSA program in "
        "Arm's reference model. For Ethos-U55.",
    )
