"""Clocks and memories of a system, checked as in Vela's command line: the compiler itself accepts anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from delegatekit_api import OptionError

from ..options import EthosUOptions
from ..targets import TARGETS, Target
from .configuration import MEMORY, SYSTEM, Configuration, load_configuration

#: The memories that a port may be connected to, and the ports.
_AREAS: Final = ("Sram", "Dram", "OnChipFlash", "OffChipFlash")
_PORTS: Final = ("Axi0", "Axi1")
#: Numbers in a system configuration for each area -> their minimum.
_COUNTS: Final = {
    "ports_used": 1,
    "burst_length": 1,
    "read_latency": 0,
    "write_latency": 0,
    "max_reads": 0,
    "max_writes": 0,
}
_USES: Final = ("const_mem_area", "arena_mem_area", "cache_mem_area")
#: Keys in the compiler's spelling, by their lower-case form.
_KEYS: Final = {
    key.lower(): key
    for key in (
        "core_clock",
        "axi0_port",
        "axi1_port",
        *(f"{area}_{what}" for area in _AREAS for what in ("clock_scale", *_COUNTS)),
        *_USES,
        "arena_cache_size",
    )
}
#: The compiler infers the port widths from the name: with another, its estimates are off by a factor of two.
_NARROW: Final = "Ethos_U55"


def system_text(target: Target, system_config: str, memory_mode: str, configuration: Configuration) -> str:
    """The compiler's settings for accelerator and system.

    Raises OptionError for names that do not exist, and for values that Vela's command line would refuse: with file,
    section, key and value.
    """
    configuration.clock(system_config)
    configuration.arena_limit(memory_mode)
    _check_family(target, system_config, configuration)
    system = _Section(configuration, SYSTEM + system_config)
    memory = _Section(configuration, MEMORY + memory_mode)
    _check(target, system, memory)
    return (
        f"[architecture]\nmacs={target.macs // target.cores}\ncores={target.cores}\n"
        f"[vela]\nsystem_config_name={system_config}\nmemory_mode_name={memory_mode}\n"
    ) + "".join(
        f"[{section.name}]\n" + "".join(f"{_KEYS[key]}={value}\n" for key, value in section.values.items())
        for section in (system, memory)
    )


def check_names(options: EthosUOptions) -> None:
    """Raise OptionError, before anything is lowered, for names and a file chosen by the user that do not exist."""
    if options.system_config or options.memory_mode or options.config:
        target = TARGETS[options.target]
        system_config, memory_mode = options.system_config, options.memory_mode
        configuration = load_configuration(options.config)
        system_text(target, system_config or target.system_config, memory_mode or target.memory_mode, configuration)


def _check_family(target: Target, system_config: str, configuration: Configuration) -> None:
    narrow = target.family == "u55"
    if system_config.startswith(_NARROW) == narrow:
        return
    fitting = [name for name in configuration.clocks if name.startswith(_NARROW) == narrow]
    raise OptionError(
        f"Vela would take {system_config} for another family's",
        where=target.name,
        hint=f"there are {', '.join(fitting)}"
        if fitting
        else f"call its section [{SYSTEM}{_NARROW}_...] for an Ethos-U55, otherwise for another family",
    )


class _Section:
    """One section with what it inherits; keys are in lower case."""

    def __init__(self, configuration: Configuration, name: str) -> None:
        self.name = name
        self._path = configuration.path
        self.values: Mapping[str, str] = configuration.sections[name]

    def check_keys(self) -> None:
        """Refuse keys unknown to Vela: a misspelled one would change the estimates."""
        for key in self.values:
            if key not in _KEYS:
                raise self.refuse(key, "is not a key of Vela's")

    def refuse(self, key: str, message: str, hint: str | None = None) -> OptionError:
        name, value = _KEYS.get(key.lower(), key), self.values.get(key.lower())
        text = name if value is None else f"{name}={value}"
        return OptionError(
            f"{text} {message}", where=f"Vela configuration {self._path}, section {self.name}", hint=hint
        )

    def one_of(self, key: str, choices: tuple[str, ...]) -> str:
        value = self.values.get(key.lower())
        if value not in choices:
            raise self.refuse(key, "is missing" if value is None else "is unknown", f"there are {', '.join(choices)}")
        return value

    def positive(self, key: str) -> float:
        """A number above 0, which is required."""
        if key.lower() not in self.values:
            raise self.refuse(key, "is missing")
        try:
            value = float(self.values[key.lower()])
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise self.refuse(key, "is not a number above 0")
        return value

    def count(self, key: str, least: int, most: int | None = None) -> int | None:
        """A whole number, or None if absent."""
        if key.lower() not in self.values:
            return None
        try:
            value = int(self.values[key.lower()])
        except ValueError as error:
            raise self.refuse(key, "is not a whole number") from error
        if value < least or (most is not None and value > most):
            raise self.refuse(key, f"is below {least}" if most is None else f"is not between {least} and {most}")
        return value


def _check(target: Target, system: _Section, memory: _Section) -> None:
    system.positive("core_clock")
    areas = {port: system.one_of(f"{port}_port".lower(), _AREAS) for port in _PORTS}
    for area in dict.fromkeys(areas.values()):
        system.positive(f"{area}_clock_scale")
        for what, least in _COUNTS.items():
            system.count(f"{area}_{what}", least)
    ports = [memory.one_of(use, _PORTS) for use in _USES]
    memory.count("arena_cache_size", 1, target.address_space)
    system.check_keys()
    memory.check_keys()
    # If all share one SRAM, Vela treats the constants' part of it as on-chip flash.
    one_sram = len(set(ports)) == 1 and areas[ports[0]] == "Sram"
    allowed = (("Sram",) if one_sram else _AREAS[1:], ("Sram", "Dram"), ("Sram",))
    for use, port, choices in zip(_USES, ports, allowed, strict=True):
        if areas[port] not in choices:
            raise memory.refuse(
                use,
                f"is {areas[port]} in {system.name}, where Vela needs {' or '.join(choices)}",
                "choose another memory mode or system configuration",
            )
