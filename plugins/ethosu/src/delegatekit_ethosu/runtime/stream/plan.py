"""From registers to operations: each OP command becomes one operation with everything it depends on.

Anything of unknown meaning is refused with its register and value: nothing is skipped.
"""

from __future__ import annotations

from typing import Final

from .commands import Command, CommandStream
from .fields import (
    check_aligned,
    check_shift,
    read_accumulator_bits,
    read_activation,
    read_feature_map,
    read_ifm,
    read_kernel,
    read_ofm,
    read_operand_scaling,
    read_range,
    read_rounding,
    read_scalar,
    read_upscale,
)
from .operations import (
    Convolution,
    Copy,
    Elementwise,
    ElementwiseMode,
    FeatureMap,
    Operation,
    Pool,
    PoolMode,
    Range,
    Rounding,
    Scale,
    WeightOrder,
)
from .registers import Registers

#: Commands that only define what must finish before what follows: operations are executed in order.
WAITS: Final = ("OP_DMA_WAIT", "OP_KERNEL_WAIT")

#: The DMA region number of the internal memory.
_INTERNAL: Final = 1 << 8 | 3
_IDENTITY: Final = (1, 0)
#: Elementwise operations with one operand, and those whose result is scaled.
UNARY_MODES: Final = (ElementwiseMode.LRELU, ElementwiseMode.ABS, ElementwiseMode.CLZ)
SCALED_MODES: Final = (ElementwiseMode.MUL, ElementwiseMode.ADD, ElementwiseMode.SUB, ElementwiseMode.ABS)
#: Modes that the compiler emits for no TOSA operator, so that nothing defines their numbers.
REFUSED_MODES: Final = {ElementwiseMode.LRELU: "no TOSA operator becomes one"}
#: The left shift of the operand that is not scaled, by the bytes of an element.
_OTHER_SHIFT: Final = {1: 19, 2: 14}


def plan(stream: CommandStream) -> tuple[Operation, ...]:
    """The operations of a stream in order.

    Raises NotExecutableError for features that are not executed here and FormatError for a register that was not set;
    both give the position.
    """
    registers = Registers()
    operations: list[Operation] = []
    for command in stream.commands:
        registers.where = f"{command.name} at byte {command.offset} of the command stream"
        if command.name.startswith("SET_"):
            registers.set(command)
        elif command.name == "OP_STOP":
            break
        elif command.name not in WAITS:
            operations.append(_operation(command, registers, stream.configuration.macs))
    return tuple(operations)


def _operation(command: Command, registers: Registers, macs: int) -> Operation:
    match command.name:
        case "OP_CONV" | "OP_DEPTHWISE":
            return _convolution(registers, command, macs)
        case "OP_POOL":
            return _pool(registers, command)
        case "OP_ELEMENTWISE":
            return _elementwise(registers, command)
        case "OP_DMA_START":
            return _copy(registers, command)
    raise registers.refuse("is not executed on the host")


def _convolution(registers: Registers, command: Command, macs: int) -> Convolution:
    depthwise = command.name == "OP_DEPTHWISE"
    if command.parameter:
        raise registers.refuse(f"parameter {command.parameter} is unknown")
    kernel, part_kernel_first = read_kernel(registers)
    upscale = read_upscale(registers)
    ofm = read_ofm(registers)
    ifm = read_ifm(registers, ofm, kernel, upscale)
    if depthwise and (part_kernel_first or ifm.shape[2] != ofm.shape[2]):
        raise registers.refuse("a depthwise convolution with another depth, or in another order, is unknown")
    if ifm.dtype.itemsize > 2:
        raise registers.refuse(f"a convolution of {ifm.dtype} is unknown")
    if registers.get("OFM_PRECISION") >> 8 & 1:
        raise registers.refuse("a convolution with one scale for all channels is unknown")
    if read_operand_scaling(registers):
        raise registers.refuse("a convolution with scaled operands is unknown")
    order = WeightOrder(
        macs,
        (ofm.shape[2], *kernel.size, 1 if depthwise else ifm.shape[2]),
        kernel.dilation,
        registers.get("OFM_BLK_DEPTH_M1") + 1,
        8 * ifm.dtype.itemsize,
        depthwise,
        part_kernel_first,
    )
    return Convolution(
        registers.where,
        ifm,
        ofm,
        kernel,
        upscale,
        read_range(registers, "WEIGHT"),
        order,
        read_range(registers, "SCALE"),
        read_rounding(registers, "OFM_PRECISION"),
        read_accumulator_bits(registers),
        read_activation(registers, ofm),
    )


def _pool(registers: Registers, command: Command) -> Pool:
    if command.parameter not in PoolMode._value2member_map_:
        raise registers.refuse(f"pooling mode {command.parameter} is unknown")
    mode = PoolMode(command.parameter)
    kernel, part_kernel_first = read_kernel(registers)
    upscale = read_upscale(registers)
    ofm = read_ofm(registers)
    ifm = read_ifm(registers, ofm, kernel, upscale)
    if part_kernel_first or kernel.dilation != (1, 1):
        raise registers.refuse("a pool with dilation, or part kernel first, is unknown")
    if read_operand_scaling(registers):
        raise registers.refuse("a pool with scaled operands is unknown")
    window = kernel.size != (1, 1)
    if mode is PoolMode.REDUCE_SUM:
        if window or ofm.shape[2] != 1 or any(kernel.padding) or kernel.stride != (1, 1) or upscale:
            raise registers.refuse("a sum over channels with a window, or with more than one result, is unknown")
    elif ifm.shape[2] != ofm.shape[2]:
        raise registers.refuse(f"a pool of {ifm.shape[2]} channels into {ofm.shape[2]} is unknown")
    rounding = read_rounding(registers, "OFM_PRECISION")
    scale: Scale | Range | None = None
    if registers.get("OFM_PRECISION") >> 8 & 1:
        multiplier, shift = registers.scale("OFM_SCALE")
        if mode is not PoolMode.AVERAGE or not window or not any(kernel.padding):
            scale = Scale(multiplier, check_shift(registers, shift), rounding)
        elif (multiplier, shift) != _IDENTITY:
            raise registers.refuse("a mean of a padded input with a scale of its own is unknown")
    elif mode is PoolMode.AVERAGE and not window:
        scale = read_range(registers, "SCALE")
    else:
        raise registers.refuse(f"{mode.name} with a scale for each channel is unknown")
    read_accumulator_bits(registers)
    return Pool(registers.where, mode, ifm, ofm, kernel, upscale, scale, rounding, read_activation(registers, ofm))


