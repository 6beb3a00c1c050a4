"""A whole module as one delegate, callable in Python and usable inside bigger modules."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import Interpreter, Node
from torch.utils._pytree import tree_flatten, tree_unflatten, treespec_loads

from delegatekit_api import DelegateKitError, UnsupportedError, describe_node

from .engine import Method, load
from .exporting import Model
from .lowering import Delegate, LoweredMethod
from .pipeline import LoweredProgram, lower
from .precompiled import Precompiled, call_delegate, register

#: How many nodes that a backend leaves an error names.
_NAMED = 5


def to_backend(
    model: Model,
    inputs: Sequence[Any] | None = None,
    *,
    backend: str,
    options: Mapping[str, Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> LoweredModule:
    """Compile a whole module (or ExportedProgram) into one delegate of one backend.

    The result is a module with the same inputs and outputs: call it, or put it into a bigger module, and export and
    lower that with any backends. Raises UnsupportedError if the backend leaves any operator, with its reason.
    """
    program = lower(
        model,
        inputs,
        backends=[backend],
        options={backend: options or {}},
        kwargs=kwargs,
        dynamic_shapes=dynamic_shapes,
    )
    return LoweredModule(program)


class LoweredModule(torch.nn.Module):
    """A module whose forward is one compiled delegate.

    Called in Python it runs the delegate in the backend's runtime, from one thread at a time. In torch.export it is one
    operator, which lowering replaces by the delegate. `backend` is the backend's name.
    """

    def __init__(self, program: LoweredProgram) -> None:
        """Raises UnsupportedError if the program is not one functional method in one delegate."""
        super().__init__()
        if len(program.methods) != 1:
            raise UnsupportedError(f"has {len(program.methods)} methods, a lowered module has one", where="program")
        (method,) = program.methods.values()
        delegate = _whole(method)
        self.backend = delegate.chosen.backend.name
        self._program = program
        self._method: Method | None = None
        edge = method.edge
        self._positions = [edge.inputs.index(node) for node in delegate.partition.inputs]
        self._results = [delegate.partition.outputs.index(node) for node in edge.outputs]
        if not edge.input_structure or not edge.output_structure:
            raise UnsupportedError(
                "has inputs or outputs of a type without a serialised form", where=f"method {edge.name}"
            )
        self._input_structure = treespec_loads(edge.input_structure)
        self._output_structure = treespec_loads(edge.output_structure)
        self._key = _key(delegate)
        register(self._key, Precompiled(self._run, self._infer, delegate))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's outputs, computed by the delegate."""
        flat, structure = tree_flatten((args, kwargs))
        if structure != self._input_structure:
            raise DelegateKitError(
                f"got inputs of structure {structure}, not {self._input_structure}", where="lowered module"
            )
        found = call_delegate([flat[position] for position in self._positions], self._key)
        return tree_unflatten([found[index] for index in self._results], self._output_structure)

    def program(self) -> LoweredProgram:
        """The module as a program of its own."""
        return self._program

    def save(self, path: str | Path) -> tuple[Path, ...]:
        """Write the module as a .pte file of its own."""
        return self._program.save(path)

    def _run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self._method is None:
            self._method = next(iter(load(self._program.buffer).values()))
        flat: list[Any] = list(self._input_values())
        for position, value in zip(self._positions, inputs, strict=True):
            flat[position] = value.detach()
        results = self._method.run(flat)
        by_output = dict(zip(self._results, results, strict=True))
        return [by_output[index].clone() for index in range(len(by_output))]

    def _input_values(self) -> list[Any]:
        """Something for inputs that the program does not use: numbers as they were, tensors of nothing."""
        (method,) = self._program.methods.values()
        values = (node.meta["val"] for node in method.edge.inputs)
        return [
            torch.zeros([int(s) for s in v.shape], dtype=v.dtype) if isinstance(v, torch.Tensor) else v for v in values
        ]

    def _infer(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs' shapes: from the program's own where they never change, else by running it on fake tensors."""
        (method,) = self._program.methods.values()
        partition = method.delegates[0].partition
        values = [node.meta["val"] for node in partition.outputs]
        if all(isinstance(size, int) for value in values for size in value.shape):
            return [inputs[0].new_empty(value.shape, dtype=value.dtype) for value in values]
        return _Shapes(method, dict(zip(partition.inputs, inputs, strict=True))).outputs()


class _Shapes(Interpreter):
    """Runs the edge graph on fake tensors."""

    def __init__(self, method: LoweredMethod, inputs: Mapping[Node, torch.Tensor]) -> None:
        super().__init__(torch.fx.GraphModule({}, method.edge.graph))
        self._partition = method.delegates[0].partition
        self._known = inputs

    def outputs(self) -> list[torch.Tensor]:
        environment: dict[Node, Any] = dict(self._known)
        for node in self._partition.constants:
            value = node.meta["val"]
            environment[node] = torch.empty(value.shape, dtype=value.dtype)

        def known(node: Node) -> Any:
            if node not in environment:
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known)
                environment[node] = node.target(*args, **kwargs)  # type: ignore[operator]
            return environment[node]

        for node in self._partition.nodes:  # in order, so that no chain is too deep
            known(node)
        return [environment[node] for node in self._partition.outputs]


def _whole(method: LoweredMethod) -> Delegate:
    """The one delegate that is the whole method."""
    edge, where = method.edge, f"method {method.edge.name}"
    left = [node for node in method.plan.fallback if isinstance(node.target, torch._ops.OperatorBase)]
    left = [node for node in left if node.target is not torch.ops.aten.sym_size.int]
    if left:
        named = []
        for node in left[:_NAMED]:
            reasons = [answer.reason for answer in method.plan.verdicts[node].values() if answer.reason]
            named.append(f"{describe_node(node)}{': ' + reasons[0] if reasons else ''}")
        more = f" (and {len(left) - _NAMED} more)" if len(left) > _NAMED else ""
        raise UnsupportedError(
            f"the backend leaves {len(left)} operators: {'; '.join(named)}{more}",
            where=where,
            hint="`lower` runs them on the runtime's own operators",
        )
    if edge.buffers:
        raise UnsupportedError(
            f"updates buffers: {', '.join(b.name for b in edge.buffers.values())}",
            where=where,
            hint="a lowered module has no state; lower the whole program instead",
        )
    if len(method.delegates) != 1:
        raise UnsupportedError(f"became {len(method.delegates)} delegates, not one", where=where)
    (delegate,) = method.delegates
    for item in edge.outputs:
        if item not in delegate.partition.outputs:
            raise UnsupportedError(
                f"returns {item}, which the delegate does not compute",
                where=where,
                hint="return only tensors that the module computes",
            )
    if not delegate.partition.inputs:
        raise UnsupportedError("has no tensor among its inputs that it uses", where=where)
    return delegate


def _key(delegate: Delegate) -> str:
    digest = hashlib.sha256()
    for part in delegate.blob:
        digest.update(part)
    for spec in delegate.compile_specs:
        digest.update(spec.key.encode() + b"\0" + spec.value)
    for named in delegate.named_data:
        digest.update(named.key.encode())
    return f"{delegate.chosen.backend.name}-{digest.hexdigest()[:32]}"
