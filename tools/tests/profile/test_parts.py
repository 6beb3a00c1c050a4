"""Times by module, kernel and line: parts add up to the whole, and what is alike is folded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit_api import DelegateKitError
from delegatekit_tools.profile import InstructionProfile, OperatorProfile, Origin, Profile, Times
from delegatekit_tools.profile.parts import GROUPINGS, Part, folded


def operator(name: str, seconds: float, module: str, *lines: int) -> OperatorProfile:
    sources = tuple(f"/a/b/net.py:{line}: `x`" for line in lines)
    return OperatorProfile(name, Times((seconds,)), None, Origin(sources=sources, module=module))


#: A delegate of 8 ms, whose operators took 12 ms when they were measured, and a kernel of 2 ms.
MADE = Profile(
    "forward",
    Times((0.010,)),
    Times(()),
    (
        InstructionProfile(
            0,
            "delegate 0",
            Times((0.008,)),
            (0.0,),
            "delegatekit-x 1.0",
            operators=(
                operator("conv #1", 0.004, "net.layers.0.conv", 3),
                operator("norm #1", 0.002, "net.layers.0.norm", 4),
                operator("conv #2", 0.003, "net.layers.1.conv", 3),
                operator("norm #2", 0.001, "net.layers.1.norm", 4),
                operator("add", 0.002, "net", 5, 6),
            ),
        ),
        InstructionProfile(
            1, "aten::atan.out", Times((0.002,)), (0.008,), origin=Origin(sources=("/a/b/net.py:9: `y`",), module="")
        ),
    ),
)


def every(part: Part) -> Iterator[Part]:
    yield part
    for item in part.parts:
        yield from every(item)


def named(whole: Part, *names: str) -> Part:
    for name in names:
        whole = next(part for part in whole.parts if part.name == name)
    return whole


@pytest.mark.parametrize("by", GROUPINGS)
def test_parts_add_up_to_the_whole(by: str) -> None:
    whole = MADE.parts(by)  # type: ignore[arg-type]
    assert (whole.seconds, whole.count) == (pytest.approx(0.010), 6)
    for part in (*every(whole), *every(folded(whole))):
        assert part.seconds == pytest.approx(part.own + sum(item.seconds for item in part.parts))
        assert sum(part.runners.values()) == pytest.approx(part.seconds)


def test_operators_share_the_time_of_their_delegate() -> None:
    conv = named(MADE.parts("module"), "net", "layers", "0", "conv")
    assert conv.seconds == pytest.approx(0.008 * 4 / 12) and set(conv.runners) == {"x"}
    kernels = MADE.parts("kernel")
    assert named(kernels, "x", "conv").seconds == pytest.approx(0.008 * 7 / 12)
    assert named(kernels, "runtime", "aten::atan.out").seconds == 0.002
    lines = named(MADE.parts("line"), "b/net.py")
    assert [part.name for part in lines.parts] == ["3: x", "4: x", "5, 6", "9: y"]


def test_modules_that_are_alike_are_one_row() -> None:
    tree = folded(MADE.parts("module"))
    layers = named(tree, "net", "layers.0-1")
    assert layers.each == (pytest.approx(0.008 * 6 / 12), pytest.approx(0.008 * 4 / 12))
    assert [(part.name, part.count) for part in layers.parts] == [("conv", 2), ("norm", 2)]
    assert tree.own == pytest.approx(0.002)


def test_the_table_opens_the_largest_parts_as_far_as_there_is_room() -> None:
    text = MADE.text(by="module")
    assert "layers.0-1 (2, 2.667 to 4.000 ms each)" in text and "x 80 %, runtime 20 %" in text
    shown = [line.split()[4].removeprefix("method") or "whole" for line in text.splitlines() if " % " in line]
    assert shown == ["whole", "net", "layers.0-1", "conv", "norm", "itself", "itself"]
    assert len([line for line in MADE.text(by="module", rows=4).splitlines() if " % " in line]) == 3
    assert "net ..." in MADE.text(by="module", rows=3)
    rows = [line for line in MADE.text(by="module", rows=None).splitlines() if " % " in line]
    assert len(rows) == 11 and not any("each" in row for row in rows)
    assert "and 1 more" in MADE.text(by="kernel", rows=1)


def test_what_nothing_tells_is_refused() -> None:
    bare = replace(MADE, instructions=(InstructionProfile(0, "aten::add.out", Times((0.002,)), (0.0,)),))
    assert "aten::add.out" in bare.text()
    with pytest.raises(DelegateKitError, match="nothing tells a module"):
        bare.text(by="module")
    with pytest.raises(DelegateKitError, match="no profiles by 'colour'"):
        bare.text(by="colour")  # type: ignore[arg-type]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.act(self.conv(x)))


def test_fused_operators_are_named_by_all_their_modules() -> None:
    model, inputs = nn.Sequential(Block(), Block()).eval(), (torch.randn(1, 4, 8, 8),)
    program = dk.lower(model, inputs, backends=["xnnpack"])
    found = dk.profile(dk.load(program.buffer)["forward"], inputs, runs=2, debug_map=program.debug_map())
    tree = folded(found.parts("module"))
    (blocks,) = [part for part in tree.parts if part.each]
    assert blocks.name == "0-1" and "conv, act" in {part.name for part in blocks.parts}
    assert all("test_parts.py" in part.name for part in found.parts("line").parts)
