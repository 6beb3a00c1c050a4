"""Program files as graphs for Google's Model Explorer.

`model-explorer net.pte --extensions=delegatekit_tools.model_explorer` shows them. Importing this package does not
import Model Explorer: only `main`, which it loads, does.
"""

from __future__ import annotations

from .graphs import Box, Drawing, drawings

__all__ = ["Box", "Drawing", "drawings"]
