"""The files for ExecuTorch's profiler: in the format that stock's lowering writes."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

import delegatekit
from delegatekit_conformance.testkit import compare, lower
from delegatekit_coreml.blob.archive import read_archive
from delegatekit_toolkit.accuracy import tolerance

X = torch.randn(2, 8)
MODEL = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
INFO, MAPPING = "debug_info.json", "model.mlpackage/executorch_debug_handle_mapping.json"


def lowered(**options: Any) -> Any:
    return lower(MODEL, X, backend="coreml", options={"precision": "float32", **options})


def test_a_blob_has_them_if_it_is_asked_for() -> None:
    assert not {INFO, MAPPING} & set(read_archive(lowered().delegate.blob))
    found = lowered(debug_files=True)
    assert {INFO, MAPPING} <= set(read_archive(found.delegate.blob))
    compare(found, tolerance=tolerance("float32", "float32", reduction_length=8, depth=2))


def test_symbols_lead_to_handles_and_to_operations() -> None:
    files = read_archive(lowered(debug_files=True).delegate.blob)
    info, mapping = (json.loads(bytes(files[name])) for name in (INFO, MAPPING))
    assert set(info) == {"versionInfo", "debugSymbolToOperationPath", "debugSymbolToHandles"}
    assert set(mapping) == {"version", "mapping"} and info["versionInfo"] == mapping["version"]
    path = info["debugSymbolToOperationPath"]["relu_0:relu"]
    assert path[-1] == {"Type": "Operation", "Operator": "relu", "Output": "relu_0"}
    (handle,) = info["debugSymbolToHandles"]["relu_0:relu"]
    assert path in mapping["mapping"][str(handle)]


def test_the_debug_map_has_the_symbols_of_the_runtime() -> None:
    program = delegatekit.lower(MODEL, (X,), backends=["coreml"])
    (delegate,) = program.methods["forward"].delegates
    assert {"linear_0:linear", "relu_0:relu", "linear_1:linear"} <= set(delegate.debug_handle_map)
