"""The function that packs a Core ML model into a blob crashes where the model has an empty file."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

PRODUCT = "ExecuTorch's runtime, exporter and tools"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/coreml/src/delegatekit_coreml/blob/archive.py: write_archive",)
ENDS_BY = "SIGSEGV"


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    from executorch.backends.apple.coreml import executorchcoreml

    with TemporaryDirectory() as folder:
        (Path(folder) / "empty").touch()
        executorchcoreml.flatten_directory_contents(folder)
    return None
