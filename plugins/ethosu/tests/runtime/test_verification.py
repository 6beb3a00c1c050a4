"""Miscompiled programs are refused: with a compiler's real error, and with damaged ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_api import LoweringError, OptionError
from delegatekit_ethosu import compile
from delegatekit_ethosu.compiler import Compiled, compile_program
from delegatekit_ethosu.ir import emission
from delegatekit_toolkit.tosa.reference import availability

reference = pytest.mark.skipif(not availability().available, reason=availability().reason)


class Halves(nn.Module):
    """A block of several samples before padding."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 1), nn.Conv2d(5, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)[:, 2:7])


@pytest.fixture(scope="module")
def halves() -> tuple[Any, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    x = torch.randn(2, 8, 10, 9)
    return delegatekit.quantize(Halves().eval(), [(x,)], backend="ethosu"), (x,)


def lower(model: Any, **options: Any) -> Any:
    return delegatekit.lower(*model, backends=["ethosu"], options={"ethosu": options})


@reference
@pytest.mark.parametrize("target", ["ethos-u55-32", "ethos-u55-256"])
def test_right_programs_are_the_same_bytes(halves: Any, target: str) -> None:
    assert lower(halves, target=target, verify=True).buffer == lower(halves, target=target).buffer


@reference
def test_a_miscompiled_program_is_refused(halves: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The lowering's workaround for a miscompilation by Vela (5.1).
    monkeypatch.setattr(emission, "_is_misread", lambda operator, x: False)
    lower(halves)
    with pytest.raises(LoweringError, match=r"numbers of .* are not those of the TOSA program"):
        lower(halves, verify=True)


def test_commands_that_leave_the_memory_are_refused(halves: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_small(*arguments: Any) -> Compiled:
        made = compile_program(*arguments)
        return Compiled(**{**vars(made), "read_only": made.read_only[:16]})

    monkeypatch.setattr(compile, "compile_program", too_small)
    with pytest.raises(LoweringError, match="the compiled program is wrong"):
        lower(halves)


def test_other_accelerators_are_not_verified(halves: Any) -> None:
    with pytest.raises(OptionError, match="no commands of the ethos-u85-256"):
        lower(halves, target="ethos-u85-256", verify=True)
