"""Quantized programs in ExecuTorch's pipeline: by its quantizers, and by our schemes as its quantizers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import get_lowered_submodules
from pipelines import limit, lowered, run
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

import delegatekit
from delegatekit.plugins import get_backend
from delegatekit_api import OptionError, QuantizationError
from delegatekit_executorch import partitioner, quantizer
from delegatekit_toolkit.accuracy import tolerance

BACKENDS = ("xnnpack", "vulkan", "coreml", "qnn", "ethosu")
#: Schemes whose scales the delegate rounds to another dtype: XNNPACK's blocks of 4-bit weights.
SCALES = {("xnnpack", "int8-dynamic-int4"): "bfloat16"}


class Net(nn.Module):
    """Convolution with a batch norm, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.first, self.second = nn.Linear(288, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.convolution(x))).flatten(1)
        return self.second(torch.relu(self.first(y)))


X = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def converted(quantizer: Any) -> Any:
    torch.manual_seed(0)
    prepared = prepare_pt2e(torch.export.export(Net().eval(), (X,)).module(), quantizer)
    prepared(X)
    return convert_pt2e(prepared)


def schemes() -> list[tuple[str, str]]:
    return [(name, scheme.name) for name in BACKENDS for scheme in get_backend(name).quantization_schemes()]


@pytest.mark.sweep
@pytest.mark.parametrize(("backend", "scheme"), schemes())
def test_each_scheme_is_a_quantizer_and_its_program_is_delegated(backend: str, scheme: str) -> None:
    ours = quantizer(backend, scheme)
    module = converted(ours)
    assert ours.report is not None and len(ours.report.quantized) >= 2
    program = torch.export.export(module, (X,))
    found = lowered(program, backend)
    assert len(found.delegates()) == 1
    assert {refused.operator.split(".")[0] for refused in found.partitioner.refused} <= {"quantized_decomposed"}
    if backend in ("qnn", "ethosu"):
        return  # their runtimes' tests are with their plugins; the blob is `lower`'s (test_partitioning)
    result, eager = run(found.buffer, backend, (X,)), module(X)
    assert torch.equal(result, run(delegatekit.lower(program, backends=[backend]).buffer, backend, (X,)))
    allowed = limit(program, eager, backend) + step(module)
    if (backend, scheme) in SCALES:
        allowed += tolerance("float32", SCALES[backend, scheme], 1) * float(eager.abs().max())
    assert float((result - eager).abs().max()) <= allowed


def step(module: torch.fx.GraphModule) -> float:
    """The step of the module's output, by which integer kernels may round otherwise; 0 for an output in float."""
    output = next(reversed(module.graph.nodes)).all_input_nodes[0]
    return float(output.args[1]) if "dequantize_per_tensor" in str(output.target) else 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_what_stocks_quantizer_made_is_delegated(dynamic: bool) -> None:
    stock = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic))
    module = converted(stock)
    program = torch.export.export(module, (X,))
    found = lowered(program, "xnnpack")
    assert found.delegates()
    # Stock's dynamic scales pass through float64, which XNNPACK's table refuses: the conversions stay outside.
    assert dynamic or (len(found.delegates()) == 1 and found.partitioner.refused == ())
    result, eager = run(found.buffer, "xnnpack", (X,)), module(X)
    assert torch.equal(result, run(delegatekit.lower(program, backends=["xnnpack"]).buffer, "xnnpack", (X,)))
    assert float((result - eager).abs().max()) <= limit(program, eager, "xnnpack") + step(module)


def test_a_quantizer_trains() -> None:
    torch.manual_seed(0)
    prepared = prepare_qat_pt2e(
        torch.export.export(Net().train(), (X.repeat(2, 1, 1, 1),)).module(), quantizer("xnnpack", "int8", qat=True)
    )
    prepared(X.repeat(2, 1, 1, 1))
    assert any("fake_quant" in name or "post_process" in name for name, _ in prepared.named_modules())


def test_what_a_quantizer_cannot_do_is_said() -> None:
    with pytest.raises(OptionError, match="no scheme 'int3'"):
        quantizer("xnnpack", "int3")
    with pytest.raises(QuantizationError, match="selects no operator"):
        converted(quantizer("xnnpack", "int8", keep_float=["nonsense"]))


def test_layers_that_a_later_partitioner_has_decomposed_are_delegated() -> None:
    ours = partitioner("ethosu")
    module = converted(quantizer("ethosu", "int8"))
    both = [ours, XnnpackPartitioner()]
    edge = to_edge_transform_and_lower(torch.export.export(module, (X,)), partitioner=both)
    assert {refused.operator.split(".")[0] for refused in ours.refused} == {"quantized_decomposed"}
    delegates = [item.backend_id for _, item, _ in get_lowered_submodules(edge.exported_program().graph_module)]
    assert delegates.count("EthosUBackend") == 1
    assert not any("addmm" in str(node.target) for node in edge.exported_program().graph.nodes)
