"""The calling convention of kernels: the stock runtime's, for every kernel that it has."""

from __future__ import annotations

import pytest

from delegatekit.pte.kernels import runtime_operators
from delegatekit.pte.schema import Bool, Double, Int, IntList, Null, OptionalTensorList, Tensor, TensorList
from delegatekit.pte.signatures import signature

NUMBER = (Int, Double, Bool)


@pytest.mark.parametrize(
    ("name", "kinds", "outputs"),
    [
        ("aten::add.out", ((Tensor,), (Tensor,), NUMBER, (Tensor,), (Tensor,)), (3, 4)),
        # Several results: each once, then a list of them.
        (
            "aten::max.dim_max",
            ((Tensor,), (Int,), (Bool,), (Tensor,), (Tensor,), (TensorList,)),
            (3, 4, 5),
        ),
        (
            "aten::split_with_sizes_copy.out",
            ((Tensor,), (IntList,), (Int,), (TensorList,), (TensorList,)),
            (3, 4),
        ),
        # In place: what is written is read, too.
        ("aten::copy_", ((Tensor,), (Tensor,), (Bool,), (Tensor,)), ()),
        (
            "aten::index_put_",
            ((Tensor,), (OptionalTensorList, TensorList), (Tensor,), (Bool,), (Tensor,)),
            (),
        ),
        ("aten::sym_size.int", ((Tensor,), (Int,), (*NUMBER, Null)), (2,)),
        ("executorch_prim::et_view.default", ((Tensor,), (IntList,), (Tensor,)), (2,)),
        ("executorch_prim::add.Scalar", (NUMBER, NUMBER, (*NUMBER, Null)), (2,)),
        (
            "dim_order_ops::_to_dim_order_copy.out",
            ((Tensor,), (Bool,), (IntList, Null), (Tensor,), (Tensor,)),
            (3, 4),
        ),
    ],
)
def test_a_kernel_is_called_with_its_arguments_and_its_results(
    name: str, kinds: tuple[tuple[type, ...], ...], outputs: tuple[int, ...]
) -> None:
    known = signature(name)
    assert known is not None
    assert known.kinds == kinds
    assert known.outputs == outputs


def test_what_a_kernel_updates_in_place_is_no_output_but_is_written() -> None:
    for name in ("aten::copy_", "aten::index_put_", "executorch_prim::et_copy_index.tensor"):
        known = signature(name)
        assert known is not None
        assert known.updates[0] == 0
    plain = signature("aten::add.out")
    assert plain is not None
    assert plain.updates == ()


@pytest.mark.parametrize("name", sorted(runtime_operators()))
def test_every_kernel_of_the_runtime_has_a_signature(name: str) -> None:
    known = signature(name)
    assert known is not None
    assert all(kinds for kinds in known.kinds)
    assert all(position < len(known.kinds) for position in known.outputs)


def test_a_kernel_that_nobody_has_is_unknown() -> None:
    assert signature("aten::nope.out") is None
    assert signature("mine::add.out") is None
