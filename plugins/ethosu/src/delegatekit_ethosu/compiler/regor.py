"""A TOSA program compiled for an accelerator, in process, by Regor: the compiler inside Arm's Vela."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from delegatekit_api import LoweringError
from delegatekit_toolkit.capture import quiet

from ..blob import Binding, Blob
from ..options import VELA_FLAGS, EthosUOptions
from ..targets import TARGETS, Target
from . import vela
from .configuration import Configuration, load_configuration
from .performance import Performance, collect
from .system import system_text


@dataclass(frozen=True)
class Compiled(Blob):
    """The data that the accelerator needs, and Vela's estimates.

    Another region: 2 has the fast memory between the accelerator and an arena in DRAM (`fast_scratch_size` bytes, else
    0).
    """

    fast_scratch_size: int
    performance: Performance
    vela_version: str


#: The regions that ExecuTorch's Ethos-U runtime provides to a program.
_READ_ONLY, _SCRATCH, _FAST_SCRATCH = 0, 1, 2
#: Vela's defaults on the command line.
_SETTINGS: Final = {
    "compiler": {"enable_db": "true", "output_format": "Raw", "cop_format": "COP1"},
    "scheduler": {"disable_feature": "", "cpu_tensor_alignment": "16", "tensor_allocator": "HillClimb"},
    "graph": {"softmax_int16_neg_exp_range": "10.0"},
}


def compile_program(tosa: bytes, options: EthosUOptions = EthosUOptions()) -> Compiled:  # noqa: B008
    """Compile a TOSA file; the same file, options and version of Vela give the same bytes.

    Raises PluginError without Vela, OptionError for a configuration that does not exist or match, and LoweringError for
    a program that Vela refuses or would run partly on the CPU.
    """
    target = TARGETS[options.target]
    configuration = load_configuration(options.config)
    system_config = options.system_config or target.system_config
    memory_mode = options.memory_mode or target.memory_mode
    where = f"Vela {vela.vela_version()}, {target.name}"
    try:
        compiler = vela.compiler()
        system = system_text(target, system_config, memory_mode, configuration)
        settings = settings_text(target, memory_mode, configuration, options)
        with quiet():
            model = compiler.compile(target.architecture, tosa, "TOSA", system, options=settings, verbose=False)
    except (RuntimeError, ValueError) as error:
        hint = "the backend should have refused these operators: please report it, and leave them out"
        raise LoweringError(str(error).strip(), where=where, hint=hint) from error
    performance = collect(model, tosa, target, system_config, memory_mode, configuration.clock(system_config))
    _check(model, performance, where)
    return Compiled(
        command_stream=model.command_stream,
        read_only=model.read_only.data,
        scratch_size=model.scratch.size,
        fast_scratch_size=model.scratch_fast.size,
        inputs=_bindings(model.inputs),
        outputs=_bindings(model.outputs),
        performance=performance,
        vela_version=vela.vela_version(),
    )


def settings_text(target: Target, memory_mode: str, configuration: Configuration, options: EthosUOptions) -> str:
    """The settings for the compiler.

    They always include the limit of the arena: without one the compiler makes far slower programs.
    """
    settings = {section: dict(values) for section, values in _SETTINGS.items()}
    limit = options.arena_limit or configuration.arena_limit(memory_mode) or target.address_space
    if limit > target.address_space:
        raise LoweringError(f"the arena limit {limit} is more than the accelerator addresses", where=target.name)
    settings["scheduler"] = {
        "optimize": options.optimize.capitalize(),
        "arena_size_limit": str(limit),
        **settings["scheduler"],
    }
    disabled = []
    for flag in options.vela_flags:
        name, _, value = flag.partition("=")
        section, key, fixed = VELA_FLAGS[name]
        if key == "disable_feature":
            disabled.append(str(fixed))
        else:
            settings[section][key] = value
    settings["scheduler"]["disable_feature"] = "|".join(disabled)
    sections = (
        f"\n[{section}]\n" + "".join(f"{key}={value}\n" for key, value in values.items())
        for section, values in settings.items()
    )
    return "".join(sections)


def _check(model: Any, performance: Performance, where: str) -> None:
    """Refuse programs that ExecuTorch's runtime could not run."""
    if performance.cpu_operators:
        raise LoweringError(f"leaves {performance.cpu_operators} operators to the CPU", where=where)
    regions = {
        ("constants", model.read_only.region, _READ_ONLY),
        ("arena", model.scratch.region, _SCRATCH),
        *(("input or output", tensor.region, _SCRATCH) for tensor in (*model.inputs, *model.outputs)),
    }
    if model.scratch_fast.size:
        regions.add(("fast memory", model.scratch_fast.region, _FAST_SCRATCH))
    for name, region, wanted in sorted(regions):
        if region != wanted:
            raise LoweringError(f"puts the {name} into region {region}, not {wanted}", where=where)
    if model.variables:
        raise LoweringError(f"keeps {len(model.variables)} variables, which no runtime provides", where=where)


def _bindings(tensors: Sequence[Any]) -> tuple[Binding, ...]:
    return tuple(
        Binding(tuple(map(int, tensor.shape)), tensor.element_size, tensor.address, tensor.region) for tensor in tensors
    )
