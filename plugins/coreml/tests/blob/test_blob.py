"""The blob: read by stock's tools and coremltools, and refused by the reader if damaged."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from delegatekit_api import DelegatePayload, ExecutionError, FormatError, TensorSpec
from delegatekit_conformance.testkit import Lowered, lower
from delegatekit_coreml.blob.archive import read_archive, write_archive
from delegatekit_coreml.runtime import CoreMLRuntime
from delegatekit_toolkit.testing import payload_of

IMAGE = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GELU(), nn.Flatten(), nn.Linear(128, 10), nn.Softmax(-1)).eval()


@pytest.fixture(scope="module")
def lowered() -> Lowered:
    return lower(network(), IMAGE, backend="coreml")


def payload(blob: bytes) -> DelegatePayload:
    return payload_of(blob, [TensorSpec("float32", (1, 3, 8, 8))], [TensorSpec("float32", (1, 10))])


def test_an_archive_is_read_as_it_was_written() -> None:
    files = {"a/b.txt": b"one", "c": b"\xff{}", "a/d/e": b"\0" * 5}
    found = read_archive(b"".join(write_archive(files)) + b"\0" * 37)
    assert {path: bytes(content) for path, content in found.items()} == files


def test_an_archive_has_no_empty_files() -> None:
    with pytest.raises(ValueError, match="is empty"):
        write_archive({"a": b""})


def test_a_result_that_is_declared_as_a_text_is_refused(lowered: Lowered) -> None:
    from coremltools.proto import Model_pb2

    files = {path: bytes(content) for path, content in read_archive(lowered.delegate.blob).items()}
    path = next(path for path in files if path.endswith(".mlmodel"))
    model = Model_pb2.Model.FromString(files[path])
    (block,) = model.mlProgram.functions["main"].block_specializations.values()
    operation = next(item for item in block.operations if item.type == "gelu")
    operation.outputs[0].type.tensorType.dataType = 2  # STRING
    damaged = write_archive(files | {path: model.SerializeToString()})
    with pytest.raises(FormatError, match="has a text where a tensor is"):
        CoreMLRuntime().init(payload(b"".join(damaged)))


def test_a_result_of_more_axes_than_devices_have_is_refused(lowered: Lowered) -> None:
    from coremltools.proto import Model_pb2

    files = {path: bytes(content) for path, content in read_archive(lowered.delegate.blob).items()}
    path = next(path for path in files if path.endswith(".mlmodel"))
    model = Model_pb2.Model.FromString(files[path])
    (block,) = model.mlProgram.functions["main"].block_specializations.values()
    kind = next(item for item in block.operations if item.type == "gelu").outputs[0].type.tensorType
    for _ in range(6 - kind.rank):
        kind.dimensions.add().constant.size = 1
    kind.rank = 6
    with pytest.raises(FormatError, match="has 6 axes"):
        CoreMLRuntime().init(payload(b"".join(write_archive(files | {path: model.SerializeToString()}))))


@pytest.mark.parametrize("place", ["constant", "axes"])
def test_one_element_does_not_stand_for_more_than_memory_has(place: str) -> None:
    from coremltools.proto import Model_pb2

    x = torch.randn(2, 3)
    blob = lower(lambda x: (x * torch.tensor([1.5, 2.5, 3.5])).mean(-1), x, backend="coreml").delegate.blob
    files = {path: bytes(content) for path, content in read_archive(blob).items()}
    path = next(path for path in files if path.endswith(".mlmodel"))
    model = Model_pb2.Model.FromString(files[path])
    (block,) = model.mlProgram.functions["main"].block_specializations.values()
    names = {item.type: item.inputs for item in block.operations}
    name = (names["mul"]["y"] if place == "constant" else names["reduce_mean"]["axes"]).arguments[0].name
    constant = next(item for item in block.operations if item.outputs[0].name == name)
    value = constant.attributes["val"]
    for kind in (value.type.tensorType, constant.outputs[0].type.tensorType):
        kind.dimensions[0].constant.size = 1 << 33
    value.immediateValue.tensor.Clear()
    if place == "constant":
        value.immediateValue.tensor.floats.values.append(1.0)
    else:
        value.immediateValue.tensor.ints.values.append(0)
    damaged = b"".join(write_archive(files | {path: model.SerializeToString()}))
    with pytest.raises(FormatError, match="too much" if place == "constant" else "not of the kind"):
        CoreMLRuntime().init(payload_of(damaged, [TensorSpec("float32", (2, 3))], [TensorSpec("float32", (2,))]))


def test_stock_unpacks_the_archive(lowered: Lowered, tmp_path: Path) -> None:
    pytest.importorskip("executorch.backends.apple.coreml.executorchcoreml")
    (tmp_path / "blob").write_bytes(lowered.delegate.blob)
    # In a process of its own: some damage crashes the extension.
    code = (
        "import sys; from executorch.backends.apple.coreml import executorchcoreml as stock\n"
        "assert stock.unflatten_directory_contents(open(sys.argv[1], 'rb').read(), sys.argv[2])"
    )
    (tmp_path / "out").mkdir()
    subprocess.run([sys.executable, "-c", code, tmp_path / "blob", tmp_path / "out"], check=True)
    (root,) = (tmp_path / "out").iterdir()
    found = {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}
    assert found == {path: bytes(content) for path, content in read_archive(lowered.delegate.blob).items()}


def test_coremltools_loads_the_package(lowered: Lowered, read_back: Any) -> None:
    # Its own loader infers all types and shapes again.
    specification, program = read_back(lowered.delegate.blob)
    metadata = json.loads(bytes(read_archive(lowered.delegate.blob)["metadata.json"]))
    assert [item.name for item in specification.description.input] == metadata["inputNames"]
    assert [value.name for value in program.functions["main"].outputs] == metadata["outputNames"]


def test_metadata_names_the_content(lowered: Lowered) -> None:
    metadata = json.loads(bytes(read_archive(lowered.delegate.blob)["metadata.json"]))
    assert metadata["identifier"].startswith("executorch_")
    assert lowered.delegate.compile_specs == {
        "compute_units": b"all",
        "min_deployment_target": b"8",
        "model_compute_precision": b"float16",
        "model_type": b"model",
    }


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(lowered: Lowered) -> None:
    code = (
        f"import sys, hashlib; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_blob import network, IMAGE; from delegatekit_conformance.testkit import lower\n"
        "print(hashlib.sha256(lower(network(), IMAGE, backend='coreml').delegate.blob).hexdigest())"
    )
    import hashlib

    made = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert made.stdout.split() == [hashlib.sha256(lowered.delegate.blob).hexdigest()]


def test_other_weights_have_another_identifier(lowered: Lowered) -> None:
    other = network()
    with torch.no_grad():
        other[0].weight += 1
    blobs = [lowered.delegate.blob, lower(other, IMAGE, backend="coreml").delegate.blob]
    identifiers = {json.loads(bytes(read_archive(blob)["metadata.json"]))["identifier"] for blob in blobs}
    assert len(identifiers) == 2


def test_damaged_blobs_are_refused_or_run(lowered: Lowered) -> None:
    """Any change causes only our own errors."""
    blob, runtime, chance = lowered.delegate.blob, CoreMLRuntime(), random.Random(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(blob)
        for _ in range(chance.choice((1, 1, 4))):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.2:
            del damaged[chance.randrange(len(damaged)) :]
        try:
            handle = runtime.init(payload(bytes(damaged)))
            runtime.execute(handle, [IMAGE], [torch.empty(1, 10)])
        except (FormatError, ExecutionError):
            refused += 1
    assert refused > 50


def damaged_directory(blob: bytes, change: Any) -> bytes:
    """A blob whose directory was changed."""
    reversed_blob = blob[::-1].decode("latin-1")
    directory, end = json.JSONDecoder().raw_decode(reversed_blob)
    change(directory["nodes"])
    return blob[: len(blob) - end] + json.dumps(directory).encode()[::-1]


def out_of_bounds(nodes: list[Any]) -> None:
    nodes[0]["dataRegion"]["offset"] = 1 << 40


def circular(nodes: list[Any]) -> None:
    nodes[-1]["children"]["again"] = len(nodes) - 1


def outside(nodes: list[Any]) -> None:
    nodes[-1]["children"][".."] = 0


def missing(nodes: list[Any]) -> None:
    nodes[-1]["children"]["metadata.json"] = len(nodes)


def unknown_kind(nodes: list[Any]) -> None:
    nodes[-1]["kind"] = 7


@pytest.mark.parametrize("change", [out_of_bounds, circular, outside, missing, unknown_kind])
def test_damaged_directories_are_refused(lowered: Lowered, change: Any) -> None:
    with pytest.raises(FormatError):
        CoreMLRuntime().init(payload(damaged_directory(lowered.delegate.blob, change)))


@pytest.mark.parametrize("blob", [b"", b"}", b"{}"[::-1], b"0" * 100, json.dumps({"nodes": []}).encode()[::-1]])
def test_what_is_no_archive_is_refused(blob: bytes) -> None:
    with pytest.raises(FormatError):
        CoreMLRuntime().init(payload(blob))


def test_a_caller_with_other_tensors_is_refused(lowered: Lowered) -> None:
    wrong = payload_of(lowered.delegate.blob, [TensorSpec("float32", (1, 3, 9, 8))], [TensorSpec("float32", (1, 10))])
    with pytest.raises(FormatError, match="in the program"):
        CoreMLRuntime().init(wrong)
