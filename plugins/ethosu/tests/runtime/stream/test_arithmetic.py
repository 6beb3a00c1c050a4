"""Scaling, rounding, tables and feature maps, each compared with a few lines of plain Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegatekit_api import ExecutionError, FormatError
from delegatekit_ethosu.runtime.stream.arithmetic import finish, scale
from delegatekit_ethosu.runtime.stream.memory import Memory
from delegatekit_ethosu.runtime.stream.operations import Activation, FeatureMap, Range, Rounding
from delegatekit_ethosu.runtime.stream.pooling import reciprocal

_MAP = FeatureMap(
    name="OFM",
    shape=(5, 7, 35),
    dtype=np.dtype(np.int8),
    bricks=False,
    region=1,
    bases=(0, 0, 0, 0),
    tile_heights=(5, 5),
    tile_width=7,
    stride_y=7 * 35,
    stride_x=35,
    stride_c=1,
    zero_point=0,
)


def exact(value: int, multiplier: int, shift: int, rounding: Rounding) -> int:
    """TOSA's apply_scale_32, in integers of any size."""
    half = 1 << (shift - 1) if shift else 0
    if rounding is Rounding.DOUBLE and shift > 31:
        half += (1 << 30) if value >= 0 else -(1 << 30)
    return (value * multiplier + half) >> shift


