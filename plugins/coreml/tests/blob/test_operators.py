"""The operations of a blob in readable form."""

from __future__ import annotations

import torch
from torch import nn

import delegatekit
from delegatekit_conformance.testkit import lower
from delegatekit_coreml.blob.operators import operators


def test_operations_and_what_is_known_of_them() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.Hardtanh(-1.0, 2.0)).eval()
    delegate = lower(model, torch.randn(1, 3, 9, 9), backend="coreml", options={"precision": "float32"}).delegate
    conv, clip = operators(delegate.blob, delegate.named_data)
    assert (conv.name, clip.name) == ("conv", "clip") and clip.reads == conv.makes and len(conv.reads) == 1
    assert conv.facts["weight"] == "fp32[8, 3, 3, 3]" and conv.facts["strides"] == "[2, 2]"
    assert conv.facts["result"] == "fp32[1, 8, 4, 4]"
    assert (clip.facts["alpha"], clip.facts["beta"]) == ("-1.0", "2.0")
    assert clip.facts["returned"] == clip.makes[0]


def test_functions_of_a_shared_model_are_told_by_method() -> None:
    methods = {"one": nn.Linear(8, 8).eval(), "two": nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()}
    exported = {name: torch.export.export(model, (torch.randn(2, 8),)) for name, model in methods.items()}
    program = delegatekit.lower(exported, backends=["coreml"], options={"coreml": {"target": "ios18"}})
    found = {}
    for method in delegatekit.inspect(program.buffer, operators=True).methods:
        (delegate,) = method.delegates
        assert delegate.insides is not None and not delegate.insides.unknown
        found[method.name] = [item.name for item in delegate.insides.operators if item.name != "cast"]
    assert found == {"one": ["linear"], "two": ["linear", "relu"]}
