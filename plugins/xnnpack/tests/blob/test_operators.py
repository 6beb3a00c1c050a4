"""The nodes of a blob in readable form: ours and stock's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_api import FormatError
from delegatekit_xnnpack.blob.operators import operators

MODEL = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1, groups=1), nn.ReLU6(), nn.Flatten(), nn.Linear(36, 5)).eval()
X = torch.randn(1, 3, 6, 6)


def test_values_have_the_names_of_their_kind(lower_whole):
    delegate = lower_whole(lambda x, y: torch.sigmoid(x + y) * x, torch.randn(2, 3), torch.randn(2, 3)).delegate
    add, sigmoid, multiply = operators(delegate.blob)
    assert (add.name, sigmoid.name, multiply.name) == ("Add", "Sigmoid", "Multiply")
    assert add.reads == ("input 0", "input 1") and sigmoid.reads == add.makes
    assert multiply.reads == (*sigmoid.makes, "input 0") and multiply.makes == ("output 2",)
    assert add.facts == {"result": "float32[2, 3]"}


def test_attributes_are_facts(lower_whole):
    told = operators(lower_whole(MODEL, X).delegate.blob)
    (conv,) = (item for item in told if item.name == "Conv2d")
    assert conv.facts["kernel"] == "3x3" and conv.facts["stride"] == "2x2" and conv.facts["clamp"] == "0 to 6"
    assert conv.facts["weight"] == "float32[4, 3, 3, 3]" and conv.facts["result"] == "float32[1, 3, 3, 4]"
    assert [name.partition(" ")[0] for name in conv.reads] == ["value", "constant", "constant"]
    assert "dilation" not in conv.facts and "groups" not in conv.facts


def test_data_of_constants_may_be_elsewhere(lower_whole):
    """Only the header and the tables are read."""
    delegate = lower_whole(MODEL, X).delegate
    assert delegate.named_data and operators(delegate.blob)
    with pytest.raises(FormatError):
        operators(delegate.blob[: len(delegate.blob) // 2])


def test_blobs_of_the_stock_lowering_are_told():
    partitioner = pytest.importorskip("executorch.backends.xnnpack.partition.xnnpack_partitioner")
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(MODEL, (X,))
    program = to_edge_transform_and_lower(exported, partitioner=[partitioner.XnnpackPartitioner()]).to_executorch()
    (delegate,) = delegatekit.inspect(program.buffer, operators=True).methods[0].delegates
    told = delegate.insides
    assert told is not None and not told.unknown
    names = [item.name for item in told.operators]
    assert names.count("Conv2d") == names.count("FullyConnected") == 1
    (conv,) = (item for item in told.operators if item.name == "Conv2d")
    assert conv.facts["kernel"] == "3x3" and conv.facts["weight"] == "float32[4, 3, 3, 3]"
    assert told.operators[0].reads[0] == "input 0" and told.operators[-1].makes == ("output 1",)
