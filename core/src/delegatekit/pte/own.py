"""DelegateKit's own named data in a file, besides the backends'."""

from __future__ import annotations

from typing import Final

from .estimates import ESTIMATES_KEY
from .manifest import MANIFEST_KEY

#: Keys of the named data that belong to no backend.
OWN_KEYS: Final = frozenset({MANIFEST_KEY, ESTIMATES_KEY})
