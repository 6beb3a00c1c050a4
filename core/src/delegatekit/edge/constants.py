"""Values known at lowering time: stored tensors, and tensors that are computed when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Generic, Protocol, TypeVar
from weakref import ref

import torch

Key = TypeVar("Key")
New = TypeVar("New")


class _Entry(Protocol):
    def read(self) -> torch.Tensor:
        """The tensor."""

    def known(self) -> torch.Tensor | None:
        """The tensor if it is in memory now."""


class _Held:
    """A tensor that is always in memory."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def read(self) -> torch.Tensor:
        return self._tensor

    known = read


class _Computed:
    """A tensor by the function that computes it: the same object as long as it is referenced."""

    def __init__(self, compute: Callable[[], torch.Tensor]) -> None:
        self._compute = compute
        self._last: ref[torch.Tensor] | None = None

    def read(self) -> torch.Tensor:
        found = self.known()
        if found is None:
            with torch.no_grad():
                found = self._compute().detach()
            self._last = ref(found)
        return found

    def known(self) -> torch.Tensor | None:
        return None if self._last is None else self._last()


class _Kept:
    """A computed tensor that stays in memory from its first read until it is released."""

    def __init__(self, computed: _Computed) -> None:
        self.computed = computed
        self._tensor: torch.Tensor | None = None

    def read(self) -> torch.Tensor:
        if self._tensor is None:
            self._tensor = self.computed.read()
        return self._tensor

    def known(self) -> torch.Tensor | None:
        return self.computed.known() if self._tensor is None else self._tensor

    def release(self) -> None:
        self._tensor = None


class Constants(MutableMapping[Key, torch.Tensor], Generic[Key]):
    """Tensors by key. A tensor set by `compute` takes memory only while it is referenced.

    A weight with a batch norm folded in is as large as the layer's own, which the user's module keeps in memory: a
    backend that reads one after the other and converts each never needs all of them at once.

    >>> constants = Constants({"a": torch.ones(2)})
    >>> constants.compute("b", lambda: torch.ones(2) * 3)
    >>> constants["b"]
    tensor([3., 3.])
    """

    def __init__(self, known: Mapping[Key, torch.Tensor] | None = None) -> None:
        self._entries: dict[Key, _Entry] = {}
        if known is not None:
            self.update(known)

    def compute(self, key: Key, function: Callable[[], torch.Tensor]) -> None:
        """Set the value of a key to the result of `function`, which is the same for every call."""
        self._entries[key] = _Computed(function)

    def share(self, key: Key, other: Constants[New], place: New) -> None:
        """Set the value of a key to that of another mapping, without computing it."""
        self._entries[key] = other._entries[place]

    def renamed(self, keys: Mapping[New, Key]) -> Constants[New]:
        """The values of some keys under new ones, in the order of `keys`, without computing them."""
        found: Constants[New] = Constants()
        for new, key in keys.items():
            found.share(new, self, key)
        return found

    def keeping(self) -> Constants[Key]:
        """The same values, of which computed ones stay in memory after the first read, until `release`."""
        found: Constants[Key] = Constants()
        for key, entry in self._entries.items():
            found._entries[key] = _Kept(entry) if isinstance(entry, _Computed) else entry
        return found

    def passing(self) -> Constants[Key]:
        """The same values, none of which stays in memory after a read: the opposite of `keeping`."""
        found: Constants[Key] = Constants()
        for key, entry in self._entries.items():
            found._entries[key] = entry.computed if isinstance(entry, _Kept) else entry
        return found

    def is_held(self, key: Key) -> bool:
        """True if the value is always in memory, so that nothing else ever has its address."""
        return isinstance(self._entries[key], _Held)

    def release(self, key: Key) -> bool:
        """Free a value that `keeping` kept; returns whether there was one."""
        entry = self._entries[key]
        if isinstance(entry, _Kept):
            entry.release()
        return isinstance(entry, _Kept)

    def known(self) -> Iterator[tuple[Key, torch.Tensor]]:
        """The keys whose tensors are in memory now, with these."""
        for key, entry in self._entries.items():
            tensor = entry.known()
            if tensor is not None:
                yield key, tensor

    def update(self, other: Mapping[Key, torch.Tensor]) -> None:  # type: ignore[override]
        """Copy another mapping's entries, without computing them."""
        for key in other:
            if isinstance(other, Constants):
                self.share(key, other, key)
            else:
                self[key] = other[key]

    def __getitem__(self, key: Key) -> torch.Tensor:
        return self._entries[key].read()

    def __setitem__(self, key: Key, value: torch.Tensor) -> None:
        self._entries[key] = _Held(value)

    def __delitem__(self, key: Key) -> None:
        del self._entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
