"""Sizes that change from call to call: as ranges, and as enumerated shapes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_api import ExecutionError, FormatError, OptionError, TensorSpec
from delegatekit_coreml.blob.archive import read_archive, write_archive
from delegatekit_coreml.blob.package import read_package
from delegatekit_coreml.blob.reader import read_model
from delegatekit_coreml.blob.weights import WeightFile
from delegatekit_coreml.ir.program import Feature, Model
from delegatekit_coreml.runtime import CoreMLRuntime
from delegatekit_toolkit.testing import payload_of

Dim = torch.export.Dim


class Heads(nn.Module):
    """Two sizes change: shapes must be computed."""

    def forward(self, x: torch.Tensor) -> Any:
        batch, length, _ = x.shape
        heads = x.view(batch, length, 2, 4).transpose(1, 2)
        merged = heads.relu().transpose(1, 2).reshape(batch, length, 8)
        return merged, x[:, 1:], x[:, ::2], x[:, :-1], x[:, -1], x.flatten(0, 1).repeat(2, 1), x * length


def lowered(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], shapes: Any, **options: Any
) -> tuple[Any, dict[str, Feature]]:
    """The method, and the inputs of its one delegate's model."""
    options.setdefault("precision", "float32")
    program = delegatekit.lower(
        model.eval(), inputs, backends=["coreml"], dynamic_shapes=shapes, options={"coreml": options}
    )
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1 and not method.fallback, str(delegatekit.report(program))
    (delegate,) = program.methods["forward"].delegates
    return delegatekit.load(program.buffer)["forward"], dict(model_of(b"".join(map(bytes, delegate.blob))).inputs)


def model_of(blob: bytes) -> Model:
    package = read_package(blob)
    return read_model(package.model, WeightFile(package.weights))


