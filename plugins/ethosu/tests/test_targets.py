"""Accelerators and configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegatekit_api import OptionError
from delegatekit_ethosu.compiler.configuration import load_configuration
from delegatekit_ethosu.compiler.system import system_text
from delegatekit_ethosu.compiler.vela import packaged_configuration
from delegatekit_ethosu.options import EthosUOptions
from delegatekit_ethosu.targets import TARGETS, list_targets


def test_all_accelerators_of_vela_are_targets() -> None:
    from ethosu.vela.architecture_features import Accelerator

    assert set(TARGETS) == set(Accelerator.member_list())


def test_the_list_for_users_has_options_that_are_allowed() -> None:
    found = list_targets()
    assert [EthosUOptions.from_mapping(item.options).target for item in found] == list(TARGETS)
    summary = "Ethos-U65, 512 MACs in a cycle on 2 cores; Ethos_U65_High_End, Dedicated_Sram_384KB by default"
    assert found[5].summary == summary


@pytest.mark.parametrize("name", TARGETS)
def test_multipliers_and_cores_are_velas(name: str) -> None:
    from ethosu.vela.architecture_features import ArchitectureFeatures

    target = TARGETS[name]
    config = [str(packaged_configuration())]
    vela = ArchitectureFeatures(config, name, target.system_config, target.memory_mode, 3, False, None)
    assert (target.macs, target.cores) == (vela.num_macs_per_cycle * vela.ncores, vela.ncores)
    assert target.address_space == vela.max_address_offset
    configuration = load_configuration()
    assert configuration.clock(target.system_config) == vela.core_clock
    assert (configuration.arena_limit(target.memory_mode) or target.address_space) == vela.arena_cache_size


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


@pytest.mark.parametrize("name", TARGETS)
def test_the_defaults_of_a_target_are_stocks(name: str) -> None:
    stock = pytest.importorskip("executorch.backends.arm.ethosu.compile_spec", exc_type=ImportError)
    pair = stock.EthosUCompileSpec._default_system_config_and_memory_mode(name, None, None)
    assert pair == (TARGETS[name].system_config, TARGETS[name].memory_mode)


def test_the_packaged_configuration_has_velas_clocks_and_limits() -> None:
    configuration = load_configuration()
    assert configuration.clock("Ethos_U55_High_End_Embedded") == 500e6
    assert configuration.clock("Ethos_U85_SYS_DRAM_Mid") == 1e9
    assert configuration.arena_limit("Shared_Sram") is None
    assert configuration.arena_limit("Dedicated_Sram_384KB") == 384 << 10
    assert len(configuration.clocks) == 11
    with pytest.raises(OptionError, match=r"no memory mode 'X'\n.*Sram_Only, Shared_Sram"):
        configuration.arena_limit("X")
    with pytest.raises(OptionError, match="no system configuration 'X'"):
        configuration.clock("X")


def test_a_configuration_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.ini"
    path.write_text(
        "[System_Config.Board]\ncore_clock=400e6\n[System_Config.Fast]\ninherit=System_Config.Board\n"
        "[Memory_Mode.Small]\ninherit=Memory_Mode.Base\n[Memory_Mode.Base]\narena_cache_size=65536\n"
    )
    configuration = load_configuration(str(path))
    assert configuration.clocks == {"Board": 400e6, "Fast": 400e6}
    assert configuration.arena_limits == {"Small": 65536, "Base": 65536}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("core_clock=1", "not of the form of an .ini file"),
        ("[System_Config.A]\ncore_clock=fast", "section System_Config.A: core_clock=fast: could not convert"),
        ("[Memory_Mode.A]\ninherit=Memory_Mode.A", "inherits from itself"),
        ("[Memory_Mode.A]\ninherit=Memory_Mode.B", "inherits from Memory_Mode.B, which does not exist"),
    ],
)
def test_a_damaged_configuration_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.ini"
    path.write_text(text)
    with pytest.raises(OptionError, match=message) as caught:
        load_configuration(str(path))
    assert str(path) in str(caught.value)


def test_a_configuration_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none.ini: cannot be read"):
        load_configuration(str(tmp_path / "none.ini"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("target", "ethos-u55-100", "not one of the choices"),
        ("optimise", "speed", "not one of the choices"),
        ("arena_limit", "0", "not between"),
        ("vela_flags", "--config=x", "--config is not among --disable-chaining"),
        ("vela_flags", "--tensor-allocator", "needs a value"),
        ("vela_flags", "--disable-fwd=1", "takes no value"),
        ("vela_flags", "--tensor-allocator=Greedy", "--tensor-allocator=Greedy is not HillClimb or LinearAlloc"),
        ("vela_flags", "--cpu-tensor-alignment=48", "is not a power of two from 16 on"),
        ("vela_flags", "--cpu-tensor-alignment=-16", "is not a power of two"),
        ("vela_flags", "--cop-format=cop1", "is not COP1 or COP2"),
        ("vela_flags", "--experimental-softmax-int16-neg-exp-range=65535", "is not between 0 and 65535"),
        ("vela_flags", "--experimental-softmax-int16-neg-exp-range=x", "is not a number"),
    ],
)
def test_options_are_checked(name: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        EthosUOptions.from_mapping({name: value}, backend="ethosu")
