"""The memory that a command stream works on: regions of bytes, and feature maps in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delegatekit_api import FormatError

from .operations import FeatureMap, Range

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

#: The regions as ExecuTorch's Ethos-U driver passes them.
READ_ONLY: Final = 0
SCRATCH: Final = 1
FAST_SCRATCH: Final = 2
_NAMES: Final = {READ_ONLY: "read-only data", SCRATCH: "scratch", FAST_SCRATCH: "fast scratch"}
#: The part of the internal memory that holds the tables, at its end.
TABLES_BYTES: Final = 2048
#: Channels in a brick of the NHCWB16 format.
_BRICK: Final = 16


def region_name(region: int) -> str:
    """The content of a region, by its number."""
    return _NAMES.get(region, f"region {region}")


class Memory:
    """Regions by number, and the NPU's internal memory.

    Ranges of bytes are checked against their region in each access, feature maps by `check`, before any.
    """

    def __init__(self, regions: Mapping[int, Bytes], internal: int) -> None:
        """`regions` are used directly, without a copy; `internal` is the size of the internal memory in bytes."""
        self._regions = regions
        self.internal: Bytes = np.zeros(internal, np.uint8)

    def bytes(self, place: Range, where: str) -> Bytes:
        """The bytes of a range: a view. Raises FormatError if they are not all inside the region."""
        region = self._region(place.region, where)
        if not 0 <= place.base <= place.base + place.length <= len(region):
            raise _outside(place.region, place.base, place.base + place.length, len(region), where)
        return region[place.base : place.base + place.length]

    def target(self, region: int | None, base: int, length: int, where: str) -> Bytes:
        """Bytes to be written, a view: of a region, or of the internal memory."""
        if region is not None:
            _check_writable(region, where)
            return self.bytes(Range(region, base, length), where)
        size = len(self.internal)
        if not size - TABLES_BYTES <= base <= base + length <= size:
            # The rest is used by the operations, which share it as the compiler directs them.
            what = f"bytes {base} to {base + length} are not among the tables in the internal memory"
            raise FormatError(f"{what}, {size - TABLES_BYTES} to {size}", where=where)
        return self.internal[base : base + length]

    def read(self, feature_map: FeatureMap, where: str) -> Integers:
        """The values of a feature map, [height, width, depth]."""
        elements, places = self._elements(feature_map, where)
        return elements[places].astype(np.int64)

    def places(self, feature_map: FeatureMap, where: str) -> Integers:
        """Positions of a feature map's bytes in its region."""
        _, places = self._elements(feature_map, where)
        size = feature_map.dtype.itemsize
        return places[..., None] * size + np.arange(size)

    def store(self, feature_map: FeatureMap, values: Integers, where: str) -> None:
        """Write values, which are in the range of its type, into a feature map."""
        elements, places = self._elements(feature_map, where)
        elements[places] = values.astype(feature_map.dtype)

    def check(self, feature_map: FeatureMap, where: str, *, write: bool = False) -> None:
        """Check that a feature map can be read (written): all of it is inside its region, with aligned elements."""
        if write:
            _check_writable(feature_map.region, where)
        where = f"{where}, {feature_map.name}"
        region = self._region(feature_map.region, where)
        size, strides = feature_map.dtype.itemsize, (feature_map.stride_y, feature_map.stride_x, feature_map.stride_c)
        if any(number % size for number in (*feature_map.bases, *(strides if feature_map.bricks else strides[:2]))):
            raise FormatError(f"an address is not a multiple of the element's {size} bytes", where=where)
        last_channel = int(_channels(feature_map)[-1])
        corners = [
            base + rows * feature_map.stride_y + columns * feature_map.stride_x + channel
            for base, height, width in _tiles(feature_map)
            for rows in (0, height - 1)
            for columns in (0, width - 1)
            for channel in (0, last_channel)
        ]
        first, last = min(corners), max(corners) + size
        if first < 0 or last > len(region):
            raise _outside(feature_map.region, first, last, len(region), where)

    def _elements(self, feature_map: FeatureMap, where: str) -> tuple[npt.NDArray[Any], Integers]:
        """The region as elements, and each one's position [height, width, depth] there."""
        region, size = self._region(feature_map.region, where), feature_map.dtype.itemsize
        elements = region[: len(region) // size * size].view(feature_map.dtype)
        return elements, (_pixels(feature_map) // size)[:, :, None] + _channels(feature_map) // size

    def _region(self, number: int, where: str) -> Bytes:
        region = self._regions.get(number)
        if region is None:
            raise FormatError(f"region {number} ({_NAMES.get(number, 'unknown')}) does not exist", where=where)
        return region


def _tiles(feature_map: FeatureMap) -> list[tuple[int, int, int]]:
    """Base, height and width of the tiles in use."""
    height, width, _ = feature_map.shape
    left, (first, second) = min(width, feature_map.tile_width), feature_map.tile_heights
    sizes = (
        (min(height, first), left),
        (min(height, second), width - left),
        (height - first, left),
        (height - second, width - left),
    )
    tiles = zip(feature_map.bases, sizes, strict=True)
    return [(base, rows, columns) for base, (rows, columns) in tiles if rows > 0 and columns > 0]


def _pixels(feature_map: FeatureMap) -> Integers:
    """The address of each pixel's first channel, [height, width]."""
    height, width, _ = feature_map.shape
    y, x = np.arange(height)[:, None], np.arange(width)[None, :]
    right = x >= feature_map.tile_width
    limit = np.where(right, feature_map.tile_heights[1], feature_map.tile_heights[0])
    below = y >= limit
    first, beside, under, last = feature_map.bases
    bases = np.where(below, np.where(right, last, under), np.where(right, beside, first))
    rows = y - np.where(below, limit, 0)
    columns = x - np.where(right, feature_map.tile_width, 0)
    return bases + rows * feature_map.stride_y + columns * feature_map.stride_x


def _channels(feature_map: FeatureMap) -> Integers:
    """The address offset of each channel."""
    channels = np.arange(feature_map.shape[2], dtype=np.int64)
    size = feature_map.dtype.itemsize
    if not feature_map.bricks:
        return channels * size
    return channels // _BRICK * feature_map.stride_c + channels % _BRICK * size


def _check_writable(region: int, where: str) -> None:
    if region == READ_ONLY:
        raise FormatError("writes into the read-only data", where=where)


def _outside(region: int, first: int, last: int, size: int, where: str) -> FormatError:
    name = _NAMES.get(region, "unknown")
    what = f"bytes {first} to {last} are not inside region {region} ({name}, {size} bytes)"
    return FormatError(what, where=where)
