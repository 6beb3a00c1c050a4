"""The test helpers return what they are asked for, and accept nothing wrong."""

from __future__ import annotations

import math

import pytest
import torch

from delegatekit_api import BackendOptions, CompileSpec, NamedData, OptionError, PreprocessResult, TensorSpec
from delegatekit_toolkit.options import at_least, between, leave_out_option
from delegatekit_toolkit.testing import assert_same_bits, call_of, float32_tolerance, payload_of, signal_to_noise


def test_the_last_call_is_given() -> None:
    call = call_of(lambda x: torch.relu(x).sum(0), torch.ones(2, 3))
    assert (call.operator, call["dim"]) == ("aten.sum.dim_IntList", [0]) or call["dim"] == (0,)
    assert call.result.shape == (3,)


def test_a_payload_has_what_the_partition_has() -> None:
    compiled = PreprocessResult(
        [b"one", memoryview(b"two")],
        (CompileSpec("k", b"v"),),
        (NamedData("w", torch.arange(6, dtype=torch.int8).reshape(2, 3).T), NamedData("raw", b"1")),
    )
    payload = payload_of(compiled, outputs=[TensorSpec("int8", (1,))], named_data={"more": b"2"})
    assert bytes(payload.blob) == b"onetwo"
    assert payload.compile_specs == (CompileSpec("k", b"v"),)
    assert {key: bytes(value) for key, value in payload.named_data.items()} == {
        "w": bytes([0, 3, 1, 4, 2, 5]),
        "raw": b"1",
        "more": b"2",
    }
    assert payload.outputs == (TensorSpec("int8", (1,)),)
    with pytest.raises(NotImplementedError):
        payload.as_program(())


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (torch.zeros(2), torch.zeros(2).double()),
        (torch.zeros(2), torch.zeros(2, 1)),
        (torch.zeros(2), -torch.zeros(2)),
        (torch.ones(2), torch.ones(2) + 2**-23),
        (torch.ones(2), torch.tensor([1.0, math.nan])),
        (torch.ones(2).int(), torch.zeros(2).int()),
    ],
)
def test_other_bits_are_noticed(got: torch.Tensor, want: torch.Tensor) -> None:
    assert_same_bits(got, got.clone())
    with pytest.raises(AssertionError):
        assert_same_bits(got, want)


def test_all_nans_are_alike() -> None:
    other = torch.tensor([math.nan]).view(torch.int32) ^ 1
    assert_same_bits(torch.tensor([math.nan]), other.view(torch.float32))


def test_errors_have_sizes() -> None:
    assert float32_tolerance() == 10 * 2.0**-23
    assert signal_to_noise(torch.ones(2), torch.ones(2)) == math.inf
    assert signal_to_noise(torch.tensor([1.01]), torch.tensor([1.0])) == pytest.approx(40, abs=0.01)


def test_checks_of_options_speak() -> None:
    assert at_least(1)(0) == "it is not 1 or more"
    assert at_least(1)(None) is between(1, 3)(None) is between(1, 3)(3) is None
    assert between(1, 3)(4) == "it is not between 1 and 3"


def test_leave_out_is_a_set_of_names() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Options(BackendOptions):
        leave_out: frozenset[str] = leave_out_option()

    Options.__annotations__["leave_out"] = frozenset[str]
    assert Options.from_mapping({"leave_out": ["add", "aten.mul"]}).leave_out == {"add", "aten.mul"}
    with pytest.raises(OptionError, match="leave_out = 3 is not"):
        Options.from_mapping({"leave_out": 3})
