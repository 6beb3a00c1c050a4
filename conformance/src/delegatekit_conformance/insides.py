"""The inside of a compiled delegate: the bytes of its data, and the operators that its backend reports."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import torch

from delegatekit.lowering import Delegate
from delegatekit_api import DelegateKitError
from delegatekit_api.blobs import BlobOperator

#: Characters of the reported operators that are kept.
_SHOWN = 160


def bits(tensor: torch.Tensor) -> bytes:
    """The tensor's elements as bytes, in row-major order."""
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.stride(0) != 1:  # of one element, which counts as contiguous with any stride
        flat = flat.clone(memory_format=torch.contiguous_format)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


def bytes_of(data: Any) -> bytes:
    """The bytes of named data: raw, or of a tensor."""
    return bits(data) if isinstance(data, torch.Tensor) else bytes(data)


def operators_of(delegate: Delegate) -> tuple[BlobOperator, ...]:
    """The operators of a delegate, none if its backend does not report them. Raises what `blob_operators` raises."""
    backend = delegate.chosen.backend
    if not backend.has("blob_operators"):
        return ()
    named = {item.key: memoryview(bytes_of(item.data)) for item in delegate.named_data}
    return backend.blob_operators(memoryview(b"".join(delegate.blob)), delegate.compile_specs, named, "forward") or ()


def told_of(delegate: Delegate) -> tuple[BlobOperator, ...]:
    """The operators of a delegate; none if its backend cannot report them, which a rule of the contract checks."""
    try:
        return operators_of(delegate)
    except DelegateKitError:
        return ()


def line_of(delegate: Delegate, operators: Iterable[BlobOperator]) -> str:
    """Checksums of the delegate's bytes and of its reported operators, and their beginning, in a line."""
    told = (" ".join((one.name, *(f"{name}={fact}" for name, fact in one.facts.items()))) for one in operators)
    words = "; ".join(told)
    if not words:
        return ""
    keys = "".join(item.key for item in delegate.named_data)
    bytes_of_it = b"".join(delegate.blob) + keys.encode()
    return f"{zlib.crc32(bytes_of_it):08x} {zlib.crc32(words.encode()):08x} {words[:_SHOWN]}"


def told_otherwise(old: Iterable[str], new: Iterable[str]) -> tuple[str, str] | None:
    """The first delegate whose reported operators differ although its bytes are the same: before, and now."""
    before = {blob: told for blob, _, told in (line.partition(" ") for line in old)}
    for blob, _, told in (line.partition(" ") for line in new):
        (was, _, words), (now, _, other) = before.get(blob, told).partition(" "), told.partition(" ")
        if was != now:
            return words, other
    return None
