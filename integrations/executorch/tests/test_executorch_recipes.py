"""Recipes of `executorch.export`."""

from __future__ import annotations

import pytest
import torch
from executorch.export import ExportRecipe, export, recipe_registry
from pipelines import close, run
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import delegatekit
from delegatekit.plugins import backends, get_backend
from delegatekit_api import OptionError, PluginError
from delegatekit_executorch import quantizer
from delegatekit_executorch.recipes import recipe

X = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


def converted(scheme: str) -> nn.Module:
    """The model, quantized by PT2E without a recipe, from the same example."""
    prepared = prepare_pt2e(torch.export.export(model(), (X,)).module(), quantizer("xnnpack", scheme))
    prepared(X)
    quantized: nn.Module = convert_pt2e(prepared)
    return quantized


def test_every_backend_has_a_recipe_for_each_scheme() -> None:
    for name in backends(check=False):
        offered = [str(item.value) for item in recipe_registry.get_supported_recipes(f"delegatekit:{name}")]
        assert offered == ["float", *(scheme.name for scheme in get_backend(name).quantization_schemes())]


@pytest.mark.parametrize("scheme", ["float", "int8", "int8-dynamic"])
def test_a_recipe_exports(scheme: str) -> None:
    session = export(model(), [(X,)], ExportRecipe.get_recipe(recipe("xnnpack", scheme)))
    result = run(session.get_pte_buffer(), "xnnpack", (X,))
    module = model() if scheme == "float" else converted(scheme)
    program = torch.export.export(module, (X,))
    close(result, module(X), "xnnpack", program)
    assert torch.equal(result, run(delegatekit.lower(program, backends=["xnnpack"]).buffer, "xnnpack", (X,)))
    assert session.get_edge_program_manager().exported_program().graph_module.lowered_module_0.backend_id == (
        "XnnpackBackend"
    )


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(OptionError, match="no scheme 'int3'"):
        recipe("xnnpack", "int3")
    with pytest.raises(PluginError):
        recipe("vulcan")
