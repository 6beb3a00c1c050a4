"""Execution of blobs by MLX in this process."""

from .runtime import MLXRuntime as MLXRuntime