def _elementwise(registers: Registers, command: Command) -> Elementwise:
    if command.parameter not in ElementwiseMode._value2member_map_:
        raise registers.refuse(f"elementwise mode {command.parameter} is unknown")
    mode = ElementwiseMode(command.parameter)
    if mode in REFUSED_MODES:
        raise registers.refuse(f"elementwise {mode.name} is not executed on the host: {REFUSED_MODES[mode]}")
    if registers.get("IFM_UPSCALE"):
        raise registers.refuse("an elementwise operation with upscaling is unknown")
    ofm = read_ofm(registers)
    ifm = read_feature_map(registers, "IFM", (*ofm.shape[:2], registers.get("IFM_DEPTH_M1") + 1))
    if ifm.shape != ofm.shape:
        raise registers.refuse(f"{ifm.shape[2]} channels into {ofm.shape[2]} elementwise are unknown")
    second: FeatureMap | int | None = None
    reverse = False
    if mode not in UNARY_MODES:
        broadcast = registers.get("IFM2_BROADCAST")
        if broadcast & ~0xC7 or (broadcast & 0x80 and broadcast & 7):
            raise registers.refuse(f"IFM2_BROADCAST {broadcast:#x} is unknown")
        reverse = bool(broadcast & 0x40)
        shape = [1 if broadcast >> axis & 1 else ofm.shape[axis] for axis in range(3)]
        second = read_scalar(registers) if broadcast & 0x80 else read_feature_map(registers, "IFM2", tuple(shape))
    rounding = read_rounding(registers, "OFM_PRECISION")
    scale = None
    if mode in SCALED_MODES:
        if not registers.get("OFM_PRECISION") >> 8 & 1:
            raise registers.refuse(f"elementwise {mode.name} with a scale for each channel is unknown")
        multiplier, shift = registers.scale("OFM_SCALE")
        scale = Scale(multiplier, check_shift(registers, shift), rounding)
    elif registers.scale("OFM_SCALE") != _IDENTITY:
        raise registers.refuse(f"elementwise {mode.name} with a scale is unknown")
    operand_scales = _operand_scales(registers, mode, ifm, second)
    read_accumulator_bits(registers)
    activation = read_activation(registers, ofm)
    return Elementwise(registers.where, mode, ifm, second, ofm, reverse, operand_scales, scale, rounding, activation)


def _operand_scales(
    registers: Registers, mode: ElementwiseMode, ifm: FeatureMap, second: FeatureMap | int | None
) -> tuple[Scale, Scale] | None:
    """Scales of the operands of ADD and SUB, first and second of the computation."""
    which = read_operand_scaling(registers)
    added = mode in (ElementwiseMode.ADD, ElementwiseMode.SUB)
    if not added and which == 0:
        return None
    if not added or which > 2:
        raise registers.refuse(f"elementwise {mode.name} with operand scaling {which} is unknown")
    multiplier, shift = registers.scale("OPA_SCALE")
    if which == 0:
        if shift or multiplier >> 16 or registers.scale("OPB_SCALE") != (multiplier, 0):
            raise registers.refuse("scales of both operands that differ, or have more than 16 bits, are unknown")
        both = Scale(multiplier, 0, Rounding.NATURAL)
        return None if multiplier == 1 else (both, both)
    size = ifm.dtype.itemsize
    if size not in _OTHER_SHIFT or (isinstance(second, FeatureMap) and second.dtype.itemsize != size):
        raise registers.refuse(f"operand scaling of {ifm.dtype} is unknown")
    scaled = Scale(multiplier, check_shift(registers, shift), read_rounding(registers, "IFM_PRECISION"))
    other = Scale(1 << _OTHER_SHIFT[size], 0, Rounding.NATURAL)
    return (scaled, other) if which == 1 else (other, scaled)


def _copy(registers: Registers, command: Command) -> Copy:
    if command.parameter:
        raise registers.refuse(f"DMA channel or mode {command.parameter} is unknown")
    check_aligned(registers, "DMA0_SRC", "DMA0_DST", "DMA0_LEN")
    source = Range(registers.get("DMA0_SRC_REGION"), registers.get("DMA0_SRC"), registers.get("DMA0_LEN"))
    target = registers.get("DMA0_DST_REGION")
    # Bits 9 and 10 are the number of dimensions: only plain copies exist on this NPU.
    if source.region > 7 or not (target <= 7 or target == _INTERNAL):
        raise registers.refuse(f"DMA from region {source.region:#x} to {target:#x} is unknown")
    return Copy(registers.where, source, None if target == _INTERNAL else target, registers.get("DMA0_DST"))
