"""Clocks and memories: the compiler's settings, and values refused as by Vela's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegatekit_api import OptionError
from delegatekit_ethosu.compiler.configuration import load_configuration
from delegatekit_ethosu.compiler.system import system_text
from delegatekit_ethosu.compiler.vela import packaged_configuration
from delegatekit_ethosu.targets import TARGETS


@pytest.mark.parametrize("name", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_systems_and_memory_modes_are_refused_where_velas_command_line_refuses(name: str) -> None:
    from ethosu.vela.architecture_features import ArchitectureFeatures
    from ethosu.vela.errors import VelaError

    target, configuration, refused = TARGETS[name], load_configuration(), 0
    for system in configuration.clocks:
        if system.startswith("Ethos_U55") != (target.family == "u55"):
            continue
        for mode in configuration.arena_limits:
            try:
                vela = ArchitectureFeatures([str(packaged_configuration())], name, system, mode, 3, False, None)
            except VelaError as error:
                refused += 1
                area = str(error).split("=")[1].split()[0]
                with pytest.raises(
                    OptionError, match=rf"vela.ini, section Memory_Mode.{mode}: arena_mem_area=Axi1 is {area}"
                ):
                    system_text(target, system, mode, configuration)
                continue
            text = system_text(target, system, mode, configuration)
            assert f"\n[System_Config.{system}]\n" in text and f"\n[Memory_Mode.{mode}]\n" in text
            assert configuration.clock(system) == vela.core_clock
            assert (configuration.arena_limit(mode) or target.address_space) == vela.arena_cache_size
    assert refused


GOOD = """; a comment
# another one
[System_Config.S]
Core_Clock = 1e9
axi0_port = Sram
axi1_port = Dram
Sram_clock_scale = 1.0
Dram_clock_scale = 0.5
[Memory_Mode.Base]
const_mem_area = Axi1
cache_mem_area = Axi0
[Memory_Mode.M]
inherit = Memory_Mode.Base
arena_mem_area = Axi0
"""


def own(tmp_path: Path, text: str) -> str:
    path = tmp_path / "own.ini"
    path.write_text(text)
    return system_text(TARGETS["ethos-u85-256"], "S", "M", load_configuration(str(path)))


def test_the_compiler_gets_the_chosen_sections_as_it_reads_them(tmp_path: Path) -> None:
    other = "[System_Config.Other]\naxi0_port=Banana\n"
    assert own(tmp_path, GOOD + other).split("\n", 6)[6].splitlines() == [
        "[System_Config.S]",
        "core_clock=1e9",
        "axi0_port=Sram",
        "axi1_port=Dram",
        "Sram_clock_scale=1.0",
        "Dram_clock_scale=0.5",
        "[Memory_Mode.M]",
        "const_mem_area=Axi1",
        "cache_mem_area=Axi0",
        "arena_mem_area=Axi0",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Core_Clock = 1e9", "", "System_Config.S: core_clock is missing"),
        ("1e9", "-200e6", "core_clock=-200e6 is not a number above 0"),
        ("1e9", "0", "core_clock=0 is not a number above 0"),
        ("1e9", "nan", "core_clock=nan is not a number above 0"),
        ("Dram\n", "Banana\n", r"axi1_port=Banana is unknown\n.*there are Sram, Dram, OnChipFlash, OffChipFlash"),
        ("axi0_port = Sram", "", "axi0_port is missing"),
        ("Sram_clock_scale = 1.0", "", "System_Config.S: Sram_clock_scale is missing"),
        ("0.5", "half", "Dram_clock_scale=half is not a number above 0"),
        ("Sram_clock", "Sram_burst_length=0\nSram_clock", "Sram_burst_length=0 is below 1"),
        ("Sram_clock", "Dram_read_latency=long\nSram_clock", "Dram_read_latency=long is not a whole number"),
        ("Sram_clock", "Sram_latency=1\nSram_clock", "sram_latency=1 is not a key of Vela's"),
        ("inherit = Memory_Mode.Base\narena_mem_area = Axi0", "", "Memory_Mode.M: const_mem_area is missing"),
        ("arena_mem_area = Axi0", "arena_mem_area = Axi7", r"arena_mem_area=Axi7 is unknown\n.*there are Axi0, Axi1"),
        ("arena_mem_area", "arena_cache_size=-4\narena_mem_area", "arena_cache_size=-4 is not between 1 and"),
        ("arena_mem_area", "arena_cache_size=1.5\narena_mem_area", "arena_cache_size=1.5: invalid literal"),
        ("cache_mem_area = Axi0", "cache_mem_area = Axi1", "cache_mem_area=Axi1 is Dram in System_Config.S, where"),
        ("const_mem_area = Axi1\ncache_mem_area = Axi0", "const_mem_area=Axi0\ncache_mem_area=Axi1", "Axi0 is Sram in"),
    ],
)
def test_what_vela_would_refuse_is_refused_by_section_key_and_value(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in GOOD
    with pytest.raises(OptionError, match=message) as caught:
        own(tmp_path, GOOD.replace(old, new))
    assert str(tmp_path / "own.ini") in str(caught.value)
