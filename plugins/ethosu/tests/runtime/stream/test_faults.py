"""Damage to a compiled program is detected: a changed register changes the result, or is refused with its position."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from stream_case import INT8, Case
from stream_graphs import draw
from stream_networks import layer, softmax, summed

from delegatekit_api import DelegateKitError, FormatError
from delegatekit_ethosu.blob import Blob, pack, unpack
from delegatekit_ethosu.compiler import compile_program
from delegatekit_ethosu.compiler.vela import vela_version
from delegatekit_ethosu.options import EthosUOptions
from delegatekit_ethosu.runtime.stream import EXECUTED, REFUSED, Machine, NotExecutableError, decode, listing
from delegatekit_ethosu.runtime.stream.registers import SCHEDULING
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import DType, Graph

pytest.importorskip("ethosu.regor", reason="ethos-u-vela is not installed")


def compiled(program: bytes, macs: int = 128) -> Blob:
    return unpack(pack(compile_program(program, EthosUOptions(target=f"ethos-u55-{macs}"))))


@pytest.fixture(scope="module")
def network() -> tuple[Blob, list[np.ndarray]]:
    """Convolutions with all their registers in use, a sum, a maximum, tables, softmax."""
    case = Case(np.random.default_rng(0), Graph("faults"), [])
    image = layer(case, case.input((1, 9, 9, 20)), 24, stride=2, activation=False)
    image = case.table(summed(case, image, layer(case, image, 0, depthwise=True, activation=False)))
    image = case.graph.add(tosa.MaxPool2d((3, 3), (2, 2), (1, 1, 1, 1)), [image], (1, 3, 3, 24), INT8, "most")
    case.graph.output(softmax(case, layer(case, image, 10, (1, 1), activation=False)))
    return compiled(tosa.write(case.graph)), case.inputs


def outcome(blob: Blob, inputs: list[np.ndarray]) -> bytes | str:
    """The outputs' bytes, or the reason of a refusal."""
    try:
        return b"".join(result.tobytes() for result in Machine(blob).run(inputs))
    except DelegateKitError as error:
        return f"{type(error).__name__}: {error}"


def changed(blob: Blob) -> Iterator[tuple[str, Blob]]:
    """The program with each register command's value decremented, and with its lowest bit flipped."""
    for command in decode(blob.command_stream).commands:
        if not command.name.startswith("SET_"):
            continue
        wide = struct.unpack_from("<I", blob.command_stream, command.offset)[0] >> 14 & 1
        value = command.payload if wide else command.parameter
        for other in {value ^ 1, max(value - 1, 0)} - {value}:
            data = bytearray(blob.command_stream)
            struct.pack_into("<I" if wide else "<H", data, command.offset + (4 if wide else 2), other)
            yield command.name.removeprefix("SET_"), replace(blob, command_stream=bytes(data))


#: Registers that may have any value in this program. Its tensors have one tile: tile 1, and the height of its rows, are
#: not used. Accumulators with more bits than needed are equivalent.
_UNUSED = {
    *SCHEDULING,
    *(f"{name}_HEIGHT1_M1" for name in ("IFM", "IFM2", "OFM")),
    "ACC_FORMAT",
}


def test_a_changed_register_is_noticed(network: tuple[Blob, list[np.ndarray]]) -> None:
    """Changed registers with an effect, in at least one of the operations."""
    blob, inputs = network
    right = outcome(blob, inputs)
    assert isinstance(right, bytes) and len(set(right)) > 3
    noticed: dict[str, bool] = {}
    for name, damaged in changed(blob):
        noticed[name] = noticed.get(name, False) or outcome(damaged, inputs) != right
    assert {name for name, found in noticed.items() if not found} == _UNUSED


def test_an_operation_taken_for_another_is_noticed(network: tuple[Blob, list[np.ndarray]]) -> None:
    blob, inputs = network
    right, operations = outcome(blob, inputs), 0
    for command in decode(blob.command_stream).commands:
        if command.name in ("OP_CONV", "OP_DEPTHWISE", "OP_POOL", "OP_ELEMENTWISE", "OP_DMA_START"):
            operations += 1
            for parameter in {command.parameter ^ 1, command.parameter ^ 64}:
                data = bytearray(blob.command_stream)
                struct.pack_into("<H", data, command.offset + 2, parameter)
                assert outcome(replace(blob, command_stream=bytes(data)), inputs) != right, command
    assert operations > 15


