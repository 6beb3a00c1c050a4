"""Memory that is needed later: results of long work that are made when they are written, and zeros.

Of the results only size and hash stay in memory.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from delegatekit_api import NamedData, PluginError

if TYPE_CHECKING:
    import torch

#: Bytes of the data of all makers that stay in memory.
_ROOM: Final = 64 << 20
#: Bytes of computed constants whose results are cached, at most: others would be in memory with what is made of them.
LARGEST_CACHED: Final = 512 << 20


@dataclass(frozen=True, eq=False)
class Later:
    """Bytes that are made at each read; their number and SHA-256 are known before.

    >>> data = Later(4, b"", lambda: bytes(4))
    >>> data.nbytes, data.read()
    (4, b'\\x00\\x00\\x00\\x00')
    """

    nbytes: int
    digest: bytes
    #: Returns bytes, or a tensor.
    read: Callable[[], Any]


#: Bytes that were made, after which what was needed to make them is looked for: graphs with cycles keep it alive.
_WASTE: Final = 64 << 20
#: Is told the size of what was made again.
_told: ContextVar[Callable[[int], None] | None] = ContextVar("told", default=None)


@contextmanager
def telling(told: Callable[[int], None]) -> Iterator[None]:
    """A block in which `told` is called with the number of bytes of data that are made again.

    >>> with telling(print):
    ...     _ = Shelf(room=0).put_off((), lambda: (), "here")
    """
    token = _told.set(told)
    try:
        yield
    finally:
        _told.reset(token)


class Shelf:
    """Large named data of several makers: of what has no room, that of one maker at a time is in memory.

    A file that is written maker by maker makes everything once more. `room` is the number of bytes of all makers
    together that stay in memory, by default 64 MiB.

    >>> shelf = Shelf(room=4)
    >>> def made():
    ...     print("made")
    ...     return [NamedData("key", b"data")]
    >>> first, second = (shelf.put_off(made(), made, "here")["key"].data for _ in range(2))
    made
    made
    >>> first, second.read(), second.read()
    made
    (b'data', b'data', b'data')
    """

    def __init__(self, room: int | None = None) -> None:
        self._room = _ROOM if room is None else room
        self._maker: object = None
        self._made: dict[str, NamedData] = {}
        self._waste = 0

    def put_off(
        self, items: Sequence[NamedData], make: Callable[[], Sequence[NamedData]], where: str
    ) -> dict[str, NamedData]:
        """The items by key; those that have no room are made again, by `make`, when they are written.

        What is on a temporary file needs none. Writing raises PluginError, with `where`, if they are other data then.
        """
        named = {item.key: item for item in items}
        sizes = {key: _size(item) for key, item in named.items() if not _is_on_file(item)}
        total = sum(sizes.values())
        if total <= self._room:
            self._room -= total
            return named
        self._clean(total)

        def read(key: str, known: bytes) -> Any:
            if self._maker is not make:
                self._maker, self._made = None, {}  # freed before others are made
                self._made = {item.key: item for item in make()}
                self._maker = make
                self._clean(total)
            found = self._made.get(key)
            if found is None or _digest(found) != known:
                raise PluginError("is not the same each time it is made", where=f"{where}, named data {key}")
            if told := _told.get():
                told(sizes[key])
            return found.data

        for key, nbytes in sizes.items():
            known = _digest(named[key])
            later: Any = Later(nbytes, known, partial(read, key, known))
            named[key] = replace(named[key], data=later)
        return named

    def _clean(self, made: int) -> None:
        self._waste += made
        if self._waste > _WASTE:
            gc.collect()
            self._waste = 0


def zeros(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Zeros that take no memory before they are written to, unlike those of `torch.zeros`: a large model's state.

    >>> import torch
    >>> zeros((2, 2), torch.bfloat16)
    tensor([[0., 0.],
            [0., 0.]], dtype=torch.bfloat16)
    """
    import numpy as np
    import torch

    if not math.prod(shape):
        return torch.zeros(tuple(shape), dtype=dtype)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(tuple(shape))


def _size(item: NamedData) -> int:
    return len(item.data) if isinstance(item.data, bytes | bytearray) else int(item.data.nbytes)


def _is_on_file(item: NamedData) -> bool:
    from .spilling import is_spilled

    data: Any = item.data
    return hasattr(data, "untyped_storage") and is_spilled(data)


def _digest(item: NamedData) -> bytes:
    from .content import content_key  # with torch, which files are read without

    return bytes.fromhex(content_key(item.data))
