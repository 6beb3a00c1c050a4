"""Whole networks: one delegate, for every accelerator; their numbers, layer by layer and at the end."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import delegatekit
from delegatekit_conformance.cases.quantized import InDouble
from delegatekit_ethosu.targets import TARGETS
from delegatekit_toolkit.tosa.reference import availability

_spec = importlib.util.spec_from_file_location("ethosu_networks", Path(__file__).with_name("networks.py"))
assert _spec is not None and _spec.loader is not None
networks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(networks)


#: Part of the default run; the others are a sweep.
QUICK = ("digits", "attention")
NAMES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in networks.NETWORKS]


@pytest.mark.sweep
@pytest.mark.parametrize("name", NAMES)
def test_networks_are_one_delegate_on_every_accelerator(name: str, whole: Any) -> None:
    module, x = networks.network(name)
    module, lower, ratio = whole(module, x, samples=12)
    results = {}
    for target in TARGETS:
        delegated = lower(module, x, target=target)
        if target in ("ethos-u55-64", "ethos-u55-256") or (target == "ethos-u85-512" and availability().available):
            results[target] = delegated.run()[0]
            assert ratio(results[target], module(x)) > 30
    # U55: the command streams of two sizes; U85: Arm's reference model.
    assert torch.equal(results["ethos-u55-64"], results["ethos-u55-256"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet-v2", "efficientnet-lite0"])
def test_imagenet_networks_are_one_delegate(name: str, whole: Any) -> None:
    from delegatekit_conformance.models import build_model

    case = build_model(name)
    (x,) = case.inputs
    module, lower, ratio = whole(case.module, x, samples=0)
    for target in TARGETS:
        delegated = lower(module, x, target=target)
        if target == "ethos-u85-256" and availability().available:
            (got,), want = delegated.run(), module(x)
            # Eager in double precision may differ more from eager: over so many layers rounding differences add up.
            (precise,) = tree_leaves(InDouble(module).run(x))
            assert ratio(got, want) > min(30, ratio(precise, want) - 1)
            assert got.argmax() == want.argmax()
        stages = delegated.program.stages
        assert stages["lower"] < 20


@pytest.mark.slow
def test_stock_would_be_slower_on_mobilenet() -> None:
    """Vela's estimates for stock ExecuTorch 1.5.1's lowering (24.6 ms and 4.31 ms) with Vela 5.1."""
    transformers = pytest.importorskip("transformers")

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = transformers.MobileNetV2ForImageClassification(transformers.MobileNetV2Config(num_labels=1000))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(pixel_values=x).logits

    x = torch.randn(1, 3, 224, 224)
    module = delegatekit.quantize(Classifier().eval(), [(x,)], backend="ethosu")
    for target, stock in (("ethos-u55-128", 24.62e-3), ("ethos-u85-256", 4.31e-3)):
        program = delegatekit.lower(module, (x,), backends=["ethosu"], options={"ethosu": {"target": target}})
        (delegate,) = delegatekit.report(program).methods[0].delegates
        assert delegate.estimate is not None and delegate.estimate.latency is not None
        assert delegate.estimate.latency < stock
