"""Packed constants from coremltools: the interpreter computes the same as with unpacked ones."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from delegatekit_api import TensorSpec
from delegatekit_conformance.testkit import lower
from delegatekit_coreml.blob.archive import read_archive
from delegatekit_coreml.blob.package import Package, write_package
from delegatekit_coreml.runtime import CoreMLRuntime
from delegatekit_toolkit.accuracy import tolerance
from delegatekit_toolkit.testing import payload_of

X = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)).eval()


def model_of(folder: Path, target: str) -> Any:
    """The package of a network as coremltools' model."""
    import coremltools

    lowered = lower(network(), X, backend="coreml", options={"target": target, "precision": "float32"})
    for path, content in read_archive(lowered.delegate.blob).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return coremltools.models.MLModel(str(folder / "model.mlpackage"), skip_model_load=True)


def run(model: Any) -> torch.Tensor:
    """The interpreter's results for a model of coremltools."""
    specification = model.get_spec()
    names = [
        [item.name for item in features]
        for features in (specification.description.input, specification.description.output)
    ]
    weights = (Path(model.weights_dir) / "weight.bin").read_bytes()
    package = Package(memoryview(specification.SerializeToString()), memoryview(weights), *map(tuple, names))
    blob = b"".join(map(bytes, write_package(package)))
    runtime, result = CoreMLRuntime(), torch.empty(2, 16)
    payload = payload_of(blob, [TensorSpec("float32", (2, 64))], [TensorSpec("float32", (2, 16))])
    runtime.execute(runtime.init(payload), [X], [result])
    return result


def packed(model: Any, form: str) -> Any:
    """The model with its constants in another form."""
    import coremltools.optimize.coreml as optimize

    kind, *rest = form.split()
    number = int(rest[0]) if rest else 0
    if kind == "palettized":
        settings = {"granularity": "per_grouped_channel", "group_size": 16} if "grouped" in rest else {}
        config = optimize.OpPalettizerConfig(mode="kmeans", nbits=number, weight_threshold=0, **settings)
        return optimize.palettize_weights(model, optimize.OptimizationConfig(global_config=config))
    if kind == "pruned":
        pruned = optimize.OpMagnitudePrunerConfig(target_sparsity=0.5, weight_threshold=0)
        return optimize.prune_weights(model, optimize.OptimizationConfig(global_config=pruned))
    blocks = {"granularity": "per_block", "block_size": 16} if number == 4 else {}
    affine = optimize.OpLinearQuantizerConfig(mode=rest[1], dtype=f"int{number}", weight_threshold=0, **blocks)
    return optimize.linear_quantize_weights(model, optimize.OptimizationConfig(global_config=affine))


@pytest.mark.parametrize(
    ("form", "target"),
    [
        ("palettized 1", "ios16"),
        ("palettized 4", "ios16"),
        ("palettized 6", "ios17"),
        ("palettized 3", "ios18"),
        ("palettized 8", "ios18"),
        ("palettized 4 grouped", "ios18"),
        ("pruned", "ios16"),
        ("pruned", "ios18"),
        ("linear 8 linear_symmetric", "ios16"),
        ("linear 8 linear", "ios17"),
        ("linear 8 linear", "ios18"),
        ("linear 4 linear_symmetric", "ios18"),
    ],
)
def test_packed_constants_are_those_that_coremltools_unpacks(form: str, target: str, tmp_path: Path) -> None:
    import coremltools.optimize.coreml as optimize

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = packed(model_of(tmp_path, target), form)
        found, wanted = run(model), run(optimize.decompress_weights(model))
    limit = tolerance("float32", "float32", 1, depth=2)
    torch.testing.assert_close(found, wanted, rtol=limit, atol=limit)
    with torch.no_grad():
        assert not torch.equal(found, network()(X))
