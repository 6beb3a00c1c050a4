"""Asks a backend about layers before they are quantized: support, and computation on integers.

A trial is a program in the edge dialect with the layers as if they were quantized: between dequantizes and quantizes
whose scales are placeholders. Nodes between the layers are not part of the question; their values are inputs of the
program. The backend's own partitioner is asked about it, and its refusals are reported by layer. So one support table
decides both about quantization, and about delegation when the result is lowered.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Final

from torch.fx import GraphModule, Node

from delegatekit_api import BackendOptions, Call, Partitioner
from delegatekit_api.schemes import QUANTIZE, IntegerPartitioner

from ..edge import EdgeMethod
from ..edge.decompose import Decomposer
from ..edge.sizes import is_size_node
from ..fallback import kernel_of
from ..fallback.rewrite import decompose_nodes
from ..partition.ask import ask_backends, blaming_partitioner, keep_operators
from ..plugins import LoadedBackend, check_answer
from .affine import Weights
from .patterns import Layer, Refusals
from .points import Points
from .trial_program import TrialProgram

#: Namespaces of the operators that convert from and to integers.
_NAMESPACES: Final = ("quantized_decomposed", "torchao", "quant")


class Trial:
    """Asks one backend, with its options, about the layers of a graph."""

    def __init__(self, backend: LoadedBackend, options: BackendOptions) -> None:
        self._backend = backend
        self._options = options
        # The caches serve later questions about fewer layers.
        self._decomposer = Decomposer()

    def refusals(self, module: GraphModule, layers: Sequence[Layer], form: Points | Weights) -> Refusals:
        """The reasons why the backend refuses layers, by operator and rule; empty if it takes all of them.

        `form` are the quantized tensors, or the weights of a scheme with scales for each row, sample or group.
        """
        partitioner = self._backend.create_partitioner(self._options)
        keep = keep_operators({self._backend.name: partitioner})
        program = TrialProgram(module, form, keep, self._decomposer)
        for number, layer in enumerate(layers, 1):
            program.add(number, layer)
        found = self._refused(program.finish(), partitioner, keep) | program.refused
        return {(layer.anchor, layer.rule): found[number] for number, layer in enumerate(layers, 1) if number in found}

    def _refused(self, method: EdgeMethod, partitioner: Partitioner, keep: Collection[str]) -> dict[int, str]:
        """The layers that are refused, by number, with the reason of the first answer.

        As in a lowering, an operator that is refused whole and has no kernel is decomposed, and its parts are asked
        about.
        """
        first: dict[int, str] = {}
        while True:
            answers = _Answers(method, partitioner, self._backend)
            first = {number: first.get(number, reason) for number, reason in answers.reasons.items()}
            stranded = {node for node in answers.refused if not _is_conversion(node) and kernel_of(node) is None}
            decomposed = decompose_nodes(method, stranded, keep=keep) if stranded else None
            if decomposed is None or not decomposed.became:
                return answers.in_float() | first
            method = decomposed.edge


class _Answers:
    """A partitioner's verdicts on a trial."""

    def __init__(self, method: EdgeMethod, partitioner: Partitioner, backend: LoadedBackend) -> None:
        self._view = method.view
        self._partitioner = partitioner
        self._backend = backend.name
        #: The nodes of each layer: operators, the dequantizes that they read and the quantizes of their results.
        self._nodes: dict[int, list[Node]] = {}
        for node in method.graph.nodes:
            is_asked = node.op == "call_function" and node.target is not operator.getitem and not is_size_node(node)
            if is_asked and node.meta["debug_handle"]:
                self._nodes.setdefault(node.meta["debug_handle"], []).append(node)
        partitioners, descriptions = {backend.name: partitioner}, {backend.name: backend.description}
        answers = {
            node: ask_backends(node, method, partitioners, descriptions)[backend.name]
            for nodes in self._nodes.values()
            for node in nodes
        }
        taken = {node for node, answer in answers.items() if answer.supported}
        taken.update(member for node in tuple(taken) for member in answers[node].group)
        #: The refused nodes, with the reasons.
        self.refused = {node: answer.reason for node, answer in answers.items() if node not in taken}
        #: The refused layers, with the reasons: those of their operators come first.
        self.reasons: dict[int, str] = {}
        for number, nodes in self._nodes.items():
            found = sorted((node for node in nodes if node in self.refused), key=_is_conversion)
            if found:
                self.reasons[number] = self.refused[found[0]]

    def in_float(self) -> dict[int, str]:
        """The layers that are taken, but computed in float between a dequantize and a quantize, with the reasons."""
        if not isinstance(self._partitioner, IntegerPartitioner):
            return {}
        found: dict[int, str] = {}
        for number, nodes in self._nodes.items():
            calls = [Call(node, self._view) for node in nodes]
            if number in self.reasons or not any(call.operator in QUANTIZE for call in calls):
                continue
            with blaming_partitioner(self._backend, "saying which layers it computes in float"):
                reason = self._partitioner.float_reason(calls)
            check_answer(reason, str | None, "what float_reason returned", f"backend {self._backend}")
            if reason is not None:
                found[number] = reason
        return found


def _is_conversion(node: Node) -> bool:
    """True if a node converts from or to integers."""
    return getattr(node.target, "namespace", "") in _NAMESPACES
