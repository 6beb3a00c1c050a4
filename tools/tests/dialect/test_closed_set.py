"""The closed set of the dialect's operators, and why other names cannot occur."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from delegatekit.edge import RULES, WHOLE, is_decomposable
from delegatekit_tools.dialect.closed_set import GROUPS, OCCURRING, absence, dialect_operators, rewritten_to

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("aten.add.Tensor", "core"),
        ("aten.relu.default", "core"),
        ("aten.linear.default", "further"),
        ("aten.permute_copy.default", "further"),
        ("aten.cummax.default", "further"),
        ("aten.hardswish.default", "whole"),
        ("aten.scaled_dot_product_attention.default", "whole"),
        ("quantized_decomposed.quantize_per_tensor.default", "quantized"),
    ],
)
def test_operators_are_in_the_group_of_how_they_reach_a_backend(name: str, group: str) -> None:
    found = dialect_operators()[name]
    assert found.group == group
    assert found.schema.startswith(name.replace(".", "::", 1).removesuffix(".default"))


def test_the_set_has_values_only_and_is_sorted_by_groups() -> None:
    found = dialect_operators()
    assert not {"aten.relu_.default", "aten.add.out", "aten.view.default", "aten.sym_size.int"} & found.keys()
    groups = [item.group for item in found.values()]
    assert list(dict.fromkeys(groups)) == list(GROUPS)
    assert groups == sorted(groups, key=list(GROUPS).index)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("aten.baddbmm.default", "PyTorch's decomposition leaves aten.bmm.default, aten.add.Tensor of it"),
        ("aten.mean.default", "the edge rules (arithmetic) leave aten.mean.dim of it"),
        ("aten.clone.default", "the edge rules (identities) leave no operator"),
        ("aten.permute.default", "it returns a view, and programs have copies: aten.permute_copy.default"),
        ("aten.relu_.default", "it writes into an operand"),
        ("aten.no_such_operator.default", "PyTorch has no operator of this name"),
        ("aten.add", "PyTorch has no operator of this name"),
    ],
)
def test_a_name_that_cannot_occur_says_what_becomes_of_it(name: str, reason: str) -> None:
    assert absence(name).startswith(reason)


@pytest.mark.parametrize("name", ["aten.add.Tensor", "aten.linear.default", "torchao.dequantize_affine.default"])
def test_a_name_that_can_occur_has_no_reason(name: str) -> None:
    assert absence(name) == ""


def test_what_a_backend_keeps_whole_occurs_unless_it_is_no_value() -> None:
    assert absence("aten.hardswish.default", whole=True) == ""
    assert absence("aten.hardswish.default").startswith("PyTorch's decomposition leaves")
    assert absence("aten.relu_.default", whole=True)


def test_what_is_listed_as_occurring_would_be_absent_otherwise() -> None:
    for target in OCCURRING:
        assert RULES.rule(target) is not None or is_decomposable(target), target
        assert target not in WHOLE, target
        schema = target._schema
        assert not schema.is_mutable and all(result.alias_info is None for result in schema.returns), target


def test_an_operator_is_tried_with_tensors_that_fit_it() -> None:
    assert rewritten_to(aten.square.default) == ("aten.pow.Tensor_Scalar",)
    assert rewritten_to(aten.conv1d.default) is not None
    assert rewritten_to(aten.relu.default) is None  # it stays


def test_operators_that_nobody_has_asked_torch_for_are_in_the_set() -> None:
    script = (
        "from delegatekit_tools.dialect.closed_set import dialect_operators\n"
        "print('aten.put.default' in dialect_operators())"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True"]