def check(method: Any, model: nn.Module, *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        wanted = model(*inputs)
    for found, expected in zip(torch.utils._pytree.tree_leaves(method(*inputs)), wanted, strict=True):
        torch.testing.assert_close(found, expected)


def test_two_sizes_change() -> None:
    shapes = ({0: Dim("batch", min=1, max=5), 1: Dim("length", min=3, max=9)},)
    method, inputs = lowered(Heads(), (torch.randn(2, 4, 8),), shapes)
    assert inputs["x"].ranges == ((1, 5), (3, 9), (8, 8))
    for batch, length in ((2, 4), (5, 9), (1, 3), (4, 3), (1, 9)):
        check(method, Heads(), torch.randn(batch, length, 8))


def cached(x: torch.Tensor) -> Any:
    return x.slice_scatter(x[:, :, 1:3] * 2, 2, 4, 6), x.select_scatter(x[:, :, 0] + 1, 2, 5)


#: Functions of a tensor (batch, length, 8) whose first two sizes change.
FUNCTIONS: dict[str, Any] = {
    "order": lambda x: (*x.sort(2), *x.topk(3, 2), *x.median(2), *x.kthvalue(2, 2)),
    "extremes": lambda x: (*x.max(1), *x.min(0), *x.max(2, keepdim=True)),
    "variances": lambda x: torch.var_mean(x, 2),
    "sizes of vectors": lambda x: (x.norm(dim=2), x.norm(1, 2), torch.linalg.vector_norm(x, dim=(0, 1))),
    "records": lambda x: (*x.cummax(2), *x.cummin(2), x.cumprod(2)),
    "moves": lambda x: (x.roll(3, 2).relu(), x.unfold(2, 4, 2).relu(), x[..., None].expand(-1, -1, 8, 8) * 1),
    "diagonals": lambda x: (x.unflatten(2, (2, 4)).diagonal(0, 2, 3).relu(), x.unflatten(2, (4, 2)).diagonal(-1, 2, 3)),
    "copies": lambda x: ((x * 2).copy_(x[:1]).relu(), x.flip(2) + x.flip(1), x.repeat(2, 1, 1) + 1),
    "distances": lambda x: (torch.cdist(x, x + 1), torch.cdist(x, x * 2, p=1.0)),
    "sums of products": lambda x: (torch.addbmm(torch.ones(8, 8), x.mT, x),),
    "writes": cached,
}


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["ios16", "ios18"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_axes_may_change(name: str, target: str) -> None:
    class Function(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return FUNCTIONS[name](x.sigmoid())

    shapes = ({0: Dim("batch", min=1, max=5), 1: Dim("length", min=3, max=9)},)
    method, _ = lowered(Function(), (torch.randn(2, 4, 8),), shapes, target=target)
    for batch, length in ((2, 4), (5, 9), (1, 3)):
        check(method, Function(), torch.randn(batch, length, 8))


def test_a_size_that_is_a_multiple_is_solved_for() -> None:
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            rows, columns = x.shape[0] // 2, y.shape[0]
            return (x.view(rows, 2, 3) * 2).sum(1), x.view(rows, 6).relu(), y.view(columns, 2, 2).tanh()

    half = Dim("half", min=3, max=6)
    method, inputs = lowered(Halves(), (torch.randn(6, 3), torch.randn(4, 4)), ({0: 2 * half}, {0: half + 1}))
    assert inputs["x"].ranges == ((6, 12), (3, 3))
    for count in (3, 4, 6):
        check(method, Halves(), torch.randn(2 * count, 3), torch.randn(count + 1, 4))


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8)

    def forward(self, x: torch.Tensor) -> Any:
        x = nn.functional.max_pool2d(self.norm(self.conv(x)), 2)
        return nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear"), x.mean((2, 3))


def images(side: int) -> torch.Tensor:
    return torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(side))


SIDE = ({2: 4 * Dim("height", min=2, max=8), 3: 4 * Dim("width", min=2, max=8)},)


def test_images_of_other_sizes() -> None:
    torch.manual_seed(0)
    model = Images().eval()
    method, _ = lowered(model, (images(16),), SIDE)
    for side in (16, 32, 8):
        check(method, model, images(side))


def test_sizes_out_of_range_are_refused_at_run_time() -> None:
    method, _ = lowered(nn.ReLU(), (torch.randn(4, 3),), ({0: Dim("rows", min=3, max=9)},))
    for rows in (2, 10):
        with pytest.raises(ExecutionError):
            method(torch.randn(rows, 3))


def test_enumerated_shapes_are_those_that_calls_may_have() -> None:
    torch.manual_seed(0)
    model = Images().eval()
    shapes = ("x:1x3x16x16", "x:1x3x32x32", "x:1x3x8x8")
    method, inputs = lowered(model, (images(16),), SIDE, enumerated_shapes=shapes)
    assert inputs["x"].shapes == ((1, 3, 16, 16), (1, 3, 32, 32), (1, 3, 8, 8)) and not inputs["x"].ranges
    for side in (16, 8, 32, 8):
        check(method, model, images(side))
    with pytest.raises(ExecutionError, match=r"has the sizes \(1, 3, 12, 12\), not fp32 \(1, 3, 16, 16\) or"):
        method(images(12))


class Outer(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x[:, None] * y[None, :]).sin(), x.exp()


BOTH = ({0: Dim("left", min=2, max=9)}, {0: Dim("right", min=2, max=9)})
PAIRS = ("x:2", "x:4", "x:2", "y:3", "y:5", "y:7")


def test_enumerated_shapes_of_two_inputs_belong_together() -> None:
    inputs = (torch.randn(4), torch.randn(5))
    method, features = lowered(Outer(), inputs, BOTH, enumerated_shapes=PAIRS, target="ios18")
    assert features["x"].shapes == ((2,), (4,), (2,)) and features["y"].shapes == ((3,), (5,), (7,))
    for left, right in ((2, 3), (4, 5), (2, 7)):
        check(method, Outer(), torch.randn(left), torch.randn(right))
    with pytest.raises(ExecutionError, match="do not belong together"):
        method(torch.randn(4), torch.randn(3))


@pytest.mark.parametrize(
    ("shapes", "target", "reason"),
    [
        (("x:2",), "ios18", "does not say which sizes y"),
        (PAIRS, "ios17", "needs ios18, the target is ios17"),
        ((*PAIRS, "z:3"), "ios18", "names z: the inputs of the delegate are x, y"),
        (("x:2", "y:3"), "ios18", "at least two shapes"),
        (("x:2", "x:2", "y:3", "y:3"), "ios18", "none twice"),
        (("x:2", "x:3", "y:3"), "ios18", "as many of one as of another"),
        (("x:2", "x:30", "y:3", "y:4"), "ios18", r"says \(30,\) of x.*from 1 to 9"),
        (("x:2", "x:3x3", "y:3", "y:4"), "ios18", r"says \(3, 3\) of x"),
        (("x:2", "x=3"), "ios18", "'x=3' is not like x:1x3x224x224"),
    ],
)
def test_wrong_enumerated_shapes_are_one_clear_error(shapes: tuple[str, ...], target: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        lowered(Outer(), (torch.randn(4), torch.randn(5)), BOTH, enumerated_shapes=shapes, target=target)


def test_enumerated_shapes_agree_with_each_other() -> None:
    rows = Dim("rows", min=2, max=9)
    with pytest.raises(OptionError, match=r"its size .* is not 4 there"):
        lowered(
            Outer(),
            (torch.randn(4), torch.randn(4)),
            ({0: rows}, {0: rows}),
            enumerated_shapes=("x:2", "x:3", "y:2", "y:4"),
            target="ios18",
        )


class Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.relu(), x[::2].exp()


def test_enumerated_shapes_agree_with_rounded_sizes() -> None:
    def halves(*sizes: int) -> Any:
        shapes = [*(f"x:{size}" for size in (4, 5)), *(f"slice_copy_tensor:{size}" for size in sizes)]
        options = {"enumerated_shapes": tuple(shapes), "target": "ios18", "leave_out": {"slice_copy"}}
        exported = torch.export.export(Halves(), (torch.randn(4),), dynamic_shapes=({0: Dim("x", min=3, max=9)},))
        program = delegatekit.lower(
            exported, backends=["coreml"], options={"coreml": options | {"precision": "float32"}}
        )
        return delegatekit.load(program.buffer)["forward"]

    check(halves(2, 3), Halves(), torch.randn(5))
    with pytest.raises(OptionError, match="is not 4 there"):
        halves(2, 4)


def test_a_blob_whose_usual_sizes_are_too_large_is_refused() -> None:
    from coremltools.proto import Model_pb2

    sizes = ({0: Dim("rows", min=2, max=9)},)
    module = torch.export.export(nn.ReLU(), (torch.randn(4, 6),), dynamic_shapes=sizes)
    (delegate,) = delegatekit.lower(module, backends=["coreml"]).methods["forward"].delegates
    files = {path: bytes(content) for path, content in read_archive(b"".join(map(bytes, delegate.blob))).items()}
    path = next(path for path in files if path.endswith(".mlmodel"))
    model = Model_pb2.Model.FromString(files[path])
    specs = [TensorSpec("float32", (4, 6), dynamic=True)]
    for size, reason in ((4, ""), (1 << 62, "more than 64 GiB"), (-4, "each must be at least 0")):
        model.description.input[0].type.multiArrayType.shape[0] = size
        blob = b"".join(write_archive(files | {path: model.SerializeToString()}))
        with pytest.raises(FormatError, match=reason) if reason else nullcontext():
            CoreMLRuntime().init(payload_of(blob, specs, specs))


def test_coremltools_loads_programs_with_ranges() -> None:
    from coremltools import proto
    from coremltools.converters.mil.frontend.milproto.load import load

    shapes = ({0: Dim("batch", min=1, max=5), 1: Dim("length", min=3, max=9)},)
    program = delegatekit.lower(Heads(), (torch.randn(2, 4, 8),), backends=["coreml"], dynamic_shapes=shapes)
    (delegate,) = program.methods["forward"].delegates
    model = proto.Model_pb2.Model()
    model.ParseFromString(bytes(read_package(b"".join(map(bytes, delegate.blob))).model))
    found = load(model, model.specificationVersion, "")
    assert len(found.functions["main"].outputs) == 7
