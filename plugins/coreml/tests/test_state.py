"""Buffers that a program updates, as state of the delegate."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_conformance.models import tiny_llama
from delegatekit_coreml.blob.package import read_package
from delegatekit_coreml.blob.reader import read_model
from delegatekit_coreml.blob.weights import WeightFile
from delegatekit_toolkit.accuracy import ROUNDOFF, tolerance


class Cache(nn.Module):
    """Rows of a cache are written at a position that is an input; all of it is read."""

    def __init__(self, initial: float = 0.0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.rows = nn.Buffer(torch.full((1, 6, 4), initial, dtype=dtype))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> Any:
        self.rows.index_copy_(1, place, x.to(self.rows.dtype))
        return self.rows.float().softmax(1) @ x.mT, self.rows.sum(1)


def calls() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(1, 1, 4, generator=generator), torch.tensor([place])) for place in (0, 1, 3, 5, 1)]


def lowered(model: nn.Module, **options: Any) -> tuple[Any, set[str]]:
    """The program, and the states of its delegates."""
    program = delegatekit.lower(
        model.eval(), calls()[0], backends=["coreml"], options={"coreml": {"target": "ios18", **options}}
    )
    return program, states_of(program)


def states_of(program: Any) -> set[str]:
    found: set[str] = set()
    for delegate in program.methods["forward"].delegates:
        package = read_package(b"".join(map(bytes, delegate.blob)))
        found |= set(read_model(package.model, WeightFile(package.weights)).function.states)
    return found


def check(program: Any, model: nn.Module) -> None:
    """Check that all calls agree with eager: rows are rounded to float16, sums of them once more."""
    limit = tolerance("float32", "float16", 1)
    method = delegatekit.load(program.buffer)["forward"]
    for inputs in calls():
        for found, wanted in zip(method(*inputs), model(*inputs), strict=True):
            torch.testing.assert_close(found, wanted, rtol=limit, atol=limit)


@pytest.mark.parametrize(
    ("options", "states"),
    [
        ({}, {"b_rows"}),
        ({"target": "ios17"}, set()),
        ({"state": False}, set()),
        ({"precision": "float32"}, set()),
    ],
)
def test_what_is_kept(options: dict[str, Any], states: set[str]) -> None:
    program, found = lowered(Cache(), **options)
    assert found == states
    check(program, Cache())


def test_a_buffer_of_float16_is_kept_in_float32_precision_too() -> None:
    program, found = lowered(Cache(dtype=torch.float16), precision="float32")
    assert found == {"b_rows"}
    check(program, Cache(dtype=torch.float16))


def test_a_buffer_that_does_not_begin_with_zeros_stays_outside() -> None:
    program, found = lowered(Cache(0.5))
    assert not found
    check(program, Cache(0.5))


def test_handles_have_states_of_their_own_and_reset_clears_them() -> None:
    program = delegatekit.load(lowered(Cache())[0].buffer)
    first, second = program["forward"], program.new_method("forward")
    x, place = calls()[0]
    once = first(x, place)[1].clone()
    twice = first(x, place + 1)[1].clone()
    assert not torch.equal(once, twice)
    assert torch.equal(second(x, place)[1], once)
    first.reset()
    assert torch.equal(first(x, place)[1], once)


class Rows(nn.Module):
    """Writes a row at a computed position, and rows at known ones."""

    def forward(self, x: torch.Tensor, place: torch.Tensor, row: torch.Tensor) -> Any:
        known = x.clone()
        known[:, 1:3] = row
        put = torch.ops.aten.index_put
        return put(x, [None, place], row), known, put(x > 0, [None, place], row > 0)


@pytest.mark.parametrize("axes", [0, 1])
@pytest.mark.parametrize("place", [0, -1, 3])
def test_a_row_of_a_cache_is_written_in_place(place: int, axes: int) -> None:
    inputs = torch.randn(2, 6, 4), torch.full((1,) * axes, place), torch.randn(2, *(1,) * axes, 4)[..., :1]
    for target, count in (("ios17", 0), ("ios18", 3)):
        program = delegatekit.lower(Rows(), inputs, backends=["coreml"], options={"coreml": {"target": target}})
        (delegate,) = program.methods["forward"].delegates
        package = read_package(b"".join(map(bytes, delegate.blob)))
        kinds = [item.kind for item in read_model(package.model, WeightFile(package.weights)).function.operations]
        assert kinds.count("slice_update") == count and ("scatter_nd" in kinds) is (count == 0)
        method = delegatekit.load(program.buffer)["forward"]
        for found, wanted in zip(method(*inputs), Rows()(*inputs), strict=True):
            # Nothing is computed: numbers are rounded to float16 once.
            torch.testing.assert_close(found, wanted, rtol=ROUNDOFF["float16"], atol=2.0**-25)


@pytest.mark.parametrize("target", ["ios17", "ios18"])
def test_a_language_model_with_a_cache_generates_what_eager_does(target: str) -> None:
    pytest.importorskip("transformers")
    model, token = tiny_llama(16), torch.tensor([[3]])
    program = delegatekit.lower(model, (token,), backends=["coreml"], options={"coreml": {"target": target}})
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1, str(delegatekit.report(program))
    states = states_of(program)
    assert len(states) == (8 if target == "ios18" else 0)
    step = delegatekit.load(program.buffer)["forward"]
    model.reset()
    limit = tolerance("float32", "float16", 1, depth=2)
    for _ in range(12):
        with torch.no_grad():
            wanted = model(token)
        found = step(token)
        assert float((found - wanted).abs().max() / wanted.abs().max()) < limit
        token = wanted.argmax(-1, keepdim=True)
