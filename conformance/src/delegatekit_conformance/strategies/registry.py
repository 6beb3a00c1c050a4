"""The operators that have a strategy, and their registration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeAlias

import hypothesis.strategies as st
from hypothesis.strategies import SearchStrategy

from ..recipe import Recipe
from .sketch import Sketch

#: Draws one recipe: gets the sketch to write on, which holds the dtype of the case.
Draw: TypeAlias = Callable[[Sketch], Recipe]


@dataclass(frozen=True)
class OperatorStrategy:
    """One operator, the dtypes that it is tested with, and the function that draws recipes that call it."""

    operator: str
    dtypes: tuple[str, ...]
    draw: Draw
    #: The module of this folder that defines it: the operator's family.
    family: str = ""

    def recipes(self, dtype: str) -> SearchStrategy[Recipe]:
        """A strategy of recipes whose main tensors have this dtype."""

        @st.composite
        def recipe(draw: Any) -> Recipe:
            return self.draw(Sketch(draw, dtype))

        return recipe()


_GRADIENT = "part of a gradient: programs for inference have none"
_SIZE = "its result is a size, no tensor: the room `dynamic` changes sizes from call to call"

#: Core ATen operators without a strategy -> why.
EXCLUDED: Mapping[str, str] = {
    "aten._adaptive_avg_pool2d_backward.default": _GRADIENT,
    "aten.avg_pool2d_backward.default": _GRADIENT,
    "aten.convolution_backward.default": _GRADIENT,
    "aten.embedding_dense_backward.default": _GRADIENT,
    "aten.max_pool2d_with_indices_backward.default": _GRADIENT,
    "aten.native_group_norm_backward.default": _GRADIENT,
    "aten.native_layer_norm_backward.default": _GRADIENT,
    "aten._fft_c2r.default": "takes complex numbers, which no tensor of the file can be",
    "aten._fft_r2c.default": "returns complex numbers, which no tensor of the file can be",
    "aten._local_scalar_dense.default": "its result is a number that depends on the data, no tensor",
    "aten._native_batch_norm_legit.default": "updates its running statistics in place, which only training does",
    "aten.atan2.out": "writes to an argument: torch.export makes it aten.atan2.default",
    "aten.resize_.default": "new elements are not defined",
    "aten.sym_is_contiguous.default": _SIZE,
    "aten.sym_numel.default": _SIZE,
    "aten.sym_size.int": _SIZE,
    "aten.sym_storage_offset.default": _SIZE,
    "aten.sym_stride.int": _SIZE,
}

_registered: dict[str, OperatorStrategy] = {}


def operator(*names: str, dtypes: Sequence[str]) -> Callable[[Callable[[Sketch, str], Recipe]], Any]:
    """Register a function as the strategy of one or several overloads ("aten.add.Tensor").

    The function gets the sketch and the overload's name. Registering an operator twice is an error.
    """

    def register(function: Callable[[Sketch, str], Recipe]) -> Callable[[Sketch, str], Recipe]:
        for name in names:
            if name in _registered:
                raise ValueError(f"{name} has two strategies")
            family = function.__module__.rpartition(".")[2]
            _registered[name] = OperatorStrategy(name, tuple(dtypes), _bound(function, name), family)
        return function

    return register


def _bound(function: Callable[[Sketch, str], Recipe], name: str) -> Draw:
    return lambda sketch: function(sketch, name)


@functools.cache
def load_operators() -> Mapping[str, OperatorStrategy]:
    """All operators by name, sorted: imports every module of this folder."""
    package = __name__.rpartition(".")[0]
    paths = import_module(package).__path__
    for module in iter_modules(paths):
        import_module(f"{package}.{module.name}")
    return dict(sorted(_registered.items()))
