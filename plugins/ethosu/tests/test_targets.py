"""Accelerators."""

from __future__ import annotations

import pytest

from delegatekit_ethosu.compiler.configuration import load_configuration
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


@pytest.mark.parametrize("name", TARGETS)
def test_the_defaults_of_a_target_are_stocks(name: str) -> None:
    stock = pytest.importorskip("executorch.backends.arm.ethosu.compile_spec", exc_type=ImportError)
    pair = stock.EthosUCompileSpec._default_system_config_and_memory_mode(name, None, None)
    assert pair == (TARGETS[name].system_config, TARGETS[name].memory_mode)
