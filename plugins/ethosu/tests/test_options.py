"""Options of the backend."""

from __future__ import annotations

import pytest

from delegatekit_api import OptionError
from delegatekit_ethosu.options import EthosUOptions


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("target", "ethos-u55-100", "not one of the choices"),
        ("optimize", "speed", "not one of the choices"),
        ("arena_limit", "0", "not between"),
        ("vela_flags", "--config=x", "--config is not among --disable-chaining"),
        ("vela_flags", "--tensor-allocator", "needs a value"),
        ("vela_flags", "--disable-fwd=1", "takes no value"),
        ("vela_flags", "--tensor-allocator=Greedy", "--tensor-allocator=Greedy is not HillClimb or LinearAlloc"),
        ("vela_flags", "--cpu-tensor-alignment=48", "is not a power of two from 16 on"),
        ("vela_flags", "--cpu-tensor-alignment=-16", "is not a power of two"),
        ("vela_flags", "--cop-format=cop1", "is not COP1 or COP2"),
        ("vela_flags", "--experimental-softmax-int16-neg-exp-range=65535", "is not between 0 and 65535"),
        ("vela_flags", "--experimental-softmax-int16-neg-exp-range=x", "is not a number"),
    ],
)
def test_options_are_checked(name: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        EthosUOptions.from_mapping({name: value}, backend="ethosu")
