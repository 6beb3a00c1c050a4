"""Integer inputs and outputs of a quantized program: the quantization at its border is left to the caller.

The numbers that the caller needs are told, and are methods of the file, named as ExecuTorch's passes name them
(`executorch.exir.passes.quantize_io_pass`): "forward_input0_scale", "forward_output0_zp".
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputSpec, TensorArgument
from torch.fx import GraphModule, Node

from delegatekit_api import QuantizationError
from delegatekit_api.nodes import operator_name

from ..edge import producer
from ..pte import scalar_type

_QUANTIZE: Final = "quantized_decomposed.quantize_per_tensor.default"
_DEQUANTIZE: Final = "quantized_decomposed.dequantize_per_tensor.default"


@dataclass(frozen=True)
class IntegerArgument:
    """An input or output that has become integers: real = (integer - zero_point) * scale."""

    method: str
    #: "input" or "output", and its place among these, counted from 0.
    kind: str
    index: int
    #: "int8", "uint8" or another type of PyTorch's.
    dtype: str
    scale: float
    zero_point: int
    lowest: int
    highest: int

    def __str__(self) -> str:
        return (
            f"{self.method}, {self.kind} {self.index}: {self.dtype}, scale {self.scale:.9g}, "
            f"zero point {self.zero_point}"
        )


@dataclass(frozen=True)
class IntegerPrograms:
    """Programs with integer inputs and outputs, and the methods that tell a runtime their numbers."""

    programs: Mapping[str, ExportedProgram]
    arguments: tuple[IntegerArgument, ...]
    #: The inputs and outputs that stay as they were, and why.
    left: tuple[str, ...]


def integer_io(programs: Mapping[str, ExportedProgram] | ExportedProgram) -> IntegerPrograms:
    """The programs without the quantization of their inputs and the dequantization of their outputs.

    `programs` are those of a quantized model by method name, or one; they are not changed, and share their weights with
    the new ones. Inputs that anything but a quantization reads, and outputs of anything but a dequantization, stay as
    they are; `left` has those of floats. Raises QuantizationError if all stay. `delegatekit.lower` takes what
    `programs` of the result has.
    """
    given = {"forward": programs} if isinstance(programs, ExportedProgram) else programs
    changed = {name: _Border(name, program) for name, program in given.items()}
    arguments = tuple(item for border in changed.values() for item in border.arguments)
    left = tuple(text for border in changed.values() for text in border.left)
    if not arguments:
        hint = f"quantize the model first; {left[0]}" if left else "quantize the model first"
        raise QuantizationError("no input is quantized first, and no output dequantized last", hint=hint)
    found = {name: border.program for name, border in changed.items()}
    for item in arguments:
        found.update(_methods(item))
    return IntegerPrograms(found, arguments, left)


class _Border:
    """A program whose border is taken off."""

    def __init__(self, method: str, program: ExportedProgram) -> None:
        self._method = method
        self.arguments: list[IntegerArgument] = []
        self.left: list[str] = []
        self._graph = GraphModule(program.graph_module, copy.deepcopy(program.graph))
        for node, before in zip(self._graph.graph.nodes, program.graph.nodes, strict=True):
            node.name = before.name  # a copy gets another name where this one is a builtin's: "input"
        nodes = {node.name: node for node in self._graph.graph.nodes}
        for index, name in enumerate(program.graph_signature.user_inputs):
            if isinstance(name, str) and _is_float(nodes[name]):
                self._input(index, nodes[name])
        specs = self._outputs(program.graph_signature.output_specs)
        self._graph.graph.eliminate_dead_code()
        self.program = ExportedProgram(
            root=self._graph,
            graph=self._graph.graph,
            graph_signature=replace(program.graph_signature, output_specs=specs),
            state_dict=program.state_dict,
            range_constraints=program.range_constraints,
            module_call_graph=program.module_call_graph,
            example_inputs=None,
            constants=program.constants,
            verifiers=program.verifiers,
        )

    def _input(self, index: int, node: Node) -> None:
        readers = list(node.users)
        if {str(reader.target) for reader in readers} != {_QUANTIZE}:
            names = ", ".join(dict.fromkeys(str(reader.target) for reader in readers)) or "nothing"
            self.left.append(f"{self._method}, input {index} is read by {names}")
            return
        if len({reader.args[1:] for reader in readers}) > 1:
            self.left.append(f"{self._method}, input {index} is quantized in {len(readers)} ways")
            return
        self._tell("input", index, readers[0].args[1:])
        node.meta["val"] = node.meta["val"].to(readers[0].args[5])
        for reader in readers:
            reader.replace_all_uses_with(node)

    def _outputs(self, specs: Sequence[OutputSpec]) -> list[OutputSpec]:
        (output,) = (node for node in self._graph.graph.nodes if node.op == "output")
        results, found = list(output.args[0]), list(specs)
        index = -1
        for place, (spec, result) in enumerate(zip(specs, results, strict=True)):
            if spec.kind.name != "USER_OUTPUT":
                continue
            index += 1
            if not isinstance(result, Node) or not _is_float(result):
                continue
            if str(result.target) != _DEQUANTIZE:
                self.left.append(f"{self._method}, output {index} is made by {operator_name(producer(result))}")
                continue
            integers = result.args[0]
            assert isinstance(integers, Node)
            self._tell("output", index, result.args[1:])
            results[place] = integers
            found[place] = replace(spec, arg=TensorArgument(name=integers.name))
        output.args = (tuple(results),)
        return found

    def _tell(self, kind: str, index: int, numbers: Sequence[Any]) -> None:
        scale, zero_point, lowest, highest, dtype = numbers
        name = str(dtype).removeprefix("torch.")
        self.arguments.append(
            IntegerArgument(self._method, kind, index, name, float(scale), int(zero_point), int(lowest), int(highest))
        )


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


class _Number(torch.nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self._number = number

    def forward(self) -> float:
        return self._number


def _methods(item: IntegerArgument) -> Iterator[tuple[str, ExportedProgram]]:
    """The methods without inputs that return the numbers of an input or output."""
    numbers: dict[str, float] = {
        "scale": item.scale,
        "zp": item.zero_point,
        "quant_min": item.lowest,
        "quant_max": item.highest,
        "dtype": int(scalar_type(getattr(torch, item.dtype))),
    }
    for key, number in numbers.items():
        yield f"{item.method}_{item.kind}{item.index}_{key}", torch.export.export(_Number(number), ())
