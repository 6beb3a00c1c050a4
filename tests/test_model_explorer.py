"""Model Explorer opens our files: by our adapter, and by ExecuTorch's own. Skipped where they are not installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import delegatekit as dk


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A program of two XNNPACK delegates around an operator of the runtime, with its ETRecord."""
    module = nn.Sequential(nn.Linear(8, 16), Arctangent(), nn.Linear(16, 4)).eval()
    program = dk.lower(module, (torch.randn(2, 8),), backends=["xnnpack"])
    program.save(tmp_path / "net.pte", beside={tmp_path / "net.etrecord": dk.etrecord(program)})
    return tmp_path / "net.pte"


class Arctangent(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.atan(x)


def test_our_adapter_gives_graphs_whose_delegates_open(net: Path) -> None:
    reason = "Model Explorer (ai-edge-model-explorer) is not installed"
    manager = pytest.importorskip("model_explorer.extension_manager", reason=reason)
    extensions = manager.ExtensionManager(["delegatekit_tools.model_explorer"])  # as `--extensions` gives it
    extensions.load_extensions()
    (ours,) = (item for item in extensions.extensions if item.metadata.id == "delegatekit")
    assert ours.metadata.fileExts == ["pte", "bpte"]
    method, *inside = ours.ext_class().convert(str(net), {})["graphs"]
    assert [node.label for node in method.nodes][1:4] == [
        "delegate 0: XnnpackBackend", "aten::atan.out", "delegate 1: XnnpackBackend"
    ]  # fmt: skip
    assert [node.subgraphIds for node in method.nodes if node.subgraphIds] == [[graph.id] for graph in inside]
    assert [[node.label for node in graph.nodes] for graph in inside] == [["aten.linear.default"]] * 2


def test_the_adapter_for_programs_opens_ours(net: Path) -> None:
    reason = "pte-adapter-model-explorer is not installed"
    builder = pytest.importorskip("pte_adapter_model_explorer.builder.builder", reason=reason)
    methods, delegates = builder.PteGraphBuilder(net, {}).graph_collections
    (graph,) = methods.graphs
    assert [node.label for node in graph.nodes] == [
        "Graph Inputs", "XnnpackBackend", "aten::atan", "XnnpackBackend", "Graph Outputs"
    ]  # fmt: skip
    assert all("XNNFullyConnected" in [node.label for node in inside.nodes] for inside in delegates.graphs)


@pytest.mark.filterwarnings("ignore:Unsupported kwarg")
def test_the_adapter_for_records_opens_ours(net: Path) -> None:
    reason = "etrecord-adapter-model-explorer is not installed"
    builder = pytest.importorskip("etrecord_adapter_model_explorer.builder.builder", reason=reason)
    (collection,) = builder.ETRecordGraphBuilder(net.with_suffix(".etrecord"), {}).build()
    (graph,) = collection.graphs
    groups = [node.namespace for node in graph.nodes if node.label in ("Linear", "aten::linear")]
    assert groups == ["delegates/XnnpackBackend/partition_0", "delegates/XnnpackBackend/partition_2"]
