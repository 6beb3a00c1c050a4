"""The tests need MLX: where it is missing or does not fit, all but those of that are skipped, with the reason."""

from __future__ import annotations

import pytest

from delegatekit_mlx.blob.library import availability

#: Tests that need no library.
_WITHOUT = ("test_library.py", "test_schema.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = availability()
    for item in items:
        here = "plugins/mlx/tests" in item.path.as_posix() and item.path.name not in _WITHOUT
        if here and not known.available:
            item.add_marker(pytest.mark.skip(reason=known.reason))
