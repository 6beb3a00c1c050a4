"""A whole module as one delegate, callable in Python and usable inside bigger modules."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.fx import Node
from torch.utils._pytree import tree_flatten, tree_unflatten, treespec_loads

from delegatekit_api import DelegateKitError, ExecutionError, UnsupportedError

from ..edge import EdgeMethod
from ..edge.precompiled import Precompiled, call_delegate, hold, register
from ..engine import Method, load
from ..errors.foreign import as_ours
from ..lowering import Delegate, partition_program, plan_of
from ..lowering.shapes import DelegateShapes
from ..partition import PartitionedMethod
from ..pte.segments import digest
from .program import LoweredProgram


class LoweredModule(torch.nn.Module):
    """A module whose forward is one compiled delegate.

    Called in Python it runs the delegate in the backend's runtime; calls from several threads wait for each other. It
    takes the sizes that it was lowered for, and has no gradients. In torch.export it is one operator, which lowering
    replaces by the delegate. The delegate is released when neither the module, nor a copy of it, nor a program that
    was exported with it is left. `backend` is the backend's name.
    """

    def __init__(self, program: LoweredProgram) -> None:
        """Raises UnsupportedError if the program is not one functional method in one delegate."""
        super().__init__()
        if len(program.methods) != 1:
            raise UnsupportedError(f"has {len(program.methods)} methods, a lowered module has one", where="program")
        (method,) = program.methods.values()
        edge = method.edge
        backend, *_ = (*(partition.backend for partition in method.plan.partitions), *program.backends, "")
        check_whole(PartitionedMethod(edge, method.plan), backend)
        if not edge.input_structure or not edge.output_structure:
            raise UnsupportedError(
                "has inputs or outputs of a type without a serialized form", where=f"method {edge.name}"
            )
        if not method.delegates:
            what = f"backend {backend} makes calls of runtime operators, and a lowered module has one delegate"
            raise UnsupportedError(what, where=f"method {edge.name}", hint="lower the whole program instead")
        (delegate,) = method.delegates
        self.backend = delegate.chosen.backend.name
        self._program = program
        self._input_structure = treespec_loads(edge.input_structure)
        self._output_structure = treespec_loads(edge.output_structure)
        #: Position among the inputs, or the name of a constant, for each input of the delegate.
        self._sources = [
            edge.inputs.index(node) if node in edge.inputs else f"_constant_{place}"
            for place, node in enumerate(delegate.partition.inputs)
        ]
        self._constants = {
            source: edge.constants[node]
            for source, node in zip(self._sources, delegate.partition.inputs, strict=True)
            if isinstance(source, str)
        }
        #: Position among the inputs -> the number, text or None that the module was exported for.
        self._fixed = {
            position: node.meta["val"]
            for position, node in enumerate(edge.inputs)
            if not isinstance(node.meta["val"], torch.Tensor)
        }
        self._results = [_Result.of(item, edge, delegate) for item in edge.outputs]
        shapes = DelegateShapes(partition_program(edge, delegate.partition))
        self._key = _key(delegate, shapes, self._constants)
        self._compiled = register(
            self._key, Precompiled(_Runner(program, edge, delegate, shapes).run, shapes.infer, delegate)
        )
        self._hold_token()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's outputs, computed by the delegate. Raises ExecutionError for inputs that it cannot take."""
        flat, structure = tree_flatten((args, self._ordered(kwargs)))
        if structure != self._input_structure:
            raise ExecutionError(
                f"got inputs of structure {structure}, not {self._input_structure}", where="lowered module"
            )
        for position, value in self._fixed.items():
            given = flat[position]
            if type(given) is not type(value) or given != value:
                raise ExecutionError(
                    f"was lowered for the value {value!r}, got {given!r}", where=f"lowered module, input {position}"
                )
        with as_ours(lambda fault: ExecutionError(fault, where="lowered module")):
            given = [getattr(self, item) if isinstance(item, str) else flat[item] for item in self._sources]
            found = call_delegate(given, self._key)
        results = [result.pick(found, flat) for result in self._results]
        return tree_unflatten(results, self._output_structure)

    def program(self) -> LoweredProgram:
        """The module as a program of its own."""
        return self._program

    def save(self, path: str | Path) -> tuple[Path, ...]:
        """Write the module as a .pte file of its own."""
        return self._program.save(path)

    def __deepcopy__(self, memo: dict[int, Any]) -> LoweredModule:
        """A module that calls the same delegate."""
        copy = LoweredModule.__new__(LoweredModule)
        torch.nn.Module.__init__(copy)
        for name in (
            *("backend", "training", "_program", "_input_structure", "_output_structure", "_sources", "_constants"),
            *("_fixed", "_results", "_key", "_compiled"),
        ):
            setattr(copy, name, getattr(self, name))
        copy._hold_token()
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise DelegateKitError(
            "cannot be pickled", where="lowered module", hint="`save` writes a .pte; to_backend makes it anew elsewhere"
        )

    def _hold_token(self) -> None:
        # A program that is exported with the module has its buffers, and so keeps the delegate alive.
        token = torch.zeros(1, dtype=torch.uint8)
        hold(token, self._compiled)
        self.register_buffer("_token", token, persistent=False)
        for name, constant in self._constants.items():
            self.register_buffer(name, constant, persistent=False)

    def _ordered(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments in the order in which the module was exported."""
        names = self._input_structure.children()[1].context or []
        return {name: kwargs[name] for name in names if name in kwargs} | kwargs


@dataclass(frozen=True)
class _Result:
    """The source of an output of the module: an output of the delegate, an input of the module, or a literal."""

    kind: str
    value: Any

    @classmethod
    def of(cls, item: Any, edge: EdgeMethod, delegate: Delegate) -> _Result:
        if not isinstance(item, Node):
            return cls("literal", item)
        if item in edge.inputs:
            return cls("input", edge.inputs.index(item))
        return cls("output", delegate.partition.outputs.index(item))

    def pick(self, outputs: Sequence[torch.Tensor], inputs: Sequence[Any]) -> Any:
        if self.kind == "literal":
            return self.value
        return (outputs if self.kind == "output" else inputs)[self.value]


class _Runner:
    """Runs a delegate in this process: in an engine of its own, made at the first call."""

    def __init__(self, program: LoweredProgram, edge: EdgeMethod, delegate: Delegate, shapes: DelegateShapes) -> None:
        self._program = program
        self._backend = delegate.chosen.backend
        self._shapes = shapes
        self._lock = threading.Lock()
        self._method: Method | None = None
        #: Position among the method's inputs for each of the delegate's; None for a constant.
        self._inputs = [edge.inputs.index(node) if node in edge.inputs else None for node in delegate.partition.inputs]
        self._outputs = [edge.outputs.index(node) for node in delegate.partition.outputs]
        self._given = [node.meta["val"] for node in edge.inputs]

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The delegate's outputs."""
        self._shapes.check(inputs)
        with self._lock:
            if self._method is None:
                backend = self._backend  # what finalizes this object must not keep it
                loaded = load(self._program.buffer, find_backend=lambda delegate_id: backend)
                self._method = loaded[next(iter(self._program.methods))]
                weakref.finalize(self, self._method.close)  # at once, not when a cycle is collected
                for position, spec in enumerate(self._method.inputs):
                    if spec is not None and position not in self._inputs:  # nothing uses it
                        self._given[position] = torch.zeros(spec.shape, dtype=self._given[position].dtype)
            flat = list(self._given)
            for place, value in zip(self._inputs, inputs, strict=True):
                if place is not None:
                    flat[place] = value.detach()
            results = self._method.run(flat)
            return [results[position].clone() for position in self._outputs]


def check_whole(method: PartitionedMethod, backend: str) -> None:
    """Raise UnsupportedError, with the reasons, unless the method is one delegate of a backend and nothing else."""
    edge, plan, where = method.edge, method.plan, f"method {method.edge.name}"
    if edge.buffers:
        raise UnsupportedError(
            f"updates buffers: {', '.join(b.name for b in edge.buffers.values())}",
            where=where,
            hint="a lowered module has no state; lower the whole program instead",
        )
    if outside := plan_of(method, backend).left:
        raise UnsupportedError(
            f"the backend leaves {outside}", where=where, hint="`lower` runs them on the runtime's own operators"
        )
    if len(plan.partitions) != 1:
        what = f"would be {len(plan.partitions)} delegates, not one" if plan.partitions else "computes nothing"
        raise UnsupportedError(what, where=where)
    (partition,) = plan.partitions
    for item in edge.outputs:
        if isinstance(item, Node) and item not in partition.outputs and item not in edge.inputs:
            raise UnsupportedError(
                f"returns {item.meta.get('fqn', item.name)}, which the delegate does not compute",
                where=where,
                hint="return only tensors that the module computes, and its inputs",
            )
    if all(node in edge.constants for node in partition.inputs):
        raise UnsupportedError("has no tensor among its inputs that it uses", where=where)


def _key(delegate: Delegate, shapes: DelegateShapes, constants: Mapping[str, torch.Tensor]) -> str:
    """A name for all that the delegate is: equal ones are interchangeable."""
    found = hashlib.sha256()
    parts: list[tuple[str, Any]] = [(delegate.chosen.backend.description.delegate_id, delegate.blob)]
    parts += [(spec.key, spec.value) for spec in delegate.compile_specs]
    parts += [(named.key, named.data) for named in delegate.named_data]
    parts += list(constants.items())
    for name, data in (*parts, (str(shapes), b"")):
        found.update(hashlib.sha256(name.encode()).digest() + digest(data))
    return f"{delegate.chosen.backend.name}-{found.hexdigest()[:32]}"
