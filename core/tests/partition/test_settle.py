"""The rounds of partitioning: the decomposed nodes, and the order."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import delegatekit

PLUGIN = """
from delegatekit_api import *

class Takes:
    def keep_operators(self): return ["aten.hardswish.default", "aten.layer_norm.default"]
    def check(self, call):
        if call.operator == "aten.hardswish.default":
            return Verdict.yes(passenger=True)
        return Verdict.yes() if call.operator == {alone!r} else Verdict.no("no kernel")
    def propose(self, program): return None

@hookimpl
def describe_backend():
    return BackendDescription("one", "oneBackend", "delegatekit-one", "1.2", "a test backend")

@hookimpl
def create_partitioner(options): return Takes()

@hookimpl
def preprocess(partition, options): return PreprocessResult(b"blob")
"""


def delegated(install_plugin: Any, alone: str) -> list[int]:
    """The number of operators of each delegate, by a backend that takes one operator alone, and others only with it."""
    install_plugin("one", PLUGIN.format(alone=alone))
    module = nn.Sequential(nn.LayerNorm(4), nn.Hardswish())
    (method,) = delegatekit.report(delegatekit.lower(module, (torch.randn(2, 4),), backends=["one"])).methods
    return [item.nodes for item in method.delegates]


def test_what_is_taken_in_company_waits_for_what_the_others_become(install_plugin: Any) -> None:
    # The norm and the activation.
    assert delegated(install_plugin, "aten.native_layer_norm.default") == [2]


def test_what_is_taken_in_company_is_decomposed_where_none_comes(install_plugin: Any) -> None:
    assert delegated(install_plugin, "aten.sin.default") == []
