"""A model's results in eager mode: the expected outputs of the program that it was lowered to."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from delegatekit.errors import WrongArgumentError, as_ours
from delegatekit_api import ExecutionError

from .cases import Case


class Eager:
    """One method of a model, given as `lower` takes it. Each call starts from the model's own buffers."""

    def __init__(
        self,
        model: Any,
        inputs: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        method: str,
    ) -> None:
        """Raises WrongArgumentError if the model has no such method."""
        methods = model if isinstance(model, Mapping) else {"forward": model}
        if method not in methods:
            raise WrongArgumentError(f"has no method {method!r}, only {', '.join(methods)}", where="model")
        self._model = methods[method]
        self._where = f"method {method} in eager mode"
        self._inputs, self._kwargs = inputs, kwargs
        if isinstance(self._model, ExportedProgram) and inputs is None and self._model.example_inputs is not None:
            self._inputs, self._kwargs = self._model.example_inputs

    @property
    def example(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The example inputs. Raises WrongArgumentError if there are none."""
        if self._inputs is None:
            raise WrongArgumentError("has no example inputs", where="model", hint="give input files")
        return tuple(self._inputs), dict(self._kwargs or {})

    def case(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Case:
        """A call with the model's results for it. Raises ExecutionError if it raises anything."""
        with as_ours(lambda fault: ExecutionError(fault, where=self._where)), torch.no_grad():
            is_program = isinstance(self._model, ExportedProgram)
            module = self._model.module() if is_program else copy.deepcopy(self._model)
            own_args, own_kwargs = pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, (tuple(args), dict(kwargs)))
            return Case(args, kwargs, module(*own_args, **own_kwargs))
