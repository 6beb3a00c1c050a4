"""Interoperability with stock: it unpacks our archives, coremltools infers all types again, blobs of stock's
partitioner run here, and both kinds compute the same."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import delegatekit
import delegatekit.pte
from delegatekit_conformance.testkit import Lowered, compare, lower
from delegatekit_coreml.blob.archive import read_archive
from delegatekit_coreml.runtime.kernels import KERNELS
from delegatekit_toolkit.accuracy import tolerance


def stock_buffer(model: nn.Module, inputs: tuple[Any, ...], target: str, shapes: Any = None) -> bytes:
    """The `.pte` of stock's partitioner and preprocess."""
    return stock_methods({"forward": model}, inputs, target, shapes)


def stock_methods(methods: dict[str, nn.Module], inputs: tuple[Any, ...], target: str, shapes: Any = None) -> bytes:
    """The same of several methods."""
    pytest.importorskip("executorch.backends.apple.coreml.partition", reason="executorch is not installed")
    level = logging.getLogger().level
    import coremltools
    from executorch.backends.apple.coreml.compiler import CoreMLBackend
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner
    from executorch.exir import to_edge_transform_and_lower

    try:
        with torch.no_grad(), contextlib.redirect_stdout(None):
            specs = CoreMLBackend.generate_compile_specs(minimum_deployment_target=coremltools.target[target])
            exported = {
                name: torch.export.export(model.eval(), inputs, dynamic_shapes=shapes, strict=False)
                for name, model in methods.items()
            }
            partitioners = {name: [CoreMLPartitioner(compile_specs=specs)] for name in methods}
            edge = to_edge_transform_and_lower(exported, partitioner=partitioners)
            buffer: bytes = edge.to_executorch().buffer
    finally:
        logging.getLogger().setLevel(level)
    return buffer


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.parts, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.parts(self.norm(x)).reshape(x.shape[0], x.shape[1], 3, 2, 8).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        result: torch.Tensor = x + self.out(found.transpose(1, 2).reshape(x.shape))
        return result


#: Sums are float32: only the rounding of the results to float16 counts.
HALF = tolerance("float32", "float16", 1)

