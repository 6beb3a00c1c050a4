"""A delegate's signature: from the program's sizes, against the file's, and against each call."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from delegatekit_api import DelegatePayload, ExecutionError, FormatError, LoweringError, ProgramView, TensorSpec
from delegatekit_toolkit.signature import (
    Range,
    Signature,
    TensorType,
    check_call,
    check_payload,
    check_tensors,
    store_results,
)
from delegatekit_toolkit.symbols import SizeBounds

SIZES = Range(2, 8, 0)
MATRIX = TensorType("float32", (SIZES, 3))
SIGNATURE = Signature((MATRIX, TensorType("int64", (SIZES,))), (MATRIX,))


def payload(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...] = ()) -> DelegatePayload:
    return DelegatePayload("Test", memoryview(b""), (), inputs, outputs, {}, lambda keys: b"")


def view_of(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], dynamic_shapes: object = None) -> ProgramView:
    exported = torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes, strict=False)  # type: ignore[arg-type]
    return ProgramView.of(exported)


class Joined(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat((x, y), 1).reshape(-1)


def test_sizes_of_one_expression_have_one_symbol() -> None:
    batch, width = Dim("batch", min=3, max=9), Dim("width", min=1, max=5)
    inputs = (torch.randn(4, 3), torch.randn(4, 2))
    view = view_of(Joined(), inputs, ({0: batch, 1: width}, {0: batch}))
    bounds = SizeBounds()
    x, y = (bounds.type_of(view.operand(node)) for node in view.inputs)
    (last,) = (node for node in view.outputs if node is not None)
    result = bounds.type_of(view.operand(last))
    assert (x.dtype, y.dtype) == ("float32", "float32")
    # Sizes from 2 on may be 0 and 1, too: PyTorch has no other way to express it.
    assert x.shape == (Range(3, 9, 0), Range(0, 5, 1)) and y.shape == (Range(3, 9, 0), 2)
    assert result.shape == (Range(0, 63, 2),)
    assert result.is_dynamic and result.largest == (63,)
    assert not TensorType("int8", (2,)).is_dynamic


def test_a_size_without_a_bound_is_refused() -> None:
    view = view_of(torch.nn.ReLU(), (torch.randn(4, 3),), ({0: Dim("n")},))
    with pytest.raises(LoweringError, match="has a size without an upper bound"):
        SizeBounds().type_of(view.operand(view.inputs[0]))


def test_the_program_and_the_blob_agree() -> None:
    specs = TensorSpec("float32", (8, 3), dynamic=True), TensorSpec("int64", (8,), dynamic=True)
    check_payload(payload(*specs, outputs=(specs[0],)), SIGNATURE)
    assert (SIGNATURE.inputs[0].spec, SIGNATURE.inputs[1].spec) == specs
    # A program for smaller calls may use it, too.
    smaller = TensorSpec("float32", (5, 3), dynamic=True)
    check_payload(payload(smaller, specs[1], outputs=(smaller,)), SIGNATURE)


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (TensorSpec("float16", (8, 3), dynamic=True), r"float16 \(8, 3\)"),
        (TensorSpec("float32", (9, 3), dynamic=True), r"float32 \(9, 3\)"),
        (TensorSpec("float32", (1, 3), dynamic=True), r"float32 \(1, 3\)"),
        (TensorSpec("float32", (8, 4), dynamic=True), r"float32 \(8, 4\)"),
        (TensorSpec("float32", (8, 3, 1), dynamic=True), r"float32 \(8, 3, 1\)"),
        (TensorSpec("float32", (8, 3)), r"float32 \(8, 3\)"),
    ],
)
def test_other_tensors_in_the_program_are_refused(spec: TensorSpec, found: str) -> None:
    with pytest.raises(FormatError, match=rf"mine: input 0 is float32 \(s0=2\.\.8, 3\), in the program {found}"):
        check_payload(payload(spec, TensorSpec("int64", (8,), dynamic=True)), SIGNATURE, "mine")


def test_other_counts_in_the_program_are_refused() -> None:
    with pytest.raises(FormatError, match="has 2 inputs, the program calls it with 0"):
        check_payload(payload(), SIGNATURE)


def test_the_programs_word_is_a_signature() -> None:
    given = payload(TensorSpec("float32", (4, 3), dynamic=True), outputs=(TensorSpec("int8", (2,)),))
    signature = Signature.of_payload(given)
    assert signature.inputs == (TensorType("float32", (Range(0, 4, 0), Range(0, 3, 1))),)
    assert signature.outputs == (TensorType("int8", (2,)),)
    check_payload(given, signature)


def test_a_call_within_the_bounds_has_its_sizes() -> None:
    inputs = [torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64)]
    assert check_call(SIGNATURE, inputs, [torch.zeros(8, 3)]) == {0: 5}


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ([torch.zeros(5, 3)], [torch.zeros(8, 3)], "is called with 1 inputs: it has 2"),
        ([torch.zeros(5, 3), torch.zeros(4).long()], [torch.zeros(8, 3)], r"input 1 is int64 \(4,\), not int64 \(s0="),
        ([torch.zeros(9, 3), torch.zeros(9).long()], [torch.zeros(8, 3)], r"input 0 is float32 \(9, 3\), not float32"),
        ([torch.zeros(5, 3), torch.zeros(5)], [torch.zeros(8, 3)], r"input 1 is float32 \(5,\), not int64"),
        ([torch.zeros(5, 3), 5], [torch.zeros(8, 3)], "input 1 is not a CPU tensor"),
        ([torch.zeros(5, 3), torch.zeros(5).long()], [], "is called with 0 outputs: it has 1"),
        ([torch.zeros(5, 3), torch.zeros(5).long()], [torch.zeros(5, 3)], r"output 0 is .*\(5, 3\), not float32 \(8, "),
        ([torch.zeros(5, 3), torch.zeros(5).long()], [torch.zeros(8, 3).half()], "output 0 is float16"),
    ],
)
def test_other_tensors_of_a_call_are_refused(inputs: list[object], outputs: list[torch.Tensor], message: str) -> None:
    with pytest.raises(ExecutionError, match=f"mine: {message}"):
        check_call(SIGNATURE, inputs, outputs, "mine")


def test_results_must_have_the_sizes_of_the_call() -> None:
    sizes = {0: 5}
    check_tensors("result", SIGNATURE.outputs, [torch.zeros(5, 3)], sizes)
    with pytest.raises(ExecutionError, match=r"result 0 is float32 \(4, 3\)"):
        check_tensors("result", SIGNATURE.outputs, [torch.zeros(4, 3)], sizes)


def test_outputs_take_the_results_sizes_in_their_own_memory() -> None:
    output, result = torch.empty(8, 3), torch.randn(5, 3)
    address = output.data_ptr()
    store_results([output], [result])
    assert torch.equal(output, result) and output.data_ptr() == address