@pytest.mark.parametrize("rounding", [Rounding.NATURAL, Rounding.DOUBLE])
@pytest.mark.parametrize("bits", [8, 20, 31, 39])
def test_scaling_is_exact_for_every_size(rounding: Rounding, bits: int) -> None:
    rng = np.random.default_rng(bits)
    values = rng.integers(-(1 << bits), 1 << bits, (3, 4, 6))
    values[0, 0] = -(1 << bits), (1 << bits) - 1, -1, 0, 1, 3
    multiplier, shift = rng.integers(1, 1 << 32, 6), np.array([0, 1, 31, 32, 40, 62])
    found = scale(values >> 8 if bits > 31 else values, multiplier, shift, rounding) if bits < 32 else None
    if found is None:
        # 40 bits and 16, as in 16-bit networks; and 40 and 32, whose products do not fit 64.
        for factor in (multiplier >> 17, multiplier):
            kept = np.maximum(shift, 20)
            found = scale(values, factor, kept, rounding)
            for place in np.ndindex(values.shape):
                channel = place[2]
                wanted = exact(int(values[place]), int(factor[channel]), int(kept[channel]), rounding)
                assert found[place] == wanted
        return
    for place in np.ndindex(values.shape):
        channel = place[2]
        wanted = exact(int(values[place]), int(multiplier[channel]), int(shift[channel]), rounding)
        assert wanted >= 1 << 63 or found[place] == wanted


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 15, 16, 63, 64])
def test_a_mean_is_rounded_half_away_from_zero(count: int) -> None:
    sums = np.arange(-128 * count, 127 * count + 1)
    multiplier, shift = reciprocal(count)
    wanted = np.sign(sums) * ((2 * np.abs(sums) + count) // (2 * count))
    np.testing.assert_array_equal(scale(sums, multiplier, shift, Rounding.NATURAL), wanted)


def test_a_result_that_does_not_fit_is_an_error() -> None:
    internal = np.zeros(16384, np.uint8)
    ofm = replace(_MAP, dtype=np.dtype(np.int32))
    with pytest.raises(ExecutionError, match="here: a result does not fit int32"):
        finish(np.full((1, 1, 1), 1 << 31), ofm, Activation(None, None), internal, "here")
    with pytest.raises(ExecutionError, match="here: a result does not fit int8"):
        finish(np.full((1, 1, 1), 200), _MAP, Activation((-128, 255), 0), internal, "here")


def test_tables_of_16_bits_are_interpolated_where_nothing_is_rounded() -> None:
    internal = np.zeros(16384, np.uint8)
    # Value and slope of each of 512 steps: from -32768 on, 2 less each.
    table = internal[-2048:].view("<i2").reshape(-1, 2)
    table[:] = np.stack([100 - 2 * np.arange(512), np.full(512, -128)], 1)
    ofm = replace(_MAP, dtype=np.dtype(np.int16))
    values = np.array([[[-32768, -32767, -32640, 0, 32767]]])
    found = finish(values, ofm, Activation(None, 0), internal, "here")
    steps, rest = np.divmod(values + 32768, 128)
    np.testing.assert_array_equal(found, 100 - 2 * steps - rest)
    table[:, 1] = 3
    with pytest.raises(ExecutionError, match="here: a value between the entries of a table"):
        finish(values, ofm, Activation(None, 0), internal, "here")


def address(feature_map: FeatureMap, y: int, x: int, c: int) -> int:
    """The address of an element, computed again from the register definitions."""
    tile = 0
    if x >= feature_map.tile_width:
        x, tile = x - feature_map.tile_width, 1
    limit = feature_map.tile_heights[tile]
    if y >= limit:
        y, tile = y - limit, tile + 2
    size = feature_map.dtype.itemsize
    channel = c // 16 * feature_map.stride_c + c % 16 * size if feature_map.bricks else c * size
    return feature_map.bases[tile] + y * feature_map.stride_y + x * feature_map.stride_x + channel


@pytest.mark.parametrize(
    "feature_map",
    [
        _MAP,
        replace(_MAP, bases=(4 * 245, 0, 0, 0), stride_y=-245),
        replace(_MAP, bases=(8, 0, 3000, 0), tile_heights=(2, 5)),
        replace(_MAP, bases=(8, 4000, 3000, 5000), tile_heights=(2, 3), tile_width=4),
        replace(_MAP, bricks=True, stride_y=7 * 48, stride_x=16, stride_c=7 * 16),
        replace(_MAP, dtype=np.dtype(np.int16), stride_y=490, stride_x=70, bases=(100, 0, 0, 0)),
        replace(_MAP, dtype=np.dtype(np.int32), bricks=True, stride_y=7 * 48 * 4, stride_x=64, stride_c=7 * 64),
        replace(_MAP, dtype=np.dtype(np.uint8), bases=(16, 0, 4096, 0), tile_heights=(3, 3), bricks=True,
                stride_y=7 * 48, stride_x=16, stride_c=7 * 16),
    ],
)  # fmt: skip
def test_elements_lie_where_the_registers_say(feature_map: FeatureMap) -> None:
    rng = np.random.default_rng(0)
    scratch = rng.integers(0, 256, 8192).astype(np.uint8)
    memory, size = Memory({1: scratch}, 16384), feature_map.dtype.itemsize
    memory.check(feature_map, "here", write=True)
    found = memory.read(feature_map, "here")
    values = rng.integers(0, 100, feature_map.shape)
    for place in np.ndindex(feature_map.shape):
        first = address(feature_map, *place)
        assert found[place] == scratch[first : first + size].view(feature_map.dtype)[0]
    before = scratch.copy()
    memory.store(feature_map, values, "here")
    np.testing.assert_array_equal(memory.read(feature_map, "here"), values)
    assert (scratch != before).sum() <= values.size * size


@pytest.mark.parametrize(
    ("feature_map", "reason"),
    [
        (
            replace(_MAP, bases=(8192 - 1224, 0, 0, 0)),
            r"here, OFM: bytes 6968 to 8193 are not inside region 1 \(scratch",
        ),
        (replace(_MAP, bases=(0, 0, 0, 0), stride_y=-245), "bytes -980 to 245 are not inside"),
        (replace(_MAP, bases=(0, 0, 8000, 0), tile_heights=(2, 5)), "not inside region 1"),
        (replace(_MAP, region=2), r"region 2 \(fast scratch\) does not exist"),
        (replace(_MAP, region=6), r"region 6 \(unknown\) does not exist"),
        (replace(_MAP, dtype=np.dtype(np.int16), bases=(1, 0, 0, 0), stride_y=490, stride_x=70), "not a multiple of"),
    ],
)
def test_an_access_outside_its_region_is_refused(feature_map: FeatureMap, reason: str) -> None:
    memory = Memory({1: np.zeros(8192, np.uint8)}, 16384)
    with pytest.raises(FormatError, match=reason):
        memory.check(feature_map, "here")


def test_constants_are_not_written_to() -> None:
    memory = Memory({0: np.zeros(8192, np.uint8)}, 16384)
    with pytest.raises(FormatError, match="writes into the read-only data"):
        memory.check(replace(_MAP, region=0), "here", write=True)
    with pytest.raises(FormatError, match="writes into the read-only data"):
        memory.target(0, 0, 1, "here")


def test_ranges_are_checked() -> None:
    memory = Memory({1: np.arange(100, dtype=np.uint8)}, 16384)
    assert memory.bytes(Range(1, 90, 10), "here").tolist() == list(range(90, 100))
    for place in (Range(1, 91, 10), Range(1, 101, 0), Range(0, 0, 1)):
        with pytest.raises(FormatError, match="here"):
            memory.bytes(place, "here")
    assert len(memory.target(None, 14336, 2048, "here")) == 2048
    for base in (14320, 14352):
        with pytest.raises(FormatError, match="not among the tables in the internal memory, 14336 to 16384"):
            memory.target(None, base, 2048, "here")
