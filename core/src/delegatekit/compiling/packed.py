"""A compiler's result for a partition, packed into bytes: for transfer from its process, and for the cache.

A header as JSON, the data one after the other, and the SHA-256 of all that and of the cache key. Named
data that are pieces of the partition's own constants are stored as references.
"""

from __future__ import annotations

import hashlib
import json
import struct
from base64 import b64decode, b64encode
from typing import Any, Final

import torch

from delegatekit_api import CompileSpec, NamedData, PreprocessResult
from delegatekit_toolkit.content import elements
from delegatekit_toolkit.json_text import to_json

from ..edge.constants import Constants
from ..pte.estimates import Estimates
from .constants import Pieces
from .result import CheckedResult, check_result

#: Magic of packed results: a name, and the version of this format.
_MAGIC: Final = b"DKR\x01"
_LENGTH: Final = struct.Struct("<Q")
_DIGEST: Final = hashlib.sha256().digest_size


class DamagedError(Exception):
    """Bytes that are no packed result, or were modified."""


def pack(result: CheckedResult, constants: Constants[int], key: str = "") -> bytes:
    """The packed result of a partition with these constants, for a cache key."""
    pieces = Pieces(constants)
    chunks: list[Any] = [memoryview(part) for part in result.blob]
    named: list[dict[str, Any]] = []
    for item in result.named_data:
        entry: dict[str, Any] = {"key": item.key, "alignment": item.alignment}
        place = pieces.find(item.data) if isinstance(item.data, torch.Tensor) else None
        if place is None:
            data = elements(item.data).numpy().data if isinstance(item.data, torch.Tensor) else memoryview(item.data)
            chunks.append(data)
            named.append({**entry, "length": data.nbytes})
        else:
            size = item.data.nbytes  # type: ignore[union-attr]
            named.append({**entry, "constant": place[0], "offset": place[1], "length": size})
    header = {
        "blob": [memoryview(part).nbytes for part in result.blob],
        "specs": [[spec.key, b64encode(spec.value).decode()] for spec in result.compile_specs],
        "named": named,
        "handles": [[key, list(handles)] for key, handles in result.debug_handle_map.items()],
        "estimate": Estimates({"": [result.estimate]}).to_json().decode(),
    }
    text = to_json(header, compact=True).encode()
    content = b"".join((_MAGIC, _LENGTH.pack(len(text)), text, *chunks))
    return content + _checksum(content, key)


def unpack(data: bytes | memoryview, constants: Constants[int], key: str = "") -> CheckedResult:
    """The result of a partition with these constants. Raises DamagedError, also for a result of another key."""
    view = memoryview(data).toreadonly()
    content, digest = view[:-_DIGEST], view[-_DIGEST:]
    if len(view) < len(_MAGIC) + _LENGTH.size + _DIGEST or bytes(content[: len(_MAGIC)]) != _MAGIC:
        raise DamagedError("is not a packed result")
    if _checksum(content, key) != digest:
        raise DamagedError("was changed, or belongs to another key: the checksum is wrong")
    try:
        return check_result(_content(content, constants), "a packed result")
    except Exception as error:  # whatever readers raise for an invalid header
        raise DamagedError(f"does not hold what it should: {error}") from error


def _checksum(content: bytes | memoryview, key: str) -> bytes:
    digest = hashlib.sha256(hashlib.sha256(key.encode()).digest())
    digest.update(content)
    return digest.digest()


def _content(content: memoryview, constants: Constants[int]) -> PreprocessResult:
    """The decoded content. Raises whatever decoding raises."""
    (length,) = _LENGTH.unpack_from(content, len(_MAGIC))
    start = len(_MAGIC) + _LENGTH.size
    header = json.loads(bytes(content[start : start + length]))
    rest = content[start + length :]

    def take(size: int) -> memoryview:
        nonlocal rest
        if not 0 <= size <= len(rest):
            raise ValueError(f"{size} bytes of {len(rest)}")
        taken, rest = rest[:size], rest[size:]
        return taken

    blob = tuple(take(size) for size in header["blob"])
    named = []
    for item in header["named"]:
        size = item["length"]
        found: Any
        if "constant" in item:
            found = elements(constants[item["constant"]])[item["offset"] : item["offset"] + size]
            if item["offset"] < 0 or found.nbytes != size:
                raise ValueError(f"{size} bytes at {item['offset']} of a constant")
        else:
            found = take(size)
        named.append(NamedData(item["key"], found, item["alignment"]))
    specs = tuple(CompileSpec(key, b64decode(value)) for key, value in header["specs"])
    handles = {key: tuple(numbers) for key, numbers in header["handles"]}
    estimate = Estimates.from_json(header["estimate"].encode()).of("", 0)
    return PreprocessResult(blob, specs, tuple(named), handles, estimate)
