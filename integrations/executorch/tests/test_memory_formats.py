"""Images in channels-last order in ExecuTorch's pipeline: delegates get contiguous values, copied at the borders."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from pipelines import Lowered, close, exported, lowered
from referee import StockProgram
from torch import nn
from torch.export import Dim

import delegatekit
from delegatekit_executorch import partitioner
from delegatekit_executorch.readings import operator_of

IMAGE = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
_CLONE = "dim_order_ops._clone_dim_order"


class Net(nn.Module):
    """Convolutions, a residual, and a pooled result beside the image."""

    def __init__(self, *, inside: bool = False) -> None:
        super().__init__()
        self.inside = inside
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1, groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.inside:
            x = x.to(memory_format=torch.channels_last)
        y = torch.relu(self.norm(self.first(x)))
        if self.inside:
            y = y.contiguous(memory_format=torch.channels_last)
        y = self.second(y) + y
        return y, self.last(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


def outside(found: Lowered) -> Counter[str]:
    """The operators outside of delegates, without their overloads, and how many of each."""
    nodes = found.edge.exported_program().graph_module.graph.nodes
    names = (str(operator_of(node)) for node in nodes if node.op == "call_function")
    return Counter(name.rpartition(".")[0] for name in names if name.startswith(("aten.", "dim_order_ops.")))


def channels_last(value: Any) -> Any:
    return value.to(memory_format=torch.channels_last)


CASES: dict[str, Any] = {
    "model and image": (lambda: channels_last(Net()), channels_last(IMAGE), {_CLONE: 2}),
    "image": (Net, channels_last(IMAGE), {_CLONE: 2}),
    "model": (lambda: channels_last(Net()), IMAGE, {_CLONE: 1}),
    "inside": (lambda: Net(inside=True), IMAGE, {_CLONE: 1}),
    "nowhere": (Net, IMAGE, {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("backend", "changing"),
    [("xnnpack", False), ("xnnpack", True), pytest.param("vulkan", False, marks=pytest.mark.slow)],
)
def test_only_copies_at_the_border_are_outside(backend: str, case: str, changing: bool) -> None:
    build, image, copies = CASES[case]
    torch.manual_seed(0)
    model = build().eval()
    program = exported(model, (image,), {"x": {0: Dim("batch", min=1, max=4)}} if changing else None)
    found = lowered(program, backend)
    assert len(found.delegates()) == 1
    assert outside(found) == copies
    for count in (4, 2) if changing else (2,):
        given = torch.randn(count, 3, 16, 16).to(memory_format=torch.preserve_format)
        given = channels_last(given) if image.stride() != IMAGE.stride() else given
        eager = model(given)
        if backend == "xnnpack":
            results = StockProgram(found.buffer).method()((given,))
        else:
            results = delegatekit.load(found.buffer)["forward"](given)
        assert [result.stride() for result in results] == [result.stride() for result in eager]
        for result, want in zip(results, eager, strict=True):
            close(result, want, backend, program)


def test_two_partitioners_copy_once() -> None:
    model = channels_last(Net()).eval()
    ours = [partitioner("xnnpack"), partitioner("reference")]
    program = exported(model, (channels_last(IMAGE),))
    edge = to_edge_transform_and_lower(program, partitioner=ours)
    found = Lowered(edge, ours[0], bytes(edge.to_executorch().buffer))
    assert outside(found) == {_CLONE: 2}
    result = StockProgram(found.buffer).method()((channels_last(IMAGE),))[0]
    close(result, model(IMAGE)[0], "xnnpack", program)


def test_a_program_without_delegates_keeps_its_order() -> None:
    class Sums(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cumsum(x, 1)

    found = lowered(exported(Sums(), (channels_last(IMAGE),)), "xnnpack")
    assert outside(found) == {"aten.cumsum": 1}


@pytest.mark.slow
def test_a_mobile_network_is_delegated() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MobileNetV2Config(image_size=64, depth_multiplier=0.35)
    model = channels_last(transformers.MobileNetV2Model(config)).eval()
    image = channels_last(torch.randn(1, 3, 64, 64))
    program = exported(model, (image,))
    found = lowered(program, "xnnpack")
    assert len(found.delegates()) == 1
    assert outside(found) == {_CLONE: 2}
    eager = model(image)
    for result, want in zip(StockProgram(found.buffer).method()((image,)), (eager[0], eager[1]), strict=True):
        close(result, want, "xnnpack", program)