def test_damaged_constants_are_noticed(network: tuple[Blob, list[np.ndarray]]) -> None:
    blob, inputs = network
    right, rng = outcome(blob, inputs), np.random.default_rng(0)
    noticed = 0
    for place in rng.choice(len(blob.read_only), 60, replace=False):
        data = bytearray(blob.read_only)
        data[place] ^= 0x10
        noticed += outcome(replace(blob, read_only=bytes(data)), inputs) != right
    # Entries of tables that no value selects, bytes between streams, and channels masked by another one.
    assert noticed > 30


def modified(blob: Blob, register: str, value: int) -> Blob:
    """The program with all settings of a register changed to a value: of their parameter, if it has 16 bits."""
    data, found = bytearray(blob.command_stream), 0
    for command in decode(blob.command_stream).commands:
        if command.name == f"SET_{register}":
            struct.pack_into("<H", data, command.offset + 2, value)
            found += 1
    assert found
    return replace(blob, command_stream=bytes(data))


@pytest.mark.parametrize(
    ("kind", "register", "value", "reason"),
    [
        ("convolution", "KERNEL_STRIDE", 0x20, "KERNEL_STRIDE 0x20 is unknown"),
        ("convolution", "IFM_UPSCALE", 3, "IFM_UPSCALE 3 is unknown"),
        ("convolution", "ACC_FORMAT", 2, "ACC_FORMAT 2 is unknown"),
        ("convolution", "OFM_PRECISION", 0x4001, "rounding mode 1 is not executed"),
        ("convolution", "OFM_PRECISION", 0x8101, "one scale for all channels is unknown"),
        ("convolution", "OFM_PRECISION", 0x8201, "OFM_PRECISION 0x8201 is unknown"),
        ("convolution", "IFM_PRECISION", 0x0009, "a convolution of int32 is unknown"),
        ("convolution", "IFM_PRECISION", 0x0008, "elements of 32 bits have a sign"),
        ("convolution", "IFM_PRECISION", 0x0101, "a convolution with scaled operands is unknown"),
        ("convolution", "IFM_PAD_TOP", 100, "padding 100"),
        ("convolution", "IFM_PAD_RIGHT", 100, "padding .*, 100 of a kernel"),
        ("convolution", "ACTIVATION", 3, "ACTIVATION 0x3 is not executed"),
        ("convolution", "WEIGHT_REGION", 5, r"region 5 \(unknown\) does not exist"),
        ("depthwise", "IFM_DEPTH_M1", 200, "a depthwise convolution with another depth"),
        ("maximum_pool", "OFM_PRECISION", 0x8001, "MAX with a scale for each channel is unknown"),
        ("maximum_pool", "KERNEL_STRIDE", 0x8, "with dilation"),
        ("maximum_pool", "IFM_DEPTH_M1", 200, "a pool of 201 channels into"),
        ("reduced", "OFM_DEPTH_M1", 200, "unknown"),
        ("added", "IFM_PRECISION", 0x8301, "elementwise (ADD|SUB) with operand scaling 3 is unknown"),
        ("added16", "OPA_SCALE", 70, "a shift by 70|scales of both operands"),
        ("multiplied", "IFM_PRECISION", 0x8101, "elementwise MUL with operand scaling 1 is unknown"),
        ("multiplied", "OFM_PRECISION", 0x8001, "elementwise MUL with a scale for each channel"),
        ("multiplied", "IFM2_BROADCAST", 0x100, "IFM2_BROADCAST 0x100 is unknown"),
        ("multiplied", "IFM_UPSCALE", 1, "elementwise operation with upscaling"),
        ("integers", "ACTIVATION_MAX", 100, "a clamp or a table on 32 bits is unknown"),
        ("looked_up", "DMA0_DST_REGION", 0x300, "DMA from region 0x0 to 0x300 is unknown"),
        ("looked_up", "DMA0_SRC_REGION", 0x200, "DMA from region 0x200"),
        ("argmax", "ACTIVATION", 0x11, "one table of 16-bit elements, not number 1"),
    ],
)
def test_what_is_not_known_is_refused_with_its_value(kind: str, register: str, value: int, reason: str) -> None:
    blob = modified(compiled(draw(kind, 0)[0]), register, value)
    with pytest.raises(FormatError, match=reason) as caught:
        Machine(blob)
    assert "byte" in str(caught.value)


