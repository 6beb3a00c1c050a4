"""Constants as named data: keys are hashes of the content, so that equal constants are stored once per file."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Hashable, Mapping, Sequence

import torch

from delegatekit_api import FormatError, NamedData

from .dtypes import dtype_of


def content_key(data: torch.Tensor | bytes | bytearray | memoryview) -> str:
    """The SHA-256 of bytes, or of a tensor's elements in row-major order, in hexadecimal.

    Strides and dtype do not count: tensors with the same bytes have the same key.

    >>> content_key(torch.zeros(2, 3))[:16], content_key(bytes(24))[:16]
    ('9d908ecfb6b256de', '9d908ecfb6b256de')
    """
    content = elements(data).numpy().data if isinstance(data, torch.Tensor) else data
    return hashlib.sha256(content).hexdigest()


def elements(data: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's elements in row-major order; a view if the tensor's memory has them in that order.

    >>> elements(torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).T).tolist()
    [1, 3, 2, 4]
    """
    # One element is contiguous with any stride: reshape would keep that.
    return data.detach().contiguous().as_strided((data.numel(),), (1,)).view(torch.uint8)


def storage_key(data: torch.Tensor) -> Hashable:
    """A key that is equal for tensors that view the same memory in the same way. Valid while one of them is alive.

    Much faster than `content_key`: for tables of what was already made of a constant.

    >>> weight = torch.zeros(2, 3)
    >>> storage_key(weight) == storage_key(weight.detach()), storage_key(weight) == storage_key(weight.T)
    (True, False)
    """
    return data.data_ptr(), tuple(data.shape), data.stride(), data.dtype


class ConstantStore:
    """Collects the constants of one blob as named data, each content once.

    `prefix` goes before each key: "mine_" distinguishes keys from other backends' (optional, since equal keys always
    mean equal bytes). `alignment` is that of the data in the file, in bytes.

    >>> store = ConstantStore("demo_")
    >>> store.add(torch.zeros(2, 3)) == store.add(torch.zeros(3, 2))
    True
    >>> [(item.key[:10], item.alignment) for item in store.named_data]
    [('demo_9d908', 16)]
    """

    def __init__(self, prefix: str = "", alignment: int = 16) -> None:
        self._prefix = prefix
        self._alignment = alignment
        self._found: dict[str, NamedData] = {}

    def add(self, data: torch.Tensor) -> str:
        """The key of the tensor's elements in the file. The store keeps a reference to the tensor, not a copy."""
        key = self._prefix + content_key(data)
        if key not in self._found:
            self._found[key] = NamedData(key, data.detach(), self._alignment)
        return key

    @property
    def named_data(self) -> tuple[NamedData, ...]:
        """The content of `PreprocessResult.named_data`, in the order of first use."""
        return tuple(self._found.values())


def load_constant(
    named_data: Mapping[str, memoryview],
    key: str,
    dtype: str,
    shape: Sequence[int],
    *,
    prefix: str = "",
    where: str = "blob",
) -> torch.Tensor:
    """A constant of a loaded file, on the file's own memory if that is aligned, after verifying its checksum.

    `key` is the result of `ConstantStore.add`. The tensor must not be written to. A constant without elements needs no
    data. Raises FormatError if the data is missing, has another size, or was changed since it was written.

    >>> key = content_key(torch.ones(2))
    >>> load_constant({key: memoryview(torch.ones(2).numpy().tobytes())}, key, "float32", (2,))
    tensor([1., 1.])
    """
    kind = dtype_of(dtype, where)
    size = math.prod(shape) * kind.itemsize
    if not size:
        return torch.empty(tuple(shape), dtype=kind)
    data = named_data.get(key)
    if data is None:
        raise FormatError(f"the file has no data {key!r:.80}", where=where)
    if data.nbytes != size:
        raise FormatError(f"has {data.nbytes} bytes instead of {size}", where=f"named data {key}")
    if prefix + content_key(data) != key:
        raise FormatError("is damaged: the checksum is wrong", where=f"named data {key}")
    return shown(data, kind, shape)


def shown(data: memoryview, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """A tensor on the bytes of a file, or on a copy if they are not aligned; it must not be written to.

    >>> shown(memoryview(bytes(8)), torch.float32, (1, 2))
    tensor([[0., 0.]])
    """
    if not data.nbytes:
        return torch.empty(tuple(shape), dtype=dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        tensor = torch.frombuffer(data, dtype=torch.uint8)
        if tensor.data_ptr() % dtype.itemsize:
            tensor = tensor.clone()
        return tensor.view(dtype).reshape(tuple(shape))
