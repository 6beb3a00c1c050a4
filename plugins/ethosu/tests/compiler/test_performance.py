"""Estimates: Vela's own figures, mapped to the names of the program."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from delegatekit_ethosu import blob
from delegatekit_ethosu.compiler import compile_program
from delegatekit_ethosu.options import EthosUOptions
from delegatekit_ethosu.targets import TARGETS
from delegatekit_toolkit import tosa


def _rows(folder: Path, pattern: str) -> list[dict[str, str]]:
    (path,) = folder.glob(pattern)
    with path.open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("name", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-512"])
def test_the_figures_are_those_of_the_command_line(
    small_program: bytes, command_line: Callable[..., Path], name: str
) -> None:
    folder = command_line(small_program, name, "--verbose-performance")
    (summary,) = _rows(folder, "x_summary_*.csv")
    layers = _rows(folder, "x_per-layer.csv")
    found = compile_program(small_program, EthosUOptions(target=name)).performance
    assert found.latency == pytest.approx(float(summary["inference_time"]), rel=1e-9)
    assert found.cycles == float(summary["cycles_total"])
    assert found.npu_cycles == float(summary["cycles_npu"])
    assert found.macs == int(summary["nn_macs"])
    assert found.sram == float(summary["sram_memory_used"]) * 1024
    stored = [float(summary[f"{kind}_memory_used"]) * 1024 for kind in ("off_chip_flash", "on_chip_flash", "dram")]
    assert sum(stored) == pytest.approx(found.constants + found.dram, abs=0.01)
    assert found.access_cycles["Sram"] == float(summary["cycles_sram_access"])
    assert len(found.layers) == len(layers)
    for layer, row in zip(found.layers, layers, strict=True):
        assert layer.operator == row["NNG Operator"]
        assert [layer.cycles, layer.npu_cycles, layer.macs] == [int(row[k]) for k in ("Op Cycles", "NPU", "MAC Count")]
        assert layer.sram == int(row["Staging Usage"])
        assert layer.accesses["Sram"] == int(row["SRAM AC"])
        if layer.cycles:
            assert 100 * layer.utilization == pytest.approx(float(row["Util% (MAC)"]))


@pytest.mark.parametrize("name", TARGETS)
def test_every_layer_has_a_name_of_the_program(small_graph: tosa.Graph, small_program: bytes, name: str) -> None:
    performance = compile_program(small_program, EthosUOptions(target=name)).performance
    names = {operation.output.name for operation in small_graph.operations}
    assert {layer.name for layer in performance.layers} <= names
    assert {"conv", "depthwise", "sum"} <= {layer.name for layer in performance.layers}
    assert sum(layer.macs for layer in performance.layers) == performance.macs
    assert performance.latency == performance.cycles / performance.clock
    assert 0 < performance.utilization < 1


@pytest.mark.parametrize("name", ["ethos-u55-64", "ethos-u65-512"])
def test_the_estimate_has_the_same_figures(small_program: bytes, name: str) -> None:
    compiled = compile_program(small_program, EthosUOptions(target=name))
    performance, blob_size = compiled.performance, len(blob.pack(compiled))
    found = performance.estimate("5.1.0")
    assert found.source.startswith(f"Vela 5.1.0 for {name}, Ethos_U")
    assert (found.latency, found.cycles, found.macs) == (performance.latency, performance.cycles, performance.macs)
    assert found.memory["sram"] == (compiled.fast_scratch_size or compiled.scratch_size)
    assert (found.memory["dram"] > 0) == ("u65" in name)
    assert blob_size - 400 < found.storage["flash"] < blob_size
    assert [layer.name for layer in found.layers] == [layer.name for layer in performance.layers]
    assert sum(layer.latency for layer in found.layers) == pytest.approx(performance.latency, rel=0.05)
