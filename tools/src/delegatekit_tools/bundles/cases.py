"""One call of a method with its expected outputs, checked against the method's signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

from delegatekit.engine import Inputs, inputs_of, read_input_structure, tensor_spec
from delegatekit.errors import UnknownMethodError
from delegatekit.pte import PteFile, schema
from delegatekit_api import ExecutionError, TensorSpec

from . import schema as tables
from .values import to_value

#: The field of each kind of stored value; None has no value in a bundle's inputs.
_KINDS = {schema.Int: "int_val", schema.Bool: "bool_val", schema.Double: "double_val", schema.String: "string_val"}


@dataclass(frozen=True)
class Case:
    """One call: the module's own arguments, and its results for them, in the structure that it returns.

    `expected` None: the Python engine computes it; an empty tuple: nothing is expected, the case is only run.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: Any = None


class Signature:
    """The inputs and outputs of a method of a file, read without preparing its delegates."""

    def __init__(self, file: PteFile, name: str) -> None:
        """Raises UnknownMethodError if the file has no such method."""
        plans = {str(plan.name): plan for plan in file.program.execution_plan or ()}
        if name not in plans:
            raise UnknownMethodError(f"there is no method {name!r} (methods: {', '.join(plans)})")
        self.name = name
        self._file, self._plan = file, plans[name]
        values = [value.val for value in self._plan.values or ()]
        self._inputs = [values[index] for index in self._plan.inputs or ()]
        self._outputs = [values[index] for index in self._plan.outputs or ()]

    @property
    def inputs(self) -> tuple[TensorSpec | None, ...]:
        """Specs of the flat inputs; None for an input that is not a tensor."""
        return tuple(map(tensor_spec, self._inputs))

    @property
    def fixed_inputs(self) -> dict[int, Any]:
        """Position of an input that is not a tensor -> the value that the method was lowered for."""
        return {
            index: getattr(value, _KINDS.get(type(value), ""), None)
            for index, value in enumerate(self._inputs)
            if not isinstance(value, schema.Tensor)
        }

    @property
    def output_count(self) -> int:
        """Number of flat outputs of the method."""
        return len(self._outputs)

    def unflatten(self, flat: Sequence[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Positional and keyword arguments of flat inputs; all of them positional if their structure is unknown."""
        container = self._plan.container_meta_type
        structure = read_input_structure(container.encoded_inp_str if container is not None else None)
        if structure is None or structure.num_leaves != len(flat):
            return tuple(flat), {}
        args, kwargs = pytree.tree_unflatten(list(flat), structure)
        return args, kwargs

    def table(self, case: Case, expected: Sequence[Any], where: str) -> tables.TestCase:
        """The stored form of a case. Raises ExecutionError for arguments that the method does not accept."""
        flat = self.flatten(case)
        self._check(flat, where)
        if expected and len(expected) != len(self._outputs):
            raise ExecutionError(f"expects {len(expected)} outputs, the method has {len(self._outputs)}", where=where)
        return tables.TestCase(
            [
                to_value(item, _order(value), f"{where}, input {self._names.describe(index)}")
                for index, (item, value) in enumerate(zip(flat, self._inputs, strict=True))
            ],
            [
                to_value(item, _order(value), f"{where}, expected output {index}")
                for index, (item, value) in enumerate(zip(expected, self._outputs, strict=False))
            ],
        )

    def flatten(self, case: Case) -> list[Any]:
        """The flat inputs of a case."""
        return self._names.flatten(case.args, case.kwargs)

    @cached_property
    def _names(self) -> Inputs:
        return inputs_of(self._file, self._plan)

    def _check(self, flat: Sequence[Any], where: str) -> None:
        if len(flat) != len(self._inputs):
            raise ExecutionError(f"has {len(flat)} inputs, the method takes {len(self._inputs)}", where=where)
        for index, (item, value) in enumerate(zip(flat, self._inputs, strict=True)):
            place = f"{where}, input {self._names.describe(index)}"
            if isinstance(value, schema.Tensor):
                _check_tensor(item, value, place)
            elif isinstance(value, schema.Null) or item is None:
                raise ExecutionError(
                    "is None, for which bundles have no value",
                    where=place,
                    hint="lower the model for a call without this argument",
                )
            else:
                fixed = self.fixed_inputs[index]
                if type(item) is not type(fixed) or item != fixed:
                    raise ExecutionError(f"was lowered for the value {fixed!r}, got {item!r}", where=place)


def _check_tensor(item: Any, value: schema.Tensor, where: str) -> None:
    spec = tensor_spec(value)
    assert spec is not None
    if not isinstance(item, torch.Tensor):
        _refuse(f"is a {type(item).__name__}, not a tensor", where)
    if str(item.dtype).removeprefix("torch.") != spec.dtype:
        _refuse(f"has dtype {item.dtype}, not torch.{spec.dtype}", where)
    sizes = value.sizes or []
    changes = value.shape_dynamism != schema.TensorShapeDynamism.STATIC
    fits = len(sizes) == item.dim() and all(
        given <= most if changes else given == most for given, most in zip(item.shape, sizes, strict=True)
    )
    if not fits:
        _refuse(f"has shape {tuple(item.shape)}, not {'up to ' if changes else ''}{tuple(sizes)}", where)


def _refuse(what: str, where: str) -> NoReturn:
    raise ExecutionError(what, where=where)


def _order(value: Any) -> Sequence[int] | None:
    return list(value.dim_order or b"") if isinstance(value, schema.Tensor) else None
