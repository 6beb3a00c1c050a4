"""Vela in process: the bytes of its command line and of stock, settings passed to it, errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegatekit_api import LoweringError, OptionError
from delegatekit_ethosu import blob
from delegatekit_ethosu.compiler import compile_program, regor
from delegatekit_ethosu.compiler.vela import vela_version
from delegatekit_ethosu.options import EthosUOptions
from delegatekit_ethosu.targets import TARGETS
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import DType


@pytest.mark.parametrize(
    ("target", "flags", "options"),
    [
        ("ethos-u55-128", [], {}),
        ("ethos-u65-512", [], {}),
        ("ethos-u85-256", [], {}),
        ("ethos-u55-32", ["--optimise=Size"], {"optimize": "size"}),
        ("ethos-u55-256", ["--arena-cache-size=4096"], {"arena_limit": 4096}),
        (
            "ethos-u55-64",
            ["--disable-cascading", "--disable-buffering", "--tensor-allocator=LinearAlloc", "--cop-format=COP2"],
            {},
        ),
    ],
)
def test_the_bytes_are_those_of_the_command_line(
    small_program: bytes, command_line: Callable[..., Path], target: str, flags: list[str], options: dict[str, Any]
) -> None:
    given = tuple(flags) if not options else ()
    compiled = compile_program(small_program, EthosUOptions(target=target, vela_flags=given, **options))
    with np.load(command_line(small_program, target, *flags) / "x_vela.npz") as stored:
        want = {name: stored[name] for name in stored.files if "quantization" not in name}
    assert compiled.command_stream == want["cmd_data"].tobytes()
    assert compiled.read_only == want["weight_data"].tobytes()
    assert compiled.scratch_size == want["scratch_shape"][0]
    assert compiled.fast_scratch_size == want["scratch_fast_shape"][0]
    for bindings, name in ((compiled.inputs, "input"), (compiled.outputs, "output")):
        assert [list(item.shape) for item in bindings] == want[f"{name}_shape"].tolist()
        assert [item.address for item in bindings] == want[f"{name}_offset"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_the_blob_is_stocks(stock_files: Path, target: str) -> None:
    program, want = ((stock_files / f"{target}.{kind}").read_bytes() for kind in ("tosa", "bin"))
    options = EthosUOptions(target=target)
    assert blob.pack(compile_program(program, options)) == want
    # Nor does our own writer change anything that Vela reads.
    assert blob.pack(compile_program(tosa.write(tosa.read(program)), options)) == want
    assert blob.pack(blob.unpack(want)) == want


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_compiles_and_twice_the_same(small_program: bytes, target: str) -> None:
    options = EthosUOptions(target=target)
    compiled = compile_program(small_program, options)
    assert compiled.vela_version == vela_version() != "unknown"
    assert compiled.performance.cpu_operators == 0
    assert (compiled.fast_scratch_size > 0) == ("u65" in target)
    assert blob.pack(compile_program(small_program, options)) == blob.pack(compiled)


def test_nothing_is_printed(small_program: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    compile_program(small_program)
    assert capfd.readouterr() == ("", "")


def test_what_the_compiler_prints_goes_to_stderr(
    small_program: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(regor._SETTINGS["scheduler"], "tensor_allocator", "Unknown")
    compile_program(small_program)
    captured = capfd.readouterr()
    assert captured.out == "" and "Unrecognised allocator value Unknown" in captured.err


@pytest.mark.parametrize(
    "flag", ["--tensor-allocator=LinearAlloc", "--cpu-tensor-alignment=64", "--cop-format=COP2", "--disable-cascading"]
)
def test_flags_that_are_allowed_are_known_to_the_compiler(
    small_program: bytes, flag: str, capfd: pytest.CaptureFixture[str]
) -> None:
    compile_program(small_program, EthosUOptions.from_mapping({"vela_flags": flag}, backend="ethosu"))
    assert capfd.readouterr() == ("", "")


def test_a_configuration_of_ones_own_sets_the_clock(small_program: bytes, tmp_path: Path) -> None:
    from delegatekit_ethosu.compiler.vela import packaged_configuration

    path = tmp_path / "mine.ini"
    text = packaged_configuration().read_text()
    text = text.replace("Ethos_U55_High_End_Embedded", "Ethos_U55_Board")
    path.write_text(text)
    options = EthosUOptions(config=str(path), system_config="Ethos_U55_Board")
    plain, same = compile_program(small_program), compile_program(small_program, options)
    assert same.command_stream == plain.command_stream
    assert same.performance.latency == plain.performance.latency
    path.write_text(text.replace("core_clock=500e6", "core_clock=250e6"))
    slow = compile_program(small_program, options).performance
    assert (slow.clock, slow.latency) == (250e6, slow.cycles / 250e6)
    assert slow.latency > 1.5 * plain.performance.latency
    with pytest.raises(OptionError, match=r"no system configuration 'Ethos_U55_High_End_Embedded'\n.*U55_Board"):
        compile_program(small_program, EthosUOptions(config=str(path)))


def test_a_system_whose_name_misleads_vela_is_refused(small_program: bytes) -> None:
    with pytest.raises(OptionError, match=r"ethos-u55-128: Vela would take Ethos_U65_Embedded for another family's"):
        compile_program(small_program, EthosUOptions(system_config="Ethos_U65_Embedded"))
    options = EthosUOptions(target="ethos-u85-256", system_config="Ethos_U55_Deep_Embedded")
    with pytest.raises(
        OptionError, match=r"Ethos_U55_Deep_Embedded for another family's\n.*there are Ethos_U65_Emb.*U85_SYS_"
    ):
        compile_program(small_program, options)


def test_what_vela_refuses_is_a_lowering_error() -> None:
    graph = tosa.Graph()
    a, b = (graph.input(name, (1, 4), DType.INT32) for name in "ab")
    graph.output(graph.add(tosa.BitwiseAnd(), [a, b], (1, 4), DType.INT32, "both"))
    program = tosa.write(graph)
    with pytest.raises(LoweringError, match=r"(?s)Vela 5\..*, ethos-u55-128: .*\(And\) could not run on NPU"):
        compile_program(program, EthosUOptions(target="ethos-u55-128"))
    assert compile_program(program, EthosUOptions(target="ethos-u85-128")).command_stream
    with pytest.raises(LoweringError, match="Buffer contents inconsistent"):
        compile_program(program[: len(program) // 2])
    with pytest.raises(LoweringError, match="more than the accelerator addresses"):
        compile_program(program, EthosUOptions(arena_limit=1 << 33))
