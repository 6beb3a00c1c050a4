"""Execution of blobs by OpenVINO in this process."""

from .runtime import OpenVINORuntime as OpenVINORuntime
