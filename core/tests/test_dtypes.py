"""Every operator of the runtime with every element type: the file means the same to eager and to both engines.

The operators are data (`dtypes_table.py`). A case is exported, lowered for the runtime's own kernels, and run three
times; integers and bools must be equal, floats up to the roundings of their dtype in the table. Cases that cannot be
computed are refused by lowering, for the reason in the table. The cases of an operator run in a child
process: a kernel that aborts the process fails its own test only.
"""

from __future__ import annotations

import pytest
import torch
from dtypes_runner import Call, run_in_child
from dtypes_table import OPERATORS, REFUSED

import delegatekit
from delegatekit.pte.kernels import runtime_operators

#: Every third operator, each with one of its dtypes, another one for each.
SAMPLE = {
    name: operator.cases[number % len(operator.cases)]
    for number, (name, operator) in enumerate(OPERATORS.items())
    if number % 3 == 0
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", SAMPLE)
def test_an_operator_with_one_of_its_dtypes(name: str) -> None:
    assert run_in_child(name, [SAMPLE[name]]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_with_all_its_dtypes(name: str) -> None:
    assert run_in_child(name, OPERATORS[name].cases) == {}


#: Kernels that no case calls, and the reasons.
UNUSED: dict[str, str] = {
    "training only": "aten::convolution_backward.out aten::max_pool2d_with_indices_backward.grad_input "
    "aten::_native_batch_norm_legit.no_stats_out aten::_native_batch_norm_legit.out",
    "random": "aten::native_dropout.out aten::rand.out aten::randn.out",
    "complex numbers": "aten::_conj_physical.out aten::_fft_c2r.out aten::_fft_r2c.out aten::view_as_real_copy.out",
    "sizes that depend on the content: tests/test_dynamic_shapes.py": "aten::_local_scalar_dense "
    "aten::masked_select.out aten::nonzero.out aten::repeat_interleave.Tensor_out aten::sym_numel aten::sym_size.int",
    "state: tests/test_state.py": "aten::copy_ aten::index_put_ aten::clone.out",
    "known when the file is written": "aten::arange.out aten::arange.start_out aten::empty.out aten::full.out "
    "aten::full_like.out aten::ones.out aten::scalar_tensor.out aten::zeros.out aten::fill.Scalar_out "
    "aten::fill.Tensor_out",
    "no copies in the edge dialect": "aten::alias_copy.out aten::detach_copy.out aten::lift_fresh_copy.out "
    "aten::unsqueeze_copy.out aten::squeeze_copy.dim_out",
    "another spelling in the edge dialect": "aten::_native_batch_norm_legit_no_training.out aten::narrow_copy.out "
    "aten::bitwise_left_shift.Tensor_Scalar_out aten::bitwise_right_shift.Tensor_Scalar_out aten::floor_divide.out "
    "aten::logit.out aten::masked_fill.Scalar_out aten::mean.dtype_out aten::roll.out aten::split_copy.Tensor_out "
    "aten::reflection_pad1d.out aten::reflection_pad2d.out aten::reflection_pad3d.out aten::replication_pad1d.out "
    "aten::replication_pad2d.out aten::replication_pad3d.out aten::split_with_sizes_copy.out aten::stack.out "
    "aten::t_copy.out aten::transpose_copy.int_out aten::tril.out aten::unbind_copy.int_out aten::var.out",
}


@pytest.mark.slow
def test_every_aten_kernel_of_the_runtime_is_called_by_a_case_or_named_here() -> None:
    used: set[str] = set()
    for name, entry in OPERATORS.items():
        for dtypes in {entry.cases[0], entry.cases[-1], *({"f32", "i64"} & set(entry.cases))} - set(
            REFUSED.get(name, ())
        ):
            exported = torch.export.export(Call(entry.call).eval(), entry.inputs(dtypes), strict=False)
            used |= set(delegatekit.report(delegatekit.lower(exported, backends=[])).methods[0].fallback)
    unused = {kernel for kernel in runtime_operators() if kernel.startswith("aten::")} - used
    assert unused == {kernel for kernels in UNUSED.values() for kernel in kernels.split()}
