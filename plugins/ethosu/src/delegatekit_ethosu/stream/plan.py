"""From registers to operations: each OP command becomes one operation with everything it depends on.

Whatever has no known meaning here is refused with its register and value: nothing is skipped.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

import numpy as np

from .commands import Command, CommandStream
from .operations import (
    Activation,
    Convolution,
    Copy,
    Elementwise,
    ElementwiseMode,
    FeatureMap,
    Kernel,
    Operation,
    Pool,
    PoolMode,
    Range,
    Rounding,
    Scale,
    Upscale,
    WeightOrder,
)
from .registers import Registers

#: Commands that only say what has to be finished before what follows: operations are executed one after the other.
WAITS: Final = ("OP_DMA_WAIT", "OP_KERNEL_WAIT")

#: Element types by width (2 bits) and sign, and which of them each operation's input may have.
_WIDTHS: Final = {0: 1, 1: 2, 2: 4}
_BASES: Final = ("BASE0", "BASE1", "BASE2", "BASE3")
#: Bytes that the NPU fetches at once: what it reads as a row of bytes, or in bricks, begins and ends with one.
_UNIT: Final = 16
#: Bit in a DMA region that stands for the internal memory.
_INTERNAL: Final = 1 << 8
_TABLES: Final = range(0x10, 0x18)
_IDENTITY: Final = (1, 0)
_Choice = TypeVar("_Choice", bound=IntEnum)


def plan(stream: CommandStream) -> tuple[Operation, ...]:
    """The operations of a stream in order.

    Raises NotExecutableError for what is not executed here and FormatError for a register that was not set; both say
    where.
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
    kernel, part_kernel_first = _kernel(registers)
    upscale = _choice(Upscale, registers, "IFM_UPSCALE")
    ofm = _ofm(registers)
    ifm = _ifm(registers, ofm, kernel, upscale)
    if depthwise and (part_kernel_first or ifm.shape[2] != ofm.shape[2]):
        raise registers.refuse("a depthwise convolution with another depth, or in another order, is unknown")
    if ifm.dtype.itemsize > 2:
        raise registers.refuse(f"a convolution of {ifm.dtype} is unknown")
    if registers.get("OFM_PRECISION") >> 8 & 1:
        raise registers.refuse("a convolution with one scale for all channels is unknown")
    if _operand_scaling(registers):
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
        _range(registers, "WEIGHT"),
        order,
        _range(registers, "SCALE"),
        _rounding(registers, "OFM_PRECISION"),
        _accumulator(registers),
        _activation(registers, ofm),
    )


def _pool(registers: Registers, command: Command) -> Pool:
    if command.parameter not in PoolMode._value2member_map_:
        raise registers.refuse(f"pooling mode {command.parameter} is unknown")
    mode = PoolMode(command.parameter)
    kernel, part_kernel_first = _kernel(registers)
    upscale = _choice(Upscale, registers, "IFM_UPSCALE")
    ofm = _ofm(registers)
    ifm = _ifm(registers, ofm, kernel, upscale)
    if part_kernel_first or kernel.dilation != (1, 1):
        raise registers.refuse("a pool with dilation, or part kernel first, is unknown")
    if _operand_scaling(registers):
        raise registers.refuse("a pool with scaled operands is unknown")
    window = kernel.size != (1, 1)
    if mode is PoolMode.REDUCE_SUM:
        if window or ofm.shape[2] != 1 or any(kernel.padding) or kernel.stride != (1, 1) or upscale:
            raise registers.refuse("a sum over channels with a window, or with more than one result, is unknown")
    elif ifm.shape[2] != ofm.shape[2]:
        raise registers.refuse(f"a pool of {ifm.shape[2]} channels into {ofm.shape[2]} is unknown")
    rounding = _rounding(registers, "OFM_PRECISION")
    scale: Scale | Range | None = None
    if registers.get("OFM_PRECISION") >> 8 & 1:
        multiplier, shift = registers.scale("OFM_SCALE")
        if mode is not PoolMode.AVERAGE or not window or not any(kernel.padding):
            scale = Scale(multiplier, _shift(registers, shift), rounding)
        elif (multiplier, shift) != _IDENTITY:
            raise registers.refuse("a mean of a padded input with a scale of its own is unknown")
    elif mode is PoolMode.AVERAGE and not window:
        scale = _range(registers, "SCALE")
    else:
        raise registers.refuse(f"{mode.name} with a scale for each channel is unknown")
    _accumulator(registers)
    return Pool(registers.where, mode, ifm, ofm, kernel, upscale, scale, rounding, _activation(registers, ofm))


