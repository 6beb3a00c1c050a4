"""The compute shaders: GLSL sources, and the SPIR-V that `make shaders` compiles them to."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent


@cache
def bytecode(name: str) -> bytes:
    """The SPIR-V of a shader."""
    return (FOLDER / f"{name}.spv").read_bytes()
