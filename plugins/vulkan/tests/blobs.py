"""Helpers of tests that inspect the blobs of lowered programs."""

from __future__ import annotations

from delegatekit_conformance.testkit import Lowered
from delegatekit_vulkan.blob.reader import parse


def operators(lowered: Lowered) -> list[str]:
    """The operators of the only delegate, in order."""
    graph, _ = parse(lowered.delegate.blob)
    return [str(call.name) for call in graph.chain or ()]