IMAGES = nn.Sequential(
    nn.Conv2d(3, 8, 3, 2, 1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.Conv2d(8, 8, 3, padding=1, groups=8),
    nn.SiLU(),
    nn.MaxPool2d(2, 2),
    nn.Flatten(),
    nn.Linear(128, 10),
    nn.Softmax(-1),
)


@pytest.mark.parametrize("target", ["iOS15", "iOS17", "iOS18"])
@pytest.mark.sweep
@pytest.mark.parametrize(
    ("model", "shape"), [(IMAGES, (1, 3, 16, 16)), (Attention(), (1, 5, 16))], ids=["images", "attention"]
)
def test_stock_programs_run(model: nn.Module, shape: tuple[int, ...], target: str) -> None:
    inputs = (torch.randn(shape, generator=torch.Generator().manual_seed(0)),)
    buffer = stock_buffer(model, inputs, target)
    (delegate,) = delegatekit.inspect(buffer, operators=True).methods[0].delegates
    assert delegate.id == "CoreMLBackend"
    told = delegate.insides
    assert told is not None and not told.unknown
    names = [item.name for item in told.operators]
    assert "const" not in names and names.count("conv") == 2 * (model is IMAGES) and "linear" in names
    assert all(item.facts["result"] for item in told.operators)
    with torch.no_grad():
        wanted = model(*inputs)
    got = delegatekit.load(buffer)["forward"](*inputs)
    # Stock computes in float16.
    assert float((got - wanted).abs().max() / wanted.abs().max()) < HALF


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


class Places(nn.Module):
    """Operators that write to indices, sort elements, and sample."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> Any:
        values, places = x.topk(2, -1)
        return x.scatter(1, index, 2.0), x.index_put((index[0],), values[0, 0]), places, x.cummax(1)[0], x.isnan()


IMAGE, WORDS, SEQUENCE = drawn(1, 3, 16, 16), drawn(1, 5, 16), drawn(2, 3, 4)
PLACES = (drawn(4, 5), torch.tensor([[0, 2], [1, 3], [4, 0], [1, 2]]))


def quantized(scheme: str, target: str) -> Lowered:
    options = {"target": target}
    model = delegatekit.quantize(IMAGES.eval(), [(IMAGE,)], backend="coreml", scheme=scheme, options=options)
    return lower(model, IMAGE, backend="coreml", options=options)


def floats(model: Any, *inputs: torch.Tensor, **options: Any) -> Lowered:
    return lower(model, *inputs, backend="coreml", options=options)


WIDE = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 16))
PROGRAMS: dict[str, Any] = {
    "images": lambda: floats(IMAGES, IMAGE),
    "images ios15": lambda: floats(IMAGES, IMAGE, target="ios15"),
    "images float32": lambda: floats(IMAGES, IMAGE, precision="float32"),
    "attention": lambda: floats(Attention(), WORDS),
    "attention ios18": lambda: floats(Attention(), WORDS, target="ios18"),
    "sequences": lambda: floats(nn.LSTM(4, 5, 2, bidirectional=True).eval(), SEQUENCE),
    "plain sequences": lambda: floats(nn.RNN(4, 5).eval(), SEQUENCE),
    "gated sequences": lambda: floats(nn.GRU(4, 5, bias=False).eval(), SEQUENCE),
    "places": lambda: lower(Places(), *PLACES, backend="coreml", whole=False),
    "int8": lambda: quantized("int8", "ios17"),
    "int8 weights": lambda: quantized("int8-weight-only", "ios16"),
    "int8 weights ios18": lambda: quantized("int8-weight-only", "ios18"),
    "int4 weights": lambda: quantized("int4-weight-only", "ios18"),
    **{f"tables {target}": lambda target=target: quantized("4-bit-tables", target) for target in ("ios16", "ios18")},
    **{
        f"{form} {target}": lambda form=form, target=target: floats(WIDE, WORDS, target=target, **form)
        for form in ({"palettize": 4}, {"prune": 0.5})
        for target in ("ios16", "ios18")
    },
    "groups of channels": lambda: floats(WIDE, WORDS, target="ios18", palettize=2, palette_channels=8),
}


@pytest.fixture(scope="module")
def blobs() -> dict[str, bytes]:
    """The first delegate of each program."""
    return {name: make().delegates[0].blob for name, make in PROGRAMS.items()}


def test_stock_unpacks_every_archive(blobs: dict[str, bytes], tmp_path: Path) -> None:
    pytest.importorskip("executorch.backends.apple.coreml.executorchcoreml")
    for number, blob in enumerate(blobs.values()):
        (tmp_path / f"{number}.blob").write_bytes(blob)
        (tmp_path / str(number)).mkdir()
    # In a process of its own: some damage crashes the extension.
    code = (
        "import sys; from pathlib import Path\n"
        "from executorch.backends.apple.coreml import executorchcoreml as stock\n"
        "for file in Path(sys.argv[1]).glob('*.blob'):\n"
        "    assert stock.unflatten_directory_contents(file.read_bytes(), str(file.with_suffix('')))"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    for number, blob in enumerate(blobs.values()):
        (root,) = (tmp_path / str(number)).iterdir()
        found = {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}
        assert found == {path: bytes(content) for path, content in read_archive(blob).items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_coremltools_infers_the_types_of_every_program(name: str, blobs: dict[str, bytes], read_back: Any) -> None:
    specification, program = read_back(blobs[name])
    function, declared = program.functions["main"], specification.mlProgram.functions["main"]
    metadata = json.loads(bytes(read_archive(blobs[name])["metadata.json"]))
    assert [value.name for value in function.outputs] == metadata["outputNames"]
    # The loader creates operations for immediate constants: ours are all there.
    block = declared.block_specializations[declared.opset]
    kinds = sorted(item.type for item in block.operations if item.type != "const")
    assert sorted(item.op_type for item in function.operations if item.op_type != "const") == kinds


BOTH: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "images": (IMAGES, (IMAGE,)),
    "attention": (Attention(), (WORDS,)),
    "perceptron": (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)), (WORDS,)),
    "depthwise": (nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.Hardswish(), nn.AvgPool2d(2, 2)), (IMAGE,)),
    "resized": (nn.Sequential(nn.Upsample(scale_factor=2), nn.ConvTranspose2d(3, 4, 2, 2), nn.Sigmoid()), (IMAGE,)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", BOTH)
def test_stock_s_blob_and_ours_compute_the_same(name: str) -> None:
    model, inputs = BOTH[name]
    stock = delegatekit.load(stock_buffer(model, inputs, "iOS17"))["forward"](*inputs)
    (ours,) = floats(model.eval(), *inputs).run()
    # Both compute in float16, with different roundings.
    assert float((ours - stock).abs().max() / stock.abs().max()) < HALF


@pytest.mark.parametrize("blocks", [[-1, 16], [16, -1]], ids=str)
def test_stock_writes_the_same_places_and_tables(blocks: list[int], read_back: Any) -> None:
    coreml = pytest.importorskip("torchao.prototype.quantization.codebook_coreml")
    from torchao.quantization import quantize_

    torch.manual_seed(0)
    model, words = nn.Sequential(nn.Embedding(32, 64), nn.Linear(64, 48)).eval(), torch.tensor([[3, 0, 31], [7, 1, 2]])
    config = coreml.CodebookWeightOnlyConfig(dtype=torch.uint4, block_size=blocks)
    quantize_(model, config, lambda module, _: isinstance(module, nn.Embedding | nn.Linear))
    buffer = stock_buffer(model, (words,), "iOS18")
    (table,) = delegatekit.pte.read(buffer).program.execution_plan[0].delegates
    both = [
        bytes(delegatekit.pte.read(buffer).delegate_blob(table)),
        floats(model, words, target="ios18").delegate.blob,
    ]
    theirs, ours = ([*map(table_of, constexprs(read_back(blob)[1]))] for blob in both)
    assert len(ours) == 2 and sorted(ours) == sorted(theirs)
    wanted = model(words).detach()
    assert float((delegatekit.load(buffer)["forward"](words) - wanted).abs().max() / wanted.abs().max()) < HALF


def constexprs(program: Any) -> list[Any]:
    return [item for item in program.functions["main"].operations if item.op_type.startswith("constexpr_")]


def table_of(item: Any) -> tuple[Any, ...]:
    """The kind of operation, and types, shapes and elements of places and numbers."""
    arrays = [np.asarray(value.val) for value in (item.indices, item.lut)]
    kinds = [str(value.dtype) for value in (item.indices, item.lut)]
    return (item.op_type, kinds, *((array.shape, array.astype(np.float32).tolist()) for array in arrays))


class Filled(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.full_like(x, 2.0) * x, torch.ones_like(x)


class Whole(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.mean(), (x > 0).any(), x.argmax()


#: Features that only stock's compiler writes: results without axes, values in the shape of another, cropped borders.
ONLY_STOCK: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "results without axes": (Whole(), (WORDS,)),
    "filled": (Filled(), (WORDS,)),
    "borders of two widths": (nn.ConvTranspose2d(3, 2, (3, 2), 2, (0, 1), (1, 0)), (IMAGE,)),
}


@pytest.mark.parametrize("name", ONLY_STOCK)
def test_what_only_stock_writes_runs(name: str) -> None:
    model, inputs = ONLY_STOCK[name]
    got = delegatekit.load(stock_buffer(model, inputs, "iOS18"))["forward"].run(inputs)
    with torch.no_grad():
        wanted = model(*inputs)
    for one, other in zip(got, wanted if isinstance(wanted, tuple) else [wanted], strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        assert float((one.float() - other.float()).abs().max()) <= HALF * float(other.float().abs().max())


class Rows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[1:3] * 2


def test_sizes_that_only_the_program_knows_are_checked_when_they_are_there() -> None:
    rows = {0: torch.export.Dim("rows", min=4, max=9)}
    x = drawn(5, 3)
    program = delegatekit.load(stock_buffer(Rows(), (x,), "iOS18", (rows,)))
    for given in (x, drawn(7, 3)):
        assert torch.allclose(program["forward"](given), Rows()(given), atol=HALF * 5)


@pytest.mark.parametrize("crops", [((-1, 0), (0, 0)), ((2, 2), (0, 0)), ((0, 0), (0, 6))], ids=str)
def test_no_more_is_cut_off_than_there_is(crops: tuple[tuple[int, int], tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="crops 3 x 5"):
        KERNELS["crop"].function(torch.zeros(1, 2, 3, 5), *crops)


class Difference(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.diff(x, dim=1) * 2


class Alias(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.alias(x) * 2


#: Programs that stock's partitioner accepts, and then fails to lower.
STOCK_FAILS: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "windows without a stride": (lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "an alias": (Alias(), (WORDS,)),
    "differences": (Difference(), (WORDS,)),
    "sequences": (nn.LSTM(4, 5).eval(), (SEQUENCE,)),
    "whole bounds": (lambda x: F.relu6(x).clamp(1, 3), (WORDS,)),
    "another order of dimensions": (lambda x: x.clone(memory_format=torch.contiguous_format) * 2, (IMAGE,)),
    "copies in another order": (lambda x: x.permute(0, 2, 1).contiguous() * 2, (WORDS,)),
}


@pytest.mark.parametrize("name", STOCK_FAILS)
def test_what_stock_fails_on_is_lowered_and_right(name: str) -> None:
    model, inputs = STOCK_FAILS[name]
    compare(
        floats(model, *inputs, precision="float32"),
        tolerance=tolerance("float32", "float32", reduction_length=4, depth=2),
    )


def test_methods_that_stock_joined_run() -> None:
    torch.manual_seed(0)
    both = {
        "forward": nn.Sequential(nn.Linear(64, 128), nn.ReLU()),
        "other": nn.Sequential(nn.Linear(64, 32), nn.Tanh()),
    }
    x = torch.randn(4, 64)
    buffer = stock_methods(both, (x,), "iOS18")
    # Blobs are references to one archive.
    assert all(method.delegates[0].blob_size < 200 for method in delegatekit.inspect(buffer).methods)
    program = delegatekit.load(buffer)
    for name, model in both.items():
        with torch.no_grad():
            wanted = model(x)
        assert float((program[name](x) - wanted).abs().max() / wanted.abs().max()) < HALF