@pytest.mark.parametrize(
    ("operation", "parameter", "reason"),
    [
        ("OP_ELEMENTWISE", 5, "LRELU is not executed on the host: no TOSA operator"),
        ("OP_ELEMENTWISE", 10, "elementwise mode 10 is unknown"),
        ("OP_POOL", 3, "pooling mode 3 is unknown"),
        ("OP_DMA_START", 1, "DMA channel or mode 1 is unknown"),
    ],
)
def test_an_operation_that_is_not_known_is_refused(
    network: tuple[Blob, list[np.ndarray]], operation: str, parameter: int, reason: str
) -> None:
    blob, _ = network
    data = bytearray(blob.command_stream)
    for command in decode(blob.command_stream).commands:
        if command.name == operation:
            struct.pack_into("<H", data, command.offset + 2, parameter)
    with pytest.raises(NotExecutableError, match=f"{operation} at byte .*{reason}"):
        Machine(replace(blob, command_stream=bytes(data)))


def test_commands_without_meaning_here_are_refused(network: tuple[Blob, list[np.ndarray]]) -> None:
    blob, _ = network
    waits = [command for command in decode(blob.command_stream).commands if command.name == "OP_DMA_WAIT"]
    for code in (0x001, 0x013):
        data = bytearray(blob.command_stream)
        struct.pack_into("<H", data, waits[0].offset, code)
        with pytest.raises(NotExecutableError, match=r"OP_(IRQ|PMU_MASK) at byte .* is not executed on the host"):
            Machine(replace(blob, command_stream=bytes(data)))


def test_a_register_that_was_never_set_is_refused(network: tuple[Blob, list[np.ndarray]]) -> None:
    blob, _ = network
    data = bytearray(blob.command_stream)
    first = next(command for command in decode(blob.command_stream).commands if command.name == "SET_IFM_REGION")
    struct.pack_into("<H", data, first.offset, 0x12F)
    with pytest.raises(FormatError, match="register IFM_REGION was not set"):
        Machine(replace(blob, command_stream=bytes(data)))


def test_padding_that_hides_lost_rows_is_refused() -> None:
    """Vela 5.1's program for a batch and a 1 by 1 convolution with a clamp: it reads the first row only."""
    case = Case(np.random.default_rng(0), Graph("batch"), [])
    bias = case.graph.constant(np.zeros(8), DType.INT32)
    operands = [case.input((4, 1, 1, 16)), case.weights(8, 1, 1, 16), bias, case.point(0), case.point(0)]
    sums = case.graph.add(tosa.Conv2d(), operands, (4, 1, 1, 8), DType.INT32, "conv")
    result = case.rescale(sums, INT8, 0.01)
    case.graph.output(case.graph.add(tosa.Clamp(-20, 30), [result], (4, 1, 1, 8), INT8, "clamp"))
    if not vela_version().startswith("5.1."):
        pytest.skip("a defect of Vela 5.1")
    with pytest.raises(NotExecutableError, match="padding 0, 0, 2, 0 of a kernel of 1 by 1 is unknown"):
        Machine(compiled(tosa.write(case.graph)))


def test_a_table_outside_the_internal_memory_is_refused() -> None:
    """Vela's program for a table after a transposition, for the sizes with 16 KiB."""
    case = Case(np.random.default_rng(0), Graph("table"), [])
    moved = case.graph.add(tosa.Transpose((0, 3, 1, 2)), [case.input((1, 8, 8, 4))], (1, 4, 8, 8), INT8, "moved")
    case.graph.output(case.table(moved))
    program = tosa.write(case.graph)
    with pytest.raises(FormatError, match=r"bytes 16384 to 16640 are not among the tables .*, 14336 to 16384"):
        Machine(compiled(program, 64))
    Machine(compiled(program, 128))


def test_the_listing_has_all_that_is_executed_and_the_reasons_for_the_rest() -> None:
    text = listing()
    assert text.count("| yes |") == len(EXECUTED)
    assert all(f"| {name} | no: {reason} |" in text for name, reason in REFUSED.items())
