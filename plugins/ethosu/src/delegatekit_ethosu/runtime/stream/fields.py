"""Parts of operations from registers: feature maps, kernels, scales, activations, each with its fields checked."""

from __future__ import annotations

from typing import Final

import numpy as np

from .operations import Activation, FeatureMap, Kernel, Range, Rounding, Upscale
from .registers import Registers

#: Bytes of an element by the two bits of its width.
_WIDTHS: Final = {0: 1, 1: 2, 2: 4}
#: Maximum elements of a feature map, with its padding: far more than fits the memory of such a system.
_ELEMENTS: Final = 1 << 27
#: Maximum elements of a window: the compiler's limit.
_WINDOW: Final = 1 << 16
_BASES: Final = ("BASE0", "BASE1", "BASE2", "BASE3")
#: Bytes of one NPU fetch: rows of bytes and bricks begin and end at multiples of it.
_UNIT: Final = 16
#: Values of ACTIVATION that select a table.
_TABLES: Final = range(0x10, 0x18)


def read_kernel(registers: Registers) -> tuple[Kernel, bool]:
    """The window, and True if weights come part kernel first."""
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
            raise registers.refuse(f"{name} {extent} is not a multiple of the dilation")
        size.append(extent // step + 1)
    top, left, bottom, right = (registers.get(f"IFM_PAD_{side}") for side in ("TOP", "LEFT", "BOTTOM", "RIGHT"))
    if size[0] * size[1] > _WINDOW:
        raise registers.refuse(f"a kernel of {size[0]} by {size[1]} is too large")
    height, width = ((many - 1) * step + 1 for many, step in zip(size, dilation, strict=True))
    if max(top, bottom) >= height or max(left, right) >= width:
        # Vela 5.1 makes such programs from batches: what it treats as padding are elements that it has lost.
        raise registers.refuse(
            f"padding {top}, {left}, {bottom}, {right} of a kernel of {height} by {width} is unknown"
        )
    return Kernel((size[0], size[1]), stride, dilation, (top, left, bottom, right)), bool(bits & 4)


def read_ofm(registers: Registers) -> FeatureMap:
    """The output: its sizes are in registers."""
    height, width, depth = (registers.get(f"OFM_{side}_M1") + 1 for side in ("HEIGHT", "WIDTH", "DEPTH"))
    return read_feature_map(registers, "OFM", (height, width, depth))


def read_ifm(registers: Registers, ofm: FeatureMap, kernel: Kernel, upscale: Upscale) -> FeatureMap:
    """The input: its height and width follow from the output's."""
    shape, whole = [], registers.get("IFM_DEPTH_M1") + 1
    for axis in range(2):
        extent = (kernel.size[axis] - 1) * kernel.dilation[axis] + 1
        padded = (ofm.shape[axis] - 1) * kernel.stride[axis] + extent
        size = padded - kernel.padding[axis] - kernel.padding[axis + 2]
        whole *= padded
        shape.append(-(-size // 2) if upscale else size)
    if whole > _ELEMENTS:
        raise registers.refuse(f"an input of {whole} elements with its padding is too large")
    if min(shape) < 1:
        raise registers.refuse(f"the padding leaves no input: {shape[0]} by {shape[1]}")
    return read_feature_map(registers, "IFM", (shape[0], shape[1], registers.get("IFM_DEPTH_M1") + 1))


def read_feature_map(registers: Registers, name: str, shape: tuple[int, ...]) -> FeatureMap:
    """The feature map `name` (IFM, IFM2, OFM) of a shape [height, width, depth]."""
    height, width, depth = shape
    dtype, bricks = _type(registers, name)
    if height * width * depth > _ELEMENTS:
        raise registers.refuse(f"{name} of {height} by {width} by {depth} elements is too large")
    if bricks:
        check_aligned(registers, *(f"{name}_{part}" for part in (*_BASES, "STRIDE_Y", "STRIDE_C")))
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
        registers.number(f"{name}_ZERO_POINT", dtype),
    )


def _type(registers: Registers, name: str) -> tuple[np.dtype[np.generic], bool]:
    """Element type of a feature map, and True if its format is NHCWB16."""
    precision = registers.get(f"{name}_PRECISION")
    # The output's width is one bit lower, where the inputs have a bit without meaning.
    width = precision >> (1 if name == "OFM" else 2) & 3
    used = 0xC147 if name == "OFM" else 0xC34D
    layout = precision >> 6 & 3
    if width not in _WIDTHS or layout > 1 or precision & ~used:
        raise registers.refuse(f"{name}_PRECISION {precision:#06x} is unknown")
    dtype: np.dtype[np.generic] = np.dtype(f"<{'i' if precision & 1 else 'u'}{_WIDTHS[width]}")
    if dtype == np.uint32:
        raise registers.refuse(f"{name}_PRECISION {precision:#06x}: elements of 32 bits have a sign")
    return dtype, layout == 1


def read_scalar(registers: Registers) -> int:
    """The second operand as a number, minus its zero point."""
    dtype, _ = _type(registers, "IFM2")
    return registers.number("IFM2_SCALAR", dtype) - registers.number("IFM2_ZERO_POINT", dtype)


def read_activation(registers: Registers, ofm: FeatureMap) -> Activation:
    """Clamp and table."""
    function = registers.get("ACTIVATION")
    table = function - _TABLES.start if function in _TABLES else None
    if table is None and function:
        raise registers.refuse(f"ACTIVATION {function:#x} is not executed on the host")
    if ofm.dtype == np.int32:
        # The clamp's 16 bits are too few: the compiler sets them to the ends, and they have no effect.
        if table is not None or (registers.signed("ACTIVATION_MIN"), registers.signed("ACTIVATION_MAX")) != (
            -(1 << 15),
            (1 << 15) - 1,
        ):
            raise registers.refuse("a clamp or a table on 32 bits is unknown")
        return Activation(None, None)
    if table and ofm.dtype.itemsize == 2:
        raise registers.refuse(f"there is one table of 16-bit elements, not number {table}")
    low, high = (registers.number(f"ACTIVATION_{end}", ofm.dtype) for end in ("MIN", "MAX"))
    return Activation((low, high), table)


def read_accumulator_bits(registers: Registers) -> int:
    """Bits of the accumulators."""
    bits = {0: 32, 1: 40}.get(registers.get("ACC_FORMAT"))
    if bits is None:
        raise registers.refuse(f"ACC_FORMAT {registers.get('ACC_FORMAT')} is unknown")
    return bits


def read_range(registers: Registers, name: str) -> Range:
    """The location of the weights or scales."""
    check_aligned(registers, f"{name}_BASE", f"{name}_LENGTH")
    return Range(registers.get(f"{name}_REGION"), registers.get(f"{name}_BASE"), registers.get(f"{name}_LENGTH"))


def check_aligned(registers: Registers, *names: str) -> None:
    """Refuse an address, stride or length that is not a multiple of the memory unit."""
    for name in names:
        if registers.get(name) % _UNIT:
            raise registers.refuse(f"{name} {registers.get(name)} is not a multiple of {_UNIT}")


def read_rounding(registers: Registers, name: str) -> Rounding:
    """The rounding mode in a precision register."""
    value = registers.get(name) >> 14
    if value not in (Rounding.DOUBLE, Rounding.NATURAL):
        raise registers.refuse(f"rounding mode {value} is not executed on the host")
    return Rounding(value)


def check_shift(registers: Registers, shift: int) -> int:
    """The shift of a scale, which has six bits."""
    if shift > 63:
        raise registers.refuse(f"a shift by {shift} is unknown")
    return shift


def read_upscale(registers: Registers) -> Upscale:
    """The upscaling mode of the input."""
    value = registers.get("IFM_UPSCALE")
    if value not in Upscale._value2member_map_:
        raise registers.refuse(f"IFM_UPSCALE {value} is unknown")
    return Upscale(value)


def read_operand_scaling(registers: Registers) -> int:
    """The operand that has a scale of 32 bits: 0 none, 1 the first, 2 the second."""
    return registers.get("IFM_PRECISION") >> 8 & 3
