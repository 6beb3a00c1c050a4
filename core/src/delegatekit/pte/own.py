"""The named data that DelegateKit itself stores in a file, beside that of the backends."""

from __future__ import annotations

from typing import Final

from .estimates import ESTIMATES_KEY
from .manifest import MANIFEST_KEY

#: Keys of the named data that belong to no backend.
OWN_KEYS: Final = frozenset({MANIFEST_KEY, ESTIMATES_KEY})
