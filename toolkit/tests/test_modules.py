"""Modules of calls, and patterns that name them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from delegatekit_api import OptionError
from delegatekit_toolkit.modules import check_modules, is_inside, module_paths
from delegatekit_toolkit.testing import call_of


class Twice(nn.Module):
    """Calls one of its modules twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.ReLU())])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers[0](self.layers[0](x) + 1)
        return found


def test_a_module_that_is_called_again_is_the_same() -> None:
    assert module_paths(call_of(Twice(), torch.ones(2))) == ("", "layers.0", "layers.0.0")


@pytest.mark.parametrize(
    ("pattern", "inside"),
    [
        ("layers.0", True),
        ("layers", True),
        ("layers.*.0", True),
        ("lay*", True),
        ("**.0", True),
        ("**", True),
        ("layer", False),
        ("layers.1", False),
        ("layers.0.0.0", False),
        ("*.*.*.*", False),
        ("0", False),
    ],
)
def test_a_pattern_means_a_module_and_all_that_is_in_it(pattern: str, inside: bool) -> None:
    assert is_inside("layers.0.0", pattern) is inside


def test_a_pattern_that_means_no_module_is_refused() -> None:
    call = call_of(Twice(), torch.ones(2))
    check_modules("slow", ["layers.*"], [call], "mine")
    with pytest.raises(OptionError, match=r"slow names 'layer', .*\n.*modules are layers\.0, layers\.0\.0"):
        check_modules("slow", ["layers", "layer"], [call], "mine")
    with pytest.raises(OptionError, match="has no modules"):
        check_modules("slow", ["layer"], [call_of(torch.relu, torch.ones(2))], "mine")
