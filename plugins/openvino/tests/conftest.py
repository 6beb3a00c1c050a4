"""The tests need OpenVINO: where it is missing or does not fit, all but those of that are skipped, with the reason.

Stock's runtime looks for the library when it is loaded, which no test has done yet.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from delegatekit_openvino.blob.library import availability

if availability().available and (_found := importlib.util.find_spec("openvino")) is not None and _found.origin:
    for _library in sorted(Path(_found.origin).parent.glob("libs/libopenvino_c.so*")):
        os.environ.setdefault("OPENVINO_LIB_PATH", str(_library))
    # Without it, OpenVINO computes in bfloat16 where the processor can: stock's runtime tells it nothing.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = availability()
    for item in items:
        if (
            not known.available
            and "plugins/openvino/tests" in item.path.as_posix()
            and item.path.name != "test_library.py"
        ):
            item.add_marker(pytest.mark.skip(reason=known.reason))