def _elementwise(registers: Registers, command: Command) -> Elementwise:
    if command.parameter not in ElementwiseMode._value2member_map_:
        raise registers.refuse(f"elementwise mode {command.parameter} is unknown")
    mode = ElementwiseMode(command.parameter)
    if mode in REFUSED_MODES:
        raise registers.refuse(f"elementwise {mode.name} is not executed on the host: {REFUSED_MODES[mode]}")
    if registers.get("IFM_UPSCALE"):
        raise registers.refuse("an elementwise operation with upscaling is unknown")
    ofm = _ofm(registers)
    ifm = _feature_map(registers, "IFM", (*ofm.shape[:2], registers.get("IFM_DEPTH_M1") + 1))
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
        second = _scalar(registers) if broadcast & 0x80 else _feature_map(registers, "IFM2", tuple(shape))
    rounding = _rounding(registers, "OFM_PRECISION")
    scale = None
    scaled = registers.get("OFM_PRECISION") >> 8 & 1
    if mode in SCALED_MODES:
        if not scaled:
            raise registers.refuse(f"elementwise {mode.name} with a scale for each channel is unknown")
        multiplier, shift = registers.scale("OFM_SCALE")
        scale = Scale(multiplier, _shift(registers, shift), rounding)
    elif scaled and registers.scale("OFM_SCALE") != _IDENTITY:
        raise registers.refuse(f"elementwise {mode.name} with a scale is unknown")
    operand_scales = _operand_scales(registers, mode, ifm, second)
    _accumulator(registers)
    activation = _activation(registers, ofm)
    return Elementwise(registers.where, mode, ifm, second, ofm, reverse, operand_scales, scale, rounding, activation)


#: Elementwise operations with one operand, and those whose result is scaled.
UNARY_MODES: Final = (ElementwiseMode.LRELU, ElementwiseMode.ABS, ElementwiseMode.CLZ)
SCALED_MODES: Final = (ElementwiseMode.MUL, ElementwiseMode.ADD, ElementwiseMode.SUB, ElementwiseMode.ABS)
#: What the compiler does not make of any TOSA operator, so that nothing says what its numbers are.
REFUSED_MODES: Final = {ElementwiseMode.LRELU: "no TOSA operator becomes one"}
#: How far the operand that is not scaled is shifted to the left, by the bytes of an element.
_OTHER_SHIFT: Final = {1: 19, 2: 14}


def _operand_scales(
    registers: Registers, mode: ElementwiseMode, ifm: FeatureMap, second: FeatureMap | int | None
) -> tuple[Scale, Scale] | None:
    """Scales of the operands of ADD and SUB, first and second of the computation."""
    which = _operand_scaling(registers)
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
    scaled = Scale(multiplier, _shift(registers, shift), _rounding(registers, "IFM_PRECISION"))
    other = Scale(1 << _OTHER_SHIFT[size], 0, Rounding.NATURAL)
    return (scaled, other) if which == 1 else (other, scaled)


def _operand_scaling(registers: Registers) -> int:
    """Which operand has a scale of 32 bits: 0 none, 1 the first, 2 the second."""
    return registers.get("IFM_PRECISION") >> 8 & 3


