"""Weights and scales as laid out by Vela's encoder: decoded, they equal the input."""

from __future__ import annotations

import numpy as np
import pytest

from delegatekit_api import FormatError
from delegatekit_ethosu.runtime.stream.decompressor import decompress
from delegatekit_ethosu.runtime.stream.operations import WeightOrder
from delegatekit_ethosu.runtime.stream.weights import decode_scales, decode_weights

mlw_codec = pytest.importorskip("ethosu.mlw_codec")

_OUTPUT_UNIT = {32: 4, 64: 8, 128: 8, 256: 8}


def encode(weights: np.ndarray, order: WeightOrder) -> np.ndarray:
    """Vela's own encoding of weights [depth, height, width, input depth]."""
    data, _ = mlw_codec.reorder_encode(
        8,
        _OUTPUT_UNIT[order.macs],
        weights,
        order.block_depth,
        order.depthwise,
        order.part_kernel_first,
        order.input_bits,
        8 // order.dilation[0],
        8 // order.dilation[1],
    )
    return np.frombuffer(bytes(data), np.uint8)


def drawn(seed: int) -> tuple[np.ndarray, WeightOrder]:
    """Weights of a random shape, with a random order."""
    rng = np.random.default_rng(seed)
    depthwise = bool(rng.random() < 0.3)
    height, width = (int(rng.choice([1, 2, 3, 5, 8, 9, 17])) for _ in range(2))
    shape = int(rng.integers(1, 70)), height, width, 1 if depthwise else int(rng.integers(1, 80))
    order = WeightOrder(
        macs=int(rng.choice([32, 64, 128, 256])),
        shape=shape,
        dilation=(int(rng.integers(1, 3)), int(rng.integers(1, 3))),
        block_depth=8 * int(rng.integers(1, 9)),
        input_bits=int(rng.choice([8, 16])),
        depthwise=depthwise,
        part_kernel_first=not depthwise and bool(rng.random() < 0.5),
    )
    return rng.integers(-127, 128, shape).astype(np.int16), order


@pytest.mark.parametrize("seed", range(40))
def test_weights_come_back_from_every_order(seed: int) -> None:
    weights, order = drawn(seed)
    np.testing.assert_array_equal(decode_weights(encode(weights, order), order, "here"), weights)


def test_weights_in_another_order_are_refused() -> None:
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 128, (24, 3, 3, 20)).astype(np.int16)
    order = WeightOrder(128, weights.shape, (1, 1), 16, 8, False, True)
    data = encode(weights, order)
    for other in (
        WeightOrder(128, weights.shape, (1, 1), 16, 8, False, False),
        WeightOrder(128, (24, 3, 3, 12), (1, 1), 16, 8, False, True),
        WeightOrder(128, (25, 3, 3, 20), (1, 1), 16, 8, False, True),
        WeightOrder(128, (24, 3, 5, 20), (1, 1), 16, 8, False, True),
    ):
        with pytest.raises(FormatError, match="here: the weight stream has"):
            decode_weights(data, other, "here")


def test_damaged_weights_are_an_error_and_the_next_ones_are_not() -> None:
    weights, order = drawn(3)
    data = encode(weights, order)
    for damaged in (data[: len(data) // 2], np.full(64, 0x5A, np.uint8), data[:3]):
        with pytest.raises(FormatError, match="here"):
            decode_weights(damaged, order, "here")
        np.testing.assert_array_equal(decode_weights(data, order, "here"), weights)


def test_no_damage_ends_the_process() -> None:
    weights, order = drawn(1)
    data, rng, refused = encode(weights, order), np.random.default_rng(5), 0
    for _ in range(12):
        damaged = data.copy()
        damaged[rng.integers(0, len(data), 3)] ^= rng.integers(1, 256, 3).astype(np.uint8)
        try:
            decompress(damaged.tobytes(), "here")
        except FormatError:
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("bias", "multiplier", "shift"),
    [(0, 1, 0), (-1, 2**31 + 1, 31), (2**39 - 1, 2**32 - 1, 63), (-(2**39), 1 << 30, 48)],
)
def test_scales_come_back(bias: int, multiplier: int, shift: int) -> None:
    entry = bias.to_bytes(5, "little", signed=True) + multiplier.to_bytes(4, "little") + bytes([shift])
    data = np.frombuffer(bytes(10) + entry + bytes(12), np.uint8)
    found = decode_scales(data, 2, "here")
    assert [int(values[1]) for values in found] == [bias, multiplier, shift]
    assert [int(values[0]) for values in found] == [0, 0, 0]


def test_scales_that_are_cut_or_have_other_bits_are_refused() -> None:
    with pytest.raises(FormatError, match="19 bytes do not hold the scales of 2 channels"):
        decode_scales(np.zeros(19, np.uint8), 2, "here")
    data = np.zeros(20, np.uint8)
    data[9] = 0x40
    with pytest.raises(FormatError, match="beyond its shift"):
        decode_scales(data, 2, "here")
