"""Shared fixtures of the Core ML backend's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegatekit_coreml.blob.archive import read_archive

#: A blob -> the specification of its package, and the program as inferred again by coremltools' own loader.
ReadBack = Callable[[bytes], tuple[Any, Any]]


@pytest.fixture
def read_back(tmp_path: Path) -> ReadBack:
    """read_back(blob): the package of a blob, read by coremltools."""
    import coremltools
    from coremltools.converters.mil.frontend.milproto.load import load

    def read(blob: bytes) -> tuple[Any, Any]:
        for path, content in read_archive(blob).items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        model = coremltools.models.MLModel(str(tmp_path / "model.mlpackage"), skip_model_load=True)
        specification = model.get_spec()
        return specification, load(specification, specification.specificationVersion, model.weights_dir)

    return read
