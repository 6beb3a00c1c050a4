"""Bundles: cases round-trip, comparisons are accurate, and damage is one clear error."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit.errors.misuse import UnknownMethodError
from delegatekit.pte import BUNDLE_IDENTIFIER
from delegatekit_api import DelegateKitError, ExecutionError, FormatError
from delegatekit_toolkit.flatbuffer import parse, serialize
from delegatekit_tools.bundles import schema as tables
from delegatekit_tools.bundles.file import Bundle, read_bundle, write_bundle


class Scaled(nn.Module):
    """Several types of inputs and outputs, and a dict."""

    def forward(self, pair: dict[str, torch.Tensor], *, count: int, twice: bool, shift: float) -> Any:
        y = pair["a"] * count * (2 if twice else 1) + shift
        return {"y": y, "flags": pair["b"] > 1, "count": count + 1}


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return self.count * 1


PAIR = {"a": torch.randn(2, 3), "b": torch.arange(4, dtype=torch.int8)}
FIXED = {"count": 3, "twice": True, "shift": 0.5}


def lowered(module: nn.Module, *args: Any, **more: Any) -> dk.LoweredProgram:
    kwargs, shapes = more.pop("kwargs", {}), more.pop("dynamic_shapes", None)
    exported = torch.export.export(module.eval(), args, kwargs, dynamic_shapes=shapes)
    return dk.lower(exported, backends=more.pop("backends", []))


@pytest.fixture(scope="module")
def scaled() -> bytes:
    return lowered(Scaled(), PAIR, kwargs=FIXED).buffer


def test_all_kinds_of_values_are_kept_and_verified(scaled: bytes) -> None:
    other = {"a": torch.ones(2, 3), "b": PAIR["b"]}
    cases = [dk.Case((PAIR,), FIXED, Scaled()(PAIR, **FIXED)), dk.Case((other,), FIXED)]
    made = dk.bundle(scaled, {"forward": cases})
    assert made.cases == {"forward": 2}
    found = dk.verify(made.buffer)
    assert found.passes and [item.case for item in found.results] == [0, 1]
    kinds = [type(value.val).__name__ for value in read_bundle(made.buffer).cases["forward"][0].inputs or ()]
    assert kinds == ["Tensor", "Tensor", "Int", "Bool", "Double"]


def test_a_bundle_is_loaded_run_and_described_as_its_program(scaled: bytes, tmp_path: Path) -> None:
    path = dk.bundle(scaled, {"forward": [dk.Case((PAIR,), FIXED)]}).save(tmp_path / "x.bpte")
    torch.testing.assert_close(dk.load(path)["forward"](PAIR, **FIXED), Scaled()(PAIR, **FIXED))
    described = dk.inspect(path)
    assert described.cases == {"forward": 1} and "cases of forward 1" in str(described)
    assert described.methods == dk.inspect(scaled).methods


def test_the_program_is_stored_as_it_is_and_aligned_as_its_segments(scaled: bytes) -> None:
    data = dk.bundle(scaled, {"forward": [dk.Case((PAIR,), FIXED)]}).buffer
    assert bytes(read_bundle(data).program) == scaled
    assert data.index(scaled) % 128 == 0 and data.endswith(scaled)


def test_equal_calls_give_equal_bytes(scaled: bytes) -> None:
    one, two = (dk.bundle(scaled, {"forward": [dk.Case((PAIR,), FIXED)]}).buffer for _ in range(2))
    assert one == two


def test_cases_are_added_to_those_of_a_bundle(scaled: bytes) -> None:
    first = dk.bundle(scaled, {"forward": [dk.Case((PAIR,), FIXED)]})
    second = dk.bundle(first.buffer, {"forward": [dk.Case((PAIR,), FIXED, ())]})
    assert second.cases == {"forward": 2}
    results = dk.verify(second.buffer).results
    assert [item.expects for item in results] == [True, False] and "nothing is expected" in str(results[1])


def test_methods_have_cases_of_their_own() -> None:
    x = torch.ones(3)
    programs = {name: torch.export.export(module, (x,)) for name, module in (("b", nn.ReLU()), ("a", nn.Tanh()))}
    program = dk.lower(programs, backends=[]).buffer
    data = dk.bundle(program, {"b": [dk.Case((x,), {}, x)], "a": [dk.Case((x,), {}, x)]}).buffer
    found = {item.method: item.passes for item in dk.verify(data).results}
    assert list(found.items()) == [("a", False), ("b", True)]  # tanh(1) is not 1
    assert [item.method for item in dk.verify(data, methods=["b"]).results] == ["b"]
    with pytest.raises(UnknownMethodError, match="no cases of a method 'c'"):
        dk.verify(data, methods=["c"])


def test_every_case_begins_with_the_initial_buffers() -> None:
    program = lowered(Counter(), torch.ones(2)).buffer
    cases = [dk.Case((torch.ones(2),)), dk.Case((torch.full((2,), 5.0),))]
    data = dk.bundle(program, {"forward": cases}).buffer
    assert dk.verify(data).passes
    stored = [case.expected_outputs or [] for case in read_bundle(data).cases["forward"]]
    content = [bytes(item[0].val.data or b"") for item in stored if isinstance(item[0].val, tables.Tensor)]
    assert content == [torch.full((2,), value).numpy().tobytes() for value in (1.0, 5.0)]


def test_sizes_may_be_any_that_the_method_takes() -> None:
    rows = torch.export.Dim("rows", min=2, max=8)
    program = lowered(nn.ReLU(), torch.ones(3, 2), dynamic_shapes=({0: rows},)).buffer
    cases = [dk.Case((torch.randn(count, 2),)) for count in (2, 8)]
    assert dk.verify(dk.bundle(program, {"forward": cases}).buffer).passes
    with pytest.raises(ExecutionError, match=r"input input: has shape \(9, 2\), not up to \(8, 2\)"):
        dk.bundle(program, {"forward": [dk.Case((torch.ones(9, 2),), {}, ())]})


def test_channels_last_inputs_are_stored_in_the_order_of_the_program() -> None:
    x = torch.randn(1, 3, 4, 5)
    program = lowered(nn.ReLU(), x.to(memory_format=torch.channels_last)).buffer
    data = dk.bundle(program, {"forward": [dk.Case((x,), {}, x.relu())]}).buffer
    (case,) = read_bundle(data).cases["forward"]
    (value,) = case.inputs or ()
    assert isinstance(value.val, tables.Tensor) and list(value.val.dim_order or b"") == [0, 2, 3, 1]
    assert bytes(value.val.data or b"") == x.permute(0, 2, 3, 1).contiguous().numpy().tobytes()
    assert dk.verify(data).passes


# -- comparing -------------------------------------------------------------------------------------------------------


def verified(got: torch.Tensor, want: Any, **bounds: float) -> dk.Verification:
    """A bundle of a program that returns its input, with a different expected output."""

    class Same(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flip(0)

    program = lowered(Same(), got).buffer
    return dk.verify(dk.bundle(program, {"forward": [dk.Case((got.flip(0),), {}, want)]}).buffer, **bounds)


def test_where_it_differs_is_told() -> None:
    want = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    got = want.clone()
    got[1, 0], got[0, 0] = 3.5, 1.0005
    found = verified(got, want)
    assert not found.passes and found.results[0].largest == 0.5
    (difference,) = found.results[0].differences
    assert difference.what == "3.5 instead of 3 at [1, 0]; 1 of 4 values differ, by 0.5 at most"
    assert "1 case: 1 not as expected (atol 1e-05, rtol 0.001)" in str(found)
    assert verified(got, want, rtol=0.2).passes and not verified(got, want, rtol=0.0).passes


@pytest.mark.parametrize(
    ("got", "want", "passes"),
    [
        ([math.nan, 1.0], [math.nan, 1.0], True),
        ([math.nan, 1.0], [1.0, 1.0], False),
        ([1.0, 1.0], [math.nan, 1.0], False),
        ([math.inf, -math.inf], [math.inf, -math.inf], True),
        ([math.inf, 1.0], [-math.inf, 1.0], False),
        ([1e30, 1.0], [math.inf, 1.0], False),
        ([math.inf, 1.0], [1e30, 1.0], False),
    ],
)
def test_nan_and_infinities_are_equal_or_not(got: list[float], want: list[float], passes: bool) -> None:
    assert verified(torch.tensor(got), torch.tensor(want)).passes is passes


def test_integers_may_differ_by_atol_alone() -> None:
    got, want = torch.tensor([100000, 5]), torch.tensor([100001, 5])
    assert not verified(got, want).passes
    assert verified(got, want, atol=1.0).passes


def test_another_shape_or_type_differs() -> None:
    (result,) = verified(torch.ones(2), torch.ones(2, 1)).results
    assert "float32[2] instead of float32[2, 1]" in str(result)
    (result,) = verified(torch.ones(2), torch.ones(2, dtype=torch.int64)).results
    assert "float32[2] instead of int64[2]" in str(result)


@pytest.mark.parametrize("bounds", [{"rtol": -1.0}, {"atol": math.nan}, {"atol": math.inf}])
def test_bounds_must_be_finite_and_not_negative(bounds: dict[str, float]) -> None:
    with pytest.raises(DelegateKitError, match="finite"):
        verified(torch.ones(2), torch.ones(2), **bounds)


# -- refused cases ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (dk.Case(({"a": torch.ones(2, 4), "b": PAIR["b"]},), FIXED, ()), r"input pair\['a'\]: has shape \(2, 4\), not"),
        (
            dk.Case(({**PAIR, "a": PAIR["a"].double()},), FIXED, ()),
            "has dtype torch.float64, not torch.float32",
        ),
        (dk.Case((PAIR,), {**FIXED, "count": 4}, ()), "input count: was lowered for the value 3, got 4"),
        (dk.Case((PAIR,), {**FIXED, "count": True}, ()), "was lowered for the value 3, got True"),
        (dk.Case((PAIR,), {"count": 3}, ()), "is missing twice"),
        (dk.Case(({"a": 1.0, "b": PAIR["b"]},), FIXED, ()), "is a float, not a tensor"),
        (dk.Case((PAIR,), FIXED, (1, 2)), "expects 2 outputs, the method has 3"),
        (dk.Case((PAIR,), FIXED, (1, 2, "x")), "expected output 2: is a str, which a bundle has no value for"),
        (dk.Case((PAIR,), FIXED, (1, 2, 1 << 63)), "expected output 2: is 9223372036854775808, which has more than 64"),
    ],
)
def test_what_the_method_does_not_take_is_refused(scaled: bytes, case: dk.Case, words: str) -> None:
    with pytest.raises(DelegateKitError, match=words):
        dk.bundle(scaled, {"forward": [case]})


def test_a_call_with_none_is_refused_because_the_format_has_no_value_for_it() -> None:
    class Optional(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor | None) -> torch.Tensor:
            return x if y is None else x + y

    program = lowered(Optional(), torch.ones(2), None).buffer
    with pytest.raises(ExecutionError, match="input y: is None, for which bundles have no value"):
        dk.bundle(program, {"forward": [dk.Case((torch.ones(2), None), {}, ())]})


def test_an_unknown_method_and_a_bundle_without_cases_are_refused(scaled: bytes) -> None:
    with pytest.raises(UnknownMethodError, match="there is no method 'backward'"):
        dk.bundle(scaled, {"backward": []})
    with pytest.raises(DelegateKitError, match="has no cases"):
        dk.verify(dk.bundle(scaled, {}).buffer)
    with pytest.raises(FormatError, match="is no bundled program"):
        dk.verify(scaled)


def test_cases_of_a_method_that_the_program_has_not(scaled: bytes) -> None:
    file = io.BytesIO()
    write_bundle(Bundle(memoryview(scaled), {"other": [tables.TestCase([], [])]}), file)
    with pytest.raises(UnknownMethodError, match="no method 'other'"):
        dk.verify(file.getvalue())


def test_a_case_that_the_method_refuses_fails_and_the_next_one_is_run(scaled: bytes) -> None:
    made = dk.bundle(scaled, {"forward": [dk.Case((PAIR,), FIXED)] * 2}).buffer
    root = parse(tables.BundledProgram, made)
    assert root.method_test_suites is not None
    (suite,) = root.method_test_suites
    cases = suite.test_cases or []
    cases[0].inputs = (cases[0].inputs or [])[:-1]
    found = dk.verify(serialize(root, BUNDLE_IDENTIFIER))
    assert [item.passes for item in found.results] == [False, True]
    assert "takes 5 inputs, got 4" in str(found.results[0])


def tensor(root: tables.BundledProgram) -> tables.Tensor:
    case = ((root.method_test_suites or [])[0].test_cases or [])[0]
    value = (case.inputs or [])[0].val
    assert isinstance(value, tables.Tensor)
    return value


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda root: setattr(root, "version", 3), "version 3, this reader knows 2"),
        (lambda root: setattr(root, "program", None), "the bundle has no program"),
        (lambda root: setattr(root, "program", b"ET12"), "4 bytes, too few for a .pte"),
        (lambda root: setattr(root.method_test_suites[0], "method_name", None), "test suite 0: names no method"),
        (lambda root: root.method_test_suites.append(root.method_test_suites[0]), "has test cases in two places"),
        (lambda root: setattr(tensor(root), "sizes", [2, 4]), "case 0, input 0: has 24 bytes, but sizes .* take 32"),
        (lambda root: setattr(tensor(root), "sizes", [2, -3]), "has a negative size"),
        (lambda root: setattr(tensor(root), "dim_order", b"\0\0"), "is not a permutation"),
        (lambda root: setattr(tensor(root), "scalar_type", 9), "element type 9 is unknown"),
        (
            lambda root: vars(tensor(root)).update(sizes=[0, *[2**31 - 1] * 3], dim_order=b"\0\1\2\3", data=b""),
            "calculation overflowed",
        ),
        (lambda root: vars(tensor(root)).update(scalar_type=12, data=bytes(6)), "element type 12 cannot be held"),
    ],
)
def test_a_damaged_bundle_is_one_clear_error(scaled: bytes, damage: Callable[[Any], object], words: str) -> None:
    root = parse(tables.BundledProgram, dk.bundle(scaled, {"forward": [dk.Case((PAIR,), FIXED)]}).buffer)
    damage(root)
    with pytest.raises(FormatError, match=words):
        dk.verify(serialize(root, BUNDLE_IDENTIFIER))


def test_what_was_cut_off_or_flipped_is_refused_or_read(scaled: bytes) -> None:
    data = dk.bundle(scaled, {"forward": [dk.Case((PAIR,), FIXED)]}).buffer
    for size in (0, 7, 40, 100, len(data) - 1):
        with pytest.raises(FormatError):
            read_bundle(data[:size])
    refused = 0
    for place in range(len(data) - len(scaled)):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        try:
            read_bundle(bytes(damaged))
        except FormatError:
            refused += 1
    assert refused > 100


def test_a_program_too_large_for_the_format_is_refused() -> None:
    class Large(bytes):
        def __len__(self) -> int:
            return 1 << 31

    large: Any = Large()
    with pytest.raises(FormatError, match="more than the format can hold"):
        write_bundle(Bundle(large, {}), io.BytesIO())
