"""Several methods of one file: their delegates are functions of one model, and share its weights."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_api import FormatError, TensorSpec
from delegatekit_coreml.blob.package import read_package
from delegatekit_coreml.runtime import CoreMLRuntime
from delegatekit_toolkit.accuracy import tolerance
from delegatekit_toolkit.testing import payload_of


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.second(torch.relu(self.first(x)))
        return found


class First(Network):
    """Only the first layer, and another name of the input."""

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.first(y).tanh()
        return found


def exported() -> tuple[dict[str, nn.Module], dict[str, torch.export.ExportedProgram]]:
    torch.manual_seed(0)
    whole, first = Network().eval(), First().eval()
    first.first, first.second = whole.first, whole.second
    rows = torch.export.Dim("rows", min=3, max=9)
    x = torch.randn(4, 64)
    return {"forward": whole, "first": first}, {
        "forward": torch.export.export(whole, (x,), dynamic_shapes=({0: rows},), strict=False),
        "first": torch.export.export(first, (x,), strict=False),
    }


def lowered(**options: Any) -> Any:
    options = {"target": "ios18", "precision": "float32", **options}
    return delegatekit.lower(exported()[1], backends=["coreml"], options={"coreml": options})


def delegates_of(program: Any) -> dict[str, Any]:
    return {name: method.delegates[0] for name, method in program.methods.items()}


def test_blobs_are_references_to_one_archive_of_two_functions() -> None:
    found = delegates_of(lowered())
    references = {name: b"".join(map(bytes, delegate.blob)) for name, delegate in found.items()}
    keys = set()
    for name, blob in references.items():
        assert blob[:4] == b"CMJR"
        reference = json.loads(blob[4:])
        assert (reference["version"], reference["functionName"]) == (1, name)
        keys.add(reference["key"])
    (key,) = keys
    (data,) = {item.data for delegate in found.values() for item in delegate.named_data}
    package = read_package(data)
    assert key.startswith("coreml_executorch_") and list(package.methods) == ["first", "forward"]
    assert package.methods["first"].inputs == ("y",)


def test_the_weights_stand_once_in_the_file() -> None:
    alone = delegatekit.lower(
        exported()[1]["forward"], backends=["coreml"], options={"coreml": {"precision": "float32"}}
    ).buffer
    both, apart = lowered().buffer, lowered(weight_sharing="disabled").buffer
    first_layer = 64 * 128 * 4
    assert len(both) < len(alone) + first_layer / 4
    assert len(apart) > len(alone) + first_layer


@pytest.mark.parametrize("options", [{}, {"weight_sharing": "disabled"}, {"target": "ios17"}])
def test_the_methods_compute_what_eager_does(options: dict[str, Any]) -> None:
    modules, _ = exported()
    program = delegatekit.load(lowered(**options).buffer)
    limit = tolerance("float32", "float32", reduction_length=64, depth=2)
    for name, rows in (("forward", 4), ("first", 4), ("forward", 9)):
        x = torch.randn(rows, 64)
        with torch.no_grad():
            torch.testing.assert_close(program[name](x), modules[name](x), rtol=limit, atol=limit)


def test_equal_programs_have_equal_files() -> None:
    assert lowered().buffer == lowered().buffer


def test_damaged_references_are_refused() -> None:
    delegate = delegates_of(lowered())["first"]
    blob = b"".join(map(bytes, delegate.blob))
    (data,) = delegate.named_data
    payload = payload_of(blob, [TensorSpec("float32", (4, 64))], [TensorSpec("float32", (4, 128))])
    payload = replace(payload, named_data={data.key: memoryview(data.data)})
    runtime = CoreMLRuntime()
    runtime.init(payload)
    for wrong, reason in (
        (replace(payload, named_data={}), "has no named data"),
        (replace(payload, blob=memoryview(data.data)), "has several methods"),
        (replace(payload, blob=memoryview(blob.replace(b'"first"', b'"third"'))), "has no method"),
        (replace(payload, blob=memoryview(blob.replace(b"1", b"2", 1))), "version"),
        (replace(payload, blob=memoryview(blob[:-1])), "JSON"),
    ):
        with pytest.raises(FormatError, match=reason):
            runtime.init(wrong)


def test_coremltools_loads_the_model_of_two_functions() -> None:
    from coremltools import proto

    (data,) = delegates_of(lowered())["first"].named_data
    model = proto.Model_pb2.Model()
    model.ParseFromString(bytes(read_package(data.data).model))
    assert sorted(item.name for item in model.description.functions) == ["first", "forward"]
    assert set(model.mlProgram.functions) == {"first", "forward"}
