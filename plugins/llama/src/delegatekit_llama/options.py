"""The options of the backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions
from delegatekit_toolkit.options import leave_out_option


@dataclass(frozen=True)
class LlamaOptions(BackendOptions):
    """Options for calls of ExecuTorch's operators for language models."""

    leave_out: frozenset[str] = leave_out_option()
