"""Common parts of the TOSA graphs that test the Ethos-U55's streams: tensors, scales, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import DType, Graph, Tensor
from delegatekit_toolkit.tosa.numerics import multipliers_and_shifts

Array = npt.NDArray[np.generic]
INT8, INT16, INT32, INT48 = DType.INT8, DType.INT16, DType.INT32, DType.INT48
NUMPY = {INT8: np.int8, INT16: np.int16, INT32: np.int32}


@dataclass
class Case:
    """A graph under construction, its random numbers and the inputs drawn for it."""

    rng: np.random.Generator
    graph: Graph
    inputs: list[Array]

    def one_of(self, *values: int) -> int:
        return int(self.rng.choice(values))

    def size(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, probability: float = 0.5) -> bool:
        return bool(self.rng.random() < probability)

    def shape(self, channels: int = 40, side: int = 12) -> tuple[int, int, int, int]:
        return 1, self.size(1, side), self.size(1, side), self.size(1, channels)

    def zero(self) -> int:
        return self.size(-128, 127) if self.chance(0.8) else 0

    def input(self, shape: Sequence[int], dtype: DType = INT8, bound: int | None = None) -> Tensor:
        """A new input and values for it: of the whole type, or from -bound to bound."""
        limits = np.iinfo(NUMPY[dtype])
        low, high = (limits.min, limits.max) if bound is None else (-bound, bound)
        self.inputs.append(self.rng.integers(low, high, shape, endpoint=True).astype(NUMPY[dtype]))
        return self.graph.input("input", shape, dtype)

    def weights(self, *shape: int) -> Tensor:
        """int8 weights: some layers have many zeros, some few distinct values."""
        values = np.clip(np.rint(self.rng.normal(0, self.one_of(2, 20, 60), shape)), -127, 127)
        if self.chance(0.3):
            values *= self.rng.random(shape) < 0.2
        return self.graph.constant(values, INT8)

    def point(self, value: int, dtype: DType = INT8) -> Tensor:
        return self.graph.constant([value], dtype)

    def sizes(self, *values: int) -> Tensor:
        return self.graph.constant(values, DType.SHAPE)

    def rescale(
        self,
        tensor: Tensor,
        dtype: DType,
        scales: float | Sequence[float],
        input_zero: int = 0,
        output_zero: int = 0,
        rounding: tosa.Rounding = tosa.Rounding.SINGLE,
    ) -> Tensor:
        """RESCALE with one scale, or one for each channel."""
        scale32 = tensor.dtype != INT48
        listed = [scales] if isinstance(scales, float) else list(scales)
        multipliers, shifts = multipliers_and_shifts(listed, bits=32 if scale32 else 16)
        operands = (
            tensor,
            self.graph.constant(multipliers, INT32 if scale32 else INT16),
            self.graph.constant(shifts, INT8),
            self.graph.constant([input_zero], tensor.dtype),
            self.graph.constant([output_zero], dtype),
        )
        operator = tosa.Rescale(scale32=scale32, rounding=rounding, per_channel=len(listed) > 1)
        return self.graph.add(operator, operands, tensor.shape, dtype, "rescale")

    def scales(self, low: float, high: float, channels: int) -> list[float]:
        """One scale, or one for each of `channels`."""
        count = channels if self.chance(0.7) else 1
        return [float(math.exp(self.rng.uniform(math.log(low), math.log(high)))) for _ in range(count)]

    def int32(self, tensor: Tensor, scale: float = 1.0, zero: int | None = None) -> Tensor:
        return self.rescale(tensor, INT32, scale, self.zero() if zero is None else zero)

    def ending(self, tensor: Tensor) -> Tensor:
        """After the last rescale to int8: nothing, a clamp, or a table."""
        kind = self.one_of(0, 0, 1, 2)
        if kind == 1:
            low = self.size(-128, 20)
            return self.graph.add(tosa.Clamp(low, self.size(low, 127)), [tensor], tensor.shape, tensor.dtype, "clamp")
        return self.table(tensor) if kind == 2 else tensor

    def table(self, tensor: Tensor) -> Tensor:
        values = self.graph.constant(self.rng.integers(-128, 128, 256), INT8)
        return self.graph.add(tosa.Table(), [tensor, values], tensor.shape, INT8, "table")


def softmax(case: Case, logits: Tensor) -> Tensor:
    """The usual chain over the last axis: maximum, difference, table, sum, table, product."""
    graph, shape = case.graph, logits.shape
    axis, rows = len(shape) - 1, (*shape[:-1], 1)
    largest = graph.add(tosa.ReduceMax(axis), [logits], rows, INT8, "largest")
    less = graph.add(tosa.Sub(), [case.int32(logits, 1.0, 0), case.int32(largest, 1.0, 0)], shape, INT32, "less")
    powers = np.clip(np.rint(np.exp((np.arange(-128, 128) - 127) * 0.03) * 255) - 128, -128, 127)
    operands = [case.rescale(less, INT8, 1.0, 0, 127), graph.constant(powers, INT8)]
    power = case.int32(graph.add(tosa.Table(), operands, shape, INT8, "power"), 1.0, -128)
    total = graph.add(tosa.ReduceSum(axis), [power], rows, INT32, "total")
    step = shape[-1] / 255.0
    inverse = np.clip(np.rint(255 / np.maximum((np.arange(-128, 128) + 128) * step, 1)) - 128, -128, 127)
    operands = [case.rescale(total, INT8, 1 / 255 / step, 0, -128), graph.constant(inverse, INT8)]
    inverted = case.int32(graph.add(tosa.Table(), operands, rows, INT8, "inverse"), 1.0, -128)
    product = graph.add(tosa.Mul(), [power, inverted, case.point(0)], shape, INT32, "product")
    return case.rescale(product, INT8, 256 / 255 / 255, 0, -128)
