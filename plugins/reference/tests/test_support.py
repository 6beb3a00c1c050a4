"""Verdicts: all of core ATen is supported or refused with a reason; the options."""

from __future__ import annotations

import pytest
import torch

import delegatekit
from delegatekit_api import Call, OptionError
from delegatekit_reference import plugin
from delegatekit_reference.ir.names import OPERATORS, PLAIN, VIEWS, WHOLE
from delegatekit_reference.options import ReferenceOptions
from delegatekit_reference.support import TABLE

#: Core ATen operators that cannot occur here, with the reasons.
NOT_TAKEN = {
    "random": "rand.default randn.default randperm.default native_dropout.default",
    "views, which the edge dialect writes as copies": (
        "alias.default as_strided.default diagonal.default expand.default permute.default select.int slice.Tensor "
        "split_with_sizes.default squeeze.dim squeeze.dims unsqueeze.default view.default"
    ),
    "writing": "resize_.default _native_batch_norm_legit.default atan2.out",
    "undefined": "empty.memory_format empty_strided.default",
    "sizes that depend on values, and numbers": (
        "nonzero.default _local_scalar_dense.default sym_is_contiguous.default sym_numel.default sym_size.int "
        "sym_storage_offset.default sym_stride.int"
    ),
    "complex": "_fft_c2r.default _fft_r2c.default",
}


def _resolve(name):
    _, packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload, None)


def _all_operators():
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            packet, _, overload = name[6:].partition(".")
            yield getattr(getattr(torch.ops.aten, packet), overload or "default", None)


def test_all_of_core_aten_is_taken_or_known_not_to_be():
    core = {str(target) for target in _all_operators() if target is not None and torch.Tag.core in target.tags}
    refused = {f"aten.{name}" for names in NOT_TAKEN.values() for name in names.split()}
    assert core - OPERATORS == refused
    assert not refused & OPERATORS


def test_listed_operators_are_functional_and_deterministic():
    # Random only with dropout, which is refused.
    dropout = {"aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input"}
    dropout.add("aten.scaled_dot_product_attention.default")
    for name in OPERATORS:
        target = _resolve(name)
        assert target is not None, name
        assert not target._schema.is_mutable, name
        assert all(result.alias_info is None for result in target._schema.returns), name
        assert {str(result.type) for result in target._schema.returns} <= {"Tensor", "List[Tensor]"}, name
        assert torch.Tag.nondeterministic_seeded not in target.tags or name in dropout, name
        dynamic = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(target.tags)
        assert not dynamic or name == "aten.index.Tensor", name  # which refuses masks


def test_each_operator_stands_in_one_list():
    assert not VIEWS & WHOLE
    assert not PLAIN & (VIEWS | WHOLE)
    assert set(TABLE) == OPERATORS


@pytest.mark.parametrize(
    ("model", "inputs", "reason"),
    [
        (torch.bernoulli, (torch.rand(3),), "is random"),
        (lambda x: x + torch.rand(3), (torch.rand(3),), "is random"),
        (lambda x: torch.nonzero(x).sum(0), (torch.rand(3),), "depends on the values"),
        (lambda x: x[x > 0].sum(), (torch.rand(3),), "is a mask"),
        (lambda x: torch.masked_select(x, x > 0).sum(), (torch.rand(3),), "depends on the values"),
        (lambda x: torch.bincount(x, minlength=3).sum(), (torch.tensor([1, 2]),), "depends on the values"),
        (
            lambda x: x.sum().item() + x,
            (torch.rand(3),),
            "what aten._local_scalar_dense.default returns depends on the values",
        ),
        (lambda x: x.to(torch.uint16), (torch.rand(3),), "torch.uint16: floats, signed integers"),
        (lambda x: torch.empty_like(x) * 0 + x, (torch.rand(3),), "its elements are not defined"),
    ],
)
def test_what_is_refused_has_a_reason(refusals, model, inputs, reason):
    reasons = refusals(model, *inputs, keep=["aten.empty_like.default"])
    assert any(reason in text for text in reasons), reasons


def test_training_and_dropout_are_refused(refusals):
    class Attention(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    assert refusals(Attention(), torch.rand(1, 2, 4, 8)) == ["dropout is random: call model.eval()"]

    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.LSTM(4, 4, 2)._flat_weights

        def forward(self, x, train: bool):
            state = torch.zeros(2, 1, 4)
            return torch.lstm(x, (state, state), self.weights, True, 2, 0.5, train, False, False)[0]

    partitioner = plugin.create_partitioner(ReferenceOptions())
    for train, taken in ((True, False), (False, True)):
        exported = torch.export.export(Recurrent(), (torch.rand(3, 1, 4), train), strict=False)
        view = delegatekit.edge.build_edge(exported, keep=partitioner.keep_operators()).view
        (node,) = (node for node in view.graph.nodes if "lstm" in str(node.target))
        assert partitioner.check(Call(node, view)).supported is taken


def test_views_alone_are_passengers(lower):
    assert not lower(lambda x: x.t().reshape(-1), (torch.rand(2, 3),)).graphs
    assert lower(lambda x: x.t().reshape(-1).relu(), (torch.rand(2, 3),)).operators == [
        "aten.permute_copy.default",
        "aten.view_copy.default",
        "aten.relu.default",
    ]


@pytest.mark.parametrize("name", ["aten.gelu.default", "aten.gelu", "gelu"])
def test_operators_can_be_left_out(lower, name):
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.gelu(x + 1)

    assert lower(Net(), (torch.rand(3),), leave_out={name}).operators == ["aten.add.Scalar"]


def test_unknown_operators_and_options_are_refused():
    unknown = ReferenceOptions.from_mapping({"leave_out": {"relu", "nope"}})
    with pytest.raises(OptionError, match="leave_out names 'nope', which is not an operator that the backend takes"):
        plugin.create_partitioner(unknown)
    with pytest.raises(OptionError, match="known options: leave_out, decompose"):
        ReferenceOptions.from_mapping({"leave": {"relu"}})
    assert ReferenceOptions.from_mapping({"leave_out": "relu,aten.add"}).leave_out == {"relu", "aten.add"}


def test_composites_are_kept_whole_unless_pieces_are_wanted(lower):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 2, 3)

        def forward(self, x):
            return torch.nn.functional.silu(self.conv(x))

    x = torch.rand(1, 1, 4, 4)
    assert lower(Net(), (x,)).operators == ["aten.conv2d.default", "aten.silu.default"]
    pieces = lower(Net(), (x,), decompose=True).operators
    assert pieces == ["aten.convolution.default", "aten.sigmoid.default", "aten.mul.Tensor"]