def _copy(registers: Registers, command: Command) -> Copy:
    if command.parameter:
        raise registers.refuse(f"DMA channel or mode {command.parameter} is unknown")
    _check_aligned(registers, "DMA0_SRC", "DMA0_DST", "DMA0_LEN")
    source = Range(registers.get("DMA0_SRC_REGION"), registers.get("DMA0_SRC"), registers.get("DMA0_LEN"))
    target = registers.get("DMA0_DST_REGION")
    # Bits 9 and 10 are the number of dimensions: only plain copies exist on this NPU.
    if source.region > 7 or target & ~(_INTERNAL | 7):
        raise registers.refuse(f"DMA from region {source.region:#x} to {target:#x} is unknown")
    return Copy(registers.where, source, None if target & _INTERNAL else target, registers.get("DMA0_DST"))


def _kernel(registers: Registers) -> tuple[Kernel, bool]:
    """The window, and whether weights come part kernel first."""
    bits = registers.get("KERNEL_STRIDE")
    # x and y: the stride's lowest bit, its next one, dilation.
    if bits & ~0b10_0101_1111:
        raise registers.refuse(f"KERNEL_STRIDE {bits:#x} is unknown")
    stride = (1 + (bits >> 1 & 1) + (bits >> 9 & 1) * 2, 1 + (bits & 1) + (bits >> 6 & 1) * 2)
    dilation = (1 + (bits >> 4 & 1), 1 + (bits >> 3 & 1))
    size = []
    for name, step in zip(("KERNEL_HEIGHT_M1", "KERNEL_WIDTH_M1"), dilation, strict=True):
        extent = registers.get(name)
        if extent % step:
            raise registers.refuse(f"{name} {extent} is no multiple of the dilation")
        size.append(extent // step + 1)
    top, left, bottom, right = (registers.get(f"IFM_PAD_{side}") for side in ("TOP", "LEFT", "BOTTOM", "RIGHT"))
    height, width = ((many - 1) * step + 1 for many, step in zip(size, dilation, strict=True))
    if max(top, bottom) >= height or max(left, right) >= width:
        # Vela 5.1 makes such programs of batches: what it takes for padding are elements that it has lost.
        raise registers.refuse(
            f"padding {top}, {left}, {bottom}, {right} of a kernel of {height} by {width} is unknown"
        )
    return Kernel((size[0], size[1]), stride, dilation, (top, left, bottom, right)), bool(bits & 4)


def _ofm(registers: Registers) -> FeatureMap:
    height, width, depth = (registers.get(f"OFM_{side}_M1") + 1 for side in ("HEIGHT", "WIDTH", "DEPTH"))
    return _feature_map(registers, "OFM", (height, width, depth))


def _ifm(registers: Registers, ofm: FeatureMap, kernel: Kernel, upscale: Upscale) -> FeatureMap:
    """The input: its height and width follow from the output's."""
    shape = []
    for axis in range(2):
        extent = (kernel.size[axis] - 1) * kernel.dilation[axis] + 1
        size = (ofm.shape[axis] - 1) * kernel.stride[axis] + extent
        size -= kernel.padding[axis] + kernel.padding[axis + 2]
        shape.append(-(-size // 2) if upscale else size)
    if min(shape) < 1:
        raise registers.refuse(f"the padding leaves no input: {shape[0]} by {shape[1]}")
    return _feature_map(registers, "IFM", (shape[0], shape[1], registers.get("IFM_DEPTH_M1") + 1))


def _feature_map(registers: Registers, name: str, shape: tuple[int, ...]) -> FeatureMap:
    height, width, depth = shape
    dtype, bricks = _type(registers, name)
    point = f"{name}_ZERO_POINT"
    if bricks:
        _check_aligned(registers, *(f"{name}_{part}" for part in (*_BASES, "STRIDE_Y", "STRIDE_C")))
    return FeatureMap(
        name,
        (height, width, depth),
        dtype,
        bricks,
        registers.get(f"{name}_REGION"),
        tuple(registers.get(f"{name}_{base}") for base in _BASES),
        (registers.get(f"{name}_HEIGHT0_M1") + 1, registers.get(f"{name}_HEIGHT1_M1") + 1),
        registers.get(f"{name}_WIDTH0_M1") + 1,
        registers.stride(f"{name}_STRIDE_Y"),
        registers.stride(f"{name}_STRIDE_X"),
        registers.stride(f"{name}_STRIDE_C"),
        registers.signed(point) if dtype.kind == "i" else registers.get(point),
    )


def _type(registers: Registers, name: str) -> tuple[np.dtype[np.generic], bool]:
    """Element type of a feature map, and whether its format is NHCWB16."""
    precision = registers.get(f"{name}_PRECISION")
    # The output's width stands one bit lower, where the inputs have a bit without meaning.
    width = precision >> (1 if name == "OFM" else 2) & 3
    used = 0xC147 if name == "OFM" else 0xC34D
    layout = precision >> 6 & 3
    if width not in _WIDTHS or layout > 1 or precision & ~used:
        raise registers.refuse(f"{name}_PRECISION {precision:#06x} is unknown")
    dtype: np.dtype[np.generic] = np.dtype(f"<{'i' if precision & 1 else 'u'}{_WIDTHS[width]}")
    if dtype == np.uint32:
        raise registers.refuse(f"{name}_PRECISION {precision:#06x}: elements of 32 bits have a sign")
    return dtype, layout == 1


def _scalar(registers: Registers) -> int:
    """The second operand as a number, less its zero point."""
    dtype, _ = _type(registers, "IFM2")
    if dtype.kind == "i":
        return registers.signed("IFM2_SCALAR") - registers.signed("IFM2_ZERO_POINT")
    return registers.get("IFM2_SCALAR") - registers.get("IFM2_ZERO_POINT")


def _activation(registers: Registers, ofm: FeatureMap) -> Activation:
    function = registers.get("ACTIVATION")
    table = function - _TABLES.start if function in _TABLES else None
    if table is None and function:
        raise registers.refuse(f"ACTIVATION {function:#x} is not executed on the host")
    if ofm.dtype == np.int32:
        # The clamp's 16 bits do not reach: the compiler sets them to the ends, and they do nothing.
        if table is not None or (registers.signed("ACTIVATION_MIN"), registers.signed("ACTIVATION_MAX")) != (
            -(1 << 15),
            (1 << 15) - 1,
        ):
            raise registers.refuse("a clamp or a table on 32 bits is unknown")
        return Activation(None, None)
    if table and ofm.dtype.itemsize == 2:
        raise registers.refuse(f"there is one table of 16-bit elements, not number {table}")
    if ofm.dtype == np.uint16:
        return Activation((registers.get("ACTIVATION_MIN"), registers.get("ACTIVATION_MAX")), table)
    return Activation((registers.signed("ACTIVATION_MIN"), registers.signed("ACTIVATION_MAX")), table)


def _accumulator(registers: Registers) -> int:
    """Bits of the accumulators."""
    bits = {0: 32, 1: 40}.get(registers.get("ACC_FORMAT"))
    if bits is None:
        raise registers.refuse(f"ACC_FORMAT {registers.get('ACC_FORMAT')} is unknown")
    return bits


def _range(registers: Registers, name: str) -> Range:
    _check_aligned(registers, f"{name}_BASE", f"{name}_LENGTH")
    return Range(registers.get(f"{name}_REGION"), registers.get(f"{name}_BASE"), registers.get(f"{name}_LENGTH"))


def _check_aligned(registers: Registers, *names: str) -> None:
    for name in names:
        if registers.get(name) % _UNIT:
            raise registers.refuse(f"{name} {registers.get(name)} is no multiple of {_UNIT}")


def _rounding(registers: Registers, name: str) -> Rounding:
    value = registers.get(name) >> 14
    if value not in (Rounding.DOUBLE, Rounding.NATURAL):
        raise registers.refuse(f"rounding mode {value} is not executed on the host")
    return Rounding(value)


def _shift(registers: Registers, shift: int) -> int:
    if shift > 63:
        raise registers.refuse(f"a shift by {shift} is unknown")
    return shift


def _choice(kind: type[_Choice], registers: Registers, name: str) -> _Choice:
    value = registers.get(name)
    if value not in kind._value2member_map_:
        raise registers.refuse(f"{name} {value} is unknown")
    return kind(value)
