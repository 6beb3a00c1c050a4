"""Every supported module compiles, and the compiled program returns the bits of Arm's reference model."""

from __future__ import annotations

import random

import pytest
from drawn_modules import draw

import delegatekit
from delegatekit_api import QuantizationError
from delegatekit_ethosu.targets import TARGETS
from delegatekit_toolkit.tosa.reference import availability

pytestmark = pytest.mark.skipif(not availability().available, reason=availability().reason)

U55 = [name for name, target in TARGETS.items() if target.family == "u55"]
OTHERS = [name for name in TARGETS if name not in U55]
_EACH = 25


def check(seed: int, scheme: str) -> None:
    module, x = draw(seed)
    try:
        quantized = delegatekit.quantize(module, [(x,)], backend="ethosu", scheme=scheme, progress=False)
    except QuantizationError as error:
        assert "quantizes nothing" in str(error)  # All of its layers only move values.
        return
    chance = random.Random(seed)
    for options in ({"target": chance.choice(U55), "verify": True}, {"target": chance.choice(OTHERS)}):
        delegatekit.lower(quantized, (x,), backends=["ethosu"], options={"ethosu": options})


@pytest.mark.parametrize("scheme", ["int8", "int16"])
def test_a_few_drawn_modules_are_compiled_right(scheme: str) -> None:
    for seed in range(6):
        check(seed, scheme)


def test_a_tensor_and_another_shape_of_it_are_both_returned() -> None:
    check(1434, "int16")


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1500, _EACH))
@pytest.mark.parametrize("scheme", ["int8", "int16"])
def test_drawn_modules_are_compiled_right(scheme: str, start: int) -> None:
    for seed in range(start, start + _EACH):
        check(seed, scheme)
