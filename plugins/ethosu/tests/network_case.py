"""A quantized and lowered network taken apart: its blob, its TOSA program, the integers of each layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch.fx import Node

import delegatekit
from delegatekit import pte
from delegatekit.lowering import Delegate
from delegatekit_conformance.cases.quantized import InDouble
from delegatekit_ethosu.blob import TOSA_SPEC, unpack
from delegatekit_ethosu.runtime import stream
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import reference
from delegatekit_toolkit.tosa.types import Array


@dataclass(frozen=True)
class Layer:
    """The differences of a layer's integers from eager in double precision on the same integers."""

    name: str
    #: Largest difference, number of differing integers, and number of all.
    steps: int
    differing: int
    count: int


class Case:
    """One quantized module with one input, for one accelerator."""

    def __init__(self, module: Any, example: torch.Tensor, target: str = "ethos-u55-128") -> None:
        self.module, self.target = module, target
        self.exported = torch.export.export(module, (example,), strict=False)
        options = {"ethosu": {"target": target, "keep_tosa": True}}
        self.program = delegatekit.lower(self.exported, backends=["ethosu"], options=options)
        self.buffer = self.program.buffer
        self.method = self.program.methods["forward"]

    @property
    def delegates(self) -> int:
        """The number of delegates."""
        return len(self.method.delegates)

    def fallback(self) -> list[str]:
        """The operators outside the delegates, as exported, without the quantize and dequantize at the border."""
        handles = {step.meta["debug_handle"] for step in self.method.steps if not isinstance(step, Delegate)}
        names = [str(node.target) for place, node in enumerate(self.exported.graph.nodes, 1) if place in handles]
        return [name for name in names if not name.startswith("quantized_decomposed.")]

    def _file(self) -> tuple[Any, Any, dict[str, bytes]]:
        file = pte.read(self.buffer)
        (delegate,) = file.program.execution_plan[0].delegates
        return file, delegate, {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}

    def tosa(self) -> bytes:
        """The TOSA program in the file."""
        file, _, specs = self._file()
        return bytes(file.named_data[specs[TOSA_SPEC].decode()])

    def _quantizes(self) -> list[Node]:
        return [node for node in self.exported.graph.nodes if str(node.target).startswith(_QUANTIZE)]

    def integers(self, example: torch.Tensor) -> Array:
        """The delegate's integers for an input."""
        (first,) = (node for node in self._quantizes() if node.args[0].op == "placeholder")
        found: Array = torch.ops.quantized_decomposed.quantize_per_tensor.default(example, *first.args[1:]).numpy()
        return found

    def by_command_stream(self, example: torch.Tensor) -> list[Array]:
        """The blob of the file, executed (Ethos-U55 only)."""
        file, delegate, _ = self._file()
        return stream.Machine(unpack(file.delegate_blob(delegate))).run([self.integers(example)])

    def by_reference(self, example: torch.Tensor) -> list[Array]:
        """The TOSA program of the file in Arm's reference model."""
        return reference.run(self.tosa(), [self.integers(example)])

    def layers(self, example: torch.Tensor) -> list[Layer]:
        """All layers, in order. Each one gets the TOSA program's preceding integers."""
        graph, made = tosa.read(self.tosa()), {}
        (delegate,) = self.method.delegates
        for operation in graph.operations:
            if operation.output.dtype is tosa.DType.INT8:
                for handle in delegate.debug_handle_map.get(operation.output.name, ()):
                    made[handle] = operation.output
        places = {node.name: place for place, node in enumerate(self.exported.graph.nodes, 1)}
        results = {node.name: made[places[node.name]] for node in self._quantizes() if places[node.name] in made}
        for node in self._quantizes():
            # Padding moves into the convolution after it: there is no padded tensor.
            tensor, padded = results.get(node.name), str(node.args[0].target).startswith("aten.pad.")
            if tensor is not None and padded and tensor.size != node.meta["val"].numel():
                del results[node.name]
        for tensor in dict.fromkeys(results.values()):
            if tensor not in graph.outputs:
                graph.outputs.append(tensor)
        outputs = reference.run(tosa.write(graph), [self.integers(example)])
        values = {tensor.name: value for tensor, value in zip(graph.outputs, outputs, strict=True)}
        forced = _Forced(self.exported.module(), {name: values[tensor.name] for name, tensor in results.items()})
        forced.run(example)
        return forced.layers


_QUANTIZE = "quantized_decomposed.quantize_per_tensor"


class _Forced(InDouble):
    """Replaces the integers of each quantize by those of another execution, and records the differences."""

    def __init__(self, module: Any, integers: dict[str, Array]) -> None:
        super().__init__(module)
        self._integers = integers
        self.layers: list[Layer] = []

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.name not in self._integers:
            return result
        wanted = result.numpy().astype(np.int64)
        # In the NPU's order of axes. A wrong one would not come close.
        ways = [np.ascontiguousarray(way) for way in _arrangements(self._integers[n.name], wanted.shape)]
        found = min(ways, key=lambda way: int((way != wanted).sum()))
        away = np.abs(found - wanted)
        self.layers.append(Layer(str(n.args[0]), int(away.max()), int((away > 0).sum()), away.size))
        return torch.from_numpy(found).to(result.dtype)


def _arrangements(value: Array, shape: Sequence[int]) -> Iterator[Array]:
    """The value's numbers in this shape, with the axes in any order."""
    for order in permutations(range(len(shape))):
        yield value.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
