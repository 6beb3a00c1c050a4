"""Writes files with weights outside as stock ExecuTorch does. The fixture `stock_external` runs this as a process.

one.pte + one.ptd: all weights outside. two.pte + first.ptd + second.ptd: in two files, and "same" inside.
xnnpack.pte + xnnpack.ptd: the named data of an XNNPACK delegate outside. inside.pte: the same network in one file.
expected.pt: the input, eager's output and the weights.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower
from executorch.exir.passes.external_constants_pass import delegate_external_constants_pass_unlifted
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)
        self.register_buffer("same", self.b.bias.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x))) + self.same


def two(node: torch.fx.Node) -> str | None:
    name = str(node.target)
    return None if "same" in name else "first" if name.endswith(("a_weight", "a_bias")) else "second"


def main(folder: Path) -> None:
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(2, 4)
    exported = torch.export.export(net, (x,))
    tagged = exported.module()
    delegate_external_constants_pass_unlifted(tagged, lambda node: "xnnpack")
    delegated = torch.export.export(tagged, (x,))
    programs = {
        "inside": to_edge(exported).to_executorch(),
        "one": to_edge(exported).to_executorch(ExecutorchBackendConfig(external_constants=lambda node: "one")),
        "two": to_edge(exported).to_executorch(ExecutorchBackendConfig(external_constants=two)),
        "xnnpack": to_edge_transform_and_lower(delegated, partitioner=[XnnpackPartitioner()]).to_executorch(),
    }
    for name, program in programs.items():
        (folder / f"{name}.pte").write_bytes(program.buffer)
        program.write_tensor_data_to_file(str(folder))
    torch.save((x, net(x), net.state_dict()), folder / "expected.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
