"""Compiled operators in many shapes, executed: each result equals that of Arm's reference model, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from stream_features import features
from stream_graphs import KINDS, draw
from stream_networks import NETWORKS, build

from delegatekit_api import ExecutionError
from delegatekit_ethosu.blob import Blob, pack, unpack
from delegatekit_ethosu.compiler import compile_program
from delegatekit_ethosu.options import EthosUOptions
from delegatekit_ethosu.runtime import stream
from delegatekit_toolkit.tosa import reference

pytest.importorskip("tosa_reference_model", reason="tosa-tools is not installed")
pytest.importorskip("ethosu.regor", reason="ethos-u-vela is not installed")

_MACS = (32, 64, 128, 256)
_LIMIT = 20000


def compiled(program: bytes, macs: int, optimize: str = "performance", limit: int | None = None) -> Blob:
    """A program's blob, packed and read again."""
    options = EthosUOptions(target=f"ethos-u55-{macs}", optimize=optimize, arena_limit=limit)
    return unpack(pack(compile_program(program, options)))


def check(program: bytes, inputs: list[np.ndarray], blob: Blob, macs: int) -> None:
    wanted = reference.run(program, inputs)
    found = stream.Machine(blob).run(inputs)
    assert len(found) == len(wanted)
    for result, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(result.reshape(expected.shape), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_computes_what_the_reference_model_does(kind: str) -> None:
    for seed in range(8):
        program, inputs = draw(kind, seed)
        check(program, inputs, compiled(program, _MACS[seed % 4]), _MACS[seed % 4])


@pytest.mark.slow
@pytest.mark.parametrize("macs", _MACS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_computes_it_in_many_more_shapes(kind: str, macs: int) -> None:
    for seed in range(1000, 1100):
        program, inputs = draw(kind, seed)
        check(program, inputs, compiled(program, macs), macs)


@pytest.mark.sweep
@pytest.mark.parametrize("macs", _MACS)
@pytest.mark.parametrize("name", ["digits", "keyword_spotting", "mobilenet_v2", "u_net"])
def test_a_network_computes_what_the_reference_model_does(name: str, macs: int) -> None:
    program, inputs = build(name)
    check(program, inputs, compiled(program, macs), macs)


@pytest.mark.parametrize("name", ["digits", "keyword_spotting", "mobilenet_v2", "u_net"])
def test_a_network_in_little_memory_computes_it(name: str) -> None:
    program, inputs = build(name)
    blob = compiled(program, 128, "size")
    check(program, inputs, blob, 128)
    if name == "mobilenet_v2":
        # Stripes with rolling buffers: these save memory here.
        assert blob.scratch_size < compiled(program, 128).scratch_size / 2


@pytest.mark.parametrize("seed", range(6))
def test_a_chain_in_little_memory_computes_what_the_reference_model_does(seed: int) -> None:
    program, inputs = build("drawn", seed)
    for macs, optimize, limit in zip(_MACS, ("performance", "size", "performance", "size"), (None, 1), strict=False):
        check(program, inputs, compiled(program, macs, optimize, limit), macs)
    check(program, inputs, compiled(program, 256, "performance", _LIMIT), 256)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_chains_in_all_memories_compute_it(seed: int) -> None:
    program, inputs = build("drawn", seed)
    for index, (optimize, limit) in enumerate(
        (("performance", None), ("performance", _LIMIT), ("size", None), ("size", 1))
    ):
        macs = _MACS[(seed + index) % 4]
        check(program, inputs, compiled(program, macs, optimize, limit), macs)


def _programs() -> Iterator[Blob]:
    for kind in KINDS:
        for seed in range(12):
            yield compiled(draw(kind, seed)[0], _MACS[seed % 4])
    for name in NETWORKS:
        yield compiled(build(name)[0], 128, "size")


def test_the_list_of_what_is_executed_is_what_these_tests_execute() -> None:
    """Each listed feature occurs in the programs above, and no other one does."""
    used = {name for blob in _programs() for item in stream.Machine(blob).operations for name in features(item)}
    assert used == set(stream.EXECUTED)
    assert not used & set(stream.REFUSED)


def test_nothing_is_left_over_from_what_was_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    program, inputs = build("drawn", 1)
    blob = compiled(program, 128, "size")
    machine = stream.Machine(blob)
    (before,) = machine.run(inputs)
    monkeypatch.setattr("delegatekit_ethosu.runtime.stream.machine._DIRT", 0x3C)
    (after,) = machine.run(inputs)
    np.testing.assert_array_equal(before, after)


def test_inputs_of_another_size_are_refused() -> None:
    program, inputs = draw("added_plainly", 0)
    assert inputs[0].size % 2 == 0
    machine = stream.Machine(compiled(program, 64))
    with pytest.raises(ExecutionError, match="takes 2 inputs, got 1"):
        machine.run(inputs[:1])
    for wrong in (inputs[0].astype(np.int16), inputs[0][..., :-1], np.zeros(inputs[0].size // 2, np.int16)):
        with pytest.raises(ExecutionError, match="input 0 of the Ethos-U program: takes"):
            machine.run([wrong, inputs[1]])
