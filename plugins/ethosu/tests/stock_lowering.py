"""Lowers a small network with stock ExecuTorch's Arm backend: python stock_lowering.py FOLDER TARGET...

Writes TARGET.tosa (stock's input to Vela), TARGET.bin (stock's blob) and TARGET.pte for each target. A process of its
own, as stock's quantizer leaves global state behind.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn


class Network(nn.Module):
    """Convolutions of all kinds, a sum, a table, an average and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.pointwise = nn.Sequential(nn.Conv2d(16, 16, 1), nn.ReLU6())
        self.down = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.pointwise(self.depthwise(x))
        x = torch.nn.functional.hardswish(self.down(x)).mean(dim=(2, 3))
        return torch.softmax(self.head(x), dim=-1)


def lower(target: str, folder: Path) -> None:
    """Quantize the network and lower it for one target."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
    from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    model, example = Network().eval(), (torch.randn(1, 1, 8, 8),)
    with TemporaryDirectory() as scratch:
        spec = EthosUCompileSpec(target).dump_intermediate_artifacts_to(scratch)
        quantizer = EthosUQuantizer(spec)
        quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))
        prepared = prepare_pt2e(torch.export.export(model, example).module(check_guards=False), quantizer)
        for _ in range(4):
            prepared(torch.randn(1, 1, 8, 8))
        quantized = torch.export.export(convert_pt2e(prepared), example)
        edge = to_edge_transform_and_lower(
            quantized,
            partitioner=[EthosUPartitioner(spec)],
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
        )
        program = edge.to_executorch()
        (tosa,) = Path(scratch).glob("out.tosa")
        (folder / f"{target}.tosa").write_bytes(tosa.read_bytes())
    (delegate,) = program.executorch_program.execution_plan[0].delegates
    blob = program.executorch_program.backend_delegate_data[delegate.processed.index].data
    (folder / f"{target}.bin").write_bytes(bytes(blob))
    (folder / f"{target}.pte").write_bytes(program.buffer)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        lower(name, Path(sys.argv[1]))
