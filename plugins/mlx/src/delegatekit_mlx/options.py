"""The options of the MLX backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions
from delegatekit_toolkit.options import leave_out_option, whole_graph_option


@dataclass(frozen=True)
class MLXOptions(BackendOptions):
    """Options for lowering to MLX."""

    leave_out: frozenset[str] = leave_out_option()
    whole_graph: bool = whole_graph_option()
