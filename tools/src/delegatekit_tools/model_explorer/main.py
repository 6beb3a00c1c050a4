"""An extension of Model Explorer (`ai-edge-model-explorer`) for .pte and .bpte files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model_explorer import Adapter, AdapterMetadata, graph_builder

from .graphs import Box, drawings


class DelegateKitAdapter(Adapter):  # type: ignore[misc]
    """Shows methods, and the insides of delegates of all backends."""

    metadata = AdapterMetadata(
        id="delegatekit",
        name="DelegateKit",
        description="Methods and the insides of delegates, with source lines if an ETRecord is beside the file",
        fileExts=["pte", "bpte"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> dict[str, Any]:
        """The graphs of a file. Raises FormatError, which Model Explorer shows."""
        graphs = [
            graph_builder.Graph(id=drawing.id, nodes=[_node(box) for box in drawing.boxes])
            for drawing in drawings(Path(model_path))
        ]
        return {"graphs": graphs}


def _node(box: Box) -> Any:
    return graph_builder.GraphNode(
        id=box.id,
        label=box.label,
        namespace=box.group,
        subgraphIds=[] if box.inside is None else [box.inside],
        attrs=[graph_builder.KeyValue(key=key, value=value) for key, value in box.facts.items()],
        incomingEdges=[graph_builder.IncomingEdge(sourceNodeId=source) for source in box.reads],
    )
