"""Recipes of `executorch.export` for every installed DelegateKit backend; importing this module registers them.

    from delegatekit_executorch.recipes import recipe
    session = export(model, [inputs], ExportRecipe.get_recipe(recipe("acme", "int8")))

The recipes of a backend are those of `delegatekit:NAME` in ExecuTorch's registry: "float", and one for each scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from executorch.export import (
    BackendRecipeProvider,
    ExportRecipe,
    LoweringRecipe,
    QuantizationRecipe,
    RecipeType,
    recipe_registry,
)

from delegatekit.plugins import backends, get_backend
from delegatekit_api import DelegateKitError, OptionError

from .partitioning import partitioner
from .quantizing import quantizer

#: The recipe without quantization.
FLOAT: Final = "float"
_PREFIX: Final = "delegatekit:"


class Recipes(BackendRecipeProvider):  # type: ignore[misc]
    """The recipes of one backend."""

    def __init__(self, backend: str) -> None:
        self.backend = backend

    @property
    def backend_name(self) -> str:
        """ "delegatekit:acme"."""
        return f"{_PREFIX}{self.backend}"

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        """Float, and one for each quantization scheme."""
        found: Any = _types(self.backend)
        return list(found)

    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
        """The recipe of a type; None for a type of another backend.

        `kwargs` are options of the backend, and for a scheme those of `quantizer`. Raises as `partitioner` and
        `quantizer` do.
        """
        if recipe_type not in self.get_supported_recipes():
            return None
        scheme = str(recipe_type.value)
        quantization = None
        options = dict(kwargs)
        if scheme != FLOAT:
            quantization = QuantizationRecipe(quantizers=[quantizer(self.backend, scheme, **kwargs)])
            for name in ("keep_float", "group_size", "qat"):
                options.pop(name, None)
        return ExportRecipe(
            name=f"{self.backend_name}:{scheme}",
            quantization_recipe=quantization,
            lowering_recipe=LoweringRecipe(partitioners=[partitioner(self.backend, **options)]),
        )


@cache
def _types(backend: str) -> Any:
    """The recipe types of a backend, as an enumeration of "float" and its schemes."""
    try:
        schemes = [scheme.name for scheme in get_backend(backend).quantization_schemes()]
    except DelegateKitError:
        schemes = []  # a broken plugin has a recipe, whose use tells what is wrong
    names = {name.upper().replace("-", "_"): name for name in (FLOAT, *schemes)}
    types: Any = RecipeType
    found = types(f"DelegateKit_{backend}", names)
    found.get_backend_name = classmethod(lambda cls: f"{_PREFIX}{backend}")
    return found


def recipe(backend: str, scheme: str = FLOAT) -> RecipeType:
    """The recipe type of a backend and one of its schemes, or without quantization.

    Raises PluginError for an unknown backend, OptionError for an unknown scheme.
    """
    get_backend(backend)
    found = {str(item.value): item for item in _types(backend)}
    if scheme not in found:
        raise OptionError(f"no scheme {scheme!r}", where=f"backend {backend}", hint=f"schemes: {', '.join(found)}")
    return found[scheme]


def register() -> None:
    """Register the recipes of all installed backends."""
    for backend in backends(check=False):
        recipe_registry.register_backend_recipe_provider(Recipes(backend))


register()
