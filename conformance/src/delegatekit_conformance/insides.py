"""What is inside a compiled delegate: the bytes of its data, and the operators that its backend tells."""

from __future__ import annotations

from typing import Any

import torch

from delegatekit.lowering import Delegate
from delegatekit_api.blobs import BlobOperator


def bits(tensor: torch.Tensor) -> bytes:
    """The tensor's elements as bytes, in row-major order."""
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.stride(0) != 1:  # of one element, which counts as contiguous whatever its stride is
        flat = flat.clone(memory_format=torch.contiguous_format)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


def bytes_of(data: Any) -> bytes:
    """The bytes of named data: raw, or of a tensor."""
    return bits(data) if isinstance(data, torch.Tensor) else bytes(data)


def operators_of(delegate: Delegate) -> tuple[BlobOperator, ...]:
    """The operators of a delegate, none if its backend does not tell. Raises what `blob_operators` raises."""
    backend = delegate.chosen.backend
    if not backend.has("blob_operators"):
        return ()
    named = {item.key: memoryview(bytes_of(item.data)) for item in delegate.named_data}
    return backend.blob_operators(memoryview(b"".join(delegate.blob)), delegate.compile_specs, named, "forward") or ()
