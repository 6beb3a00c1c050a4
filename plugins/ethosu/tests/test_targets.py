"""Accelerators and configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegatekit_api import OptionError
from delegatekit_ethosu.options import EthosUOptions
from delegatekit_ethosu.targets import TARGETS, list_targets, load_configuration
from delegatekit_ethosu.vela import packaged_configuration


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
        ("[System_Config.A]\ncore_clock=fast", "section System_Config.A: could not convert"),
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
    ],
)
def test_options_are_checked(name: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        EthosUOptions.from_mapping({name: value}, backend="ethosu")
