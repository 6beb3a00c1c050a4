"""Configuration files in Vela's format."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegatekit_api import OptionError
from delegatekit_ethosu.compiler.configuration import load_configuration


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
