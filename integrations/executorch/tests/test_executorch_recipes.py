"""Recipes of `executorch.export`."""

from __future__ import annotations

import pytest
import torch
from executorch.export import ExportRecipe, export, recipe_registry
from pipelines import close, run
from torch import nn

from delegatekit.plugins import backends, get_backend
from delegatekit_api import OptionError, PluginError
from delegatekit_executorch.recipes import recipe

X = torch.randn(2, 8)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


def test_every_backend_has_a_recipe_for_each_scheme() -> None:
    for name in backends(check=False):
        offered = [str(item.value) for item in recipe_registry.get_supported_recipes(f"delegatekit:{name}")]
        assert offered == ["float", *(scheme.name for scheme in get_backend(name).quantization_schemes())]


@pytest.mark.parametrize("scheme", ["float", "int8", "int8-dynamic"])
def test_a_recipe_exports(scheme: str) -> None:
    session = export(model(), [(X,)], ExportRecipe.get_recipe(recipe("xnnpack", scheme)))
    result = run(session.get_pte_buffer(), "xnnpack", (X,))
    if scheme == "float":
        close(result, model()(X), "xnnpack")
    else:
        torch.testing.assert_close(result, model()(X), atol=0.05, rtol=0)
    assert session.get_edge_program_manager().exported_program().graph_module.lowered_module_0.backend_id == (
        "XnnpackBackend"
    )


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(OptionError, match="no scheme 'int3'"):
        recipe("xnnpack", "int3")
    with pytest.raises(PluginError):
        recipe("vulcan")
