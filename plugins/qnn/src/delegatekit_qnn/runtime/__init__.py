"""Executes blobs on the host: in ExecuTorch's own runtime, on Qualcomm's simulator of the processor."""

from .runtime import QnnRuntime

__all__ = ["QnnRuntime"]
