"""Which releases of a tool fit."""

from __future__ import annotations

import pytest

from delegatekit_toolkit.installed import installed


@pytest.mark.parametrize(
    ("release", "fits"),
    [("1.9", False), ("1.10", True), ("1.10.3", True), ("2.0.1rc1", True), ("3.0", False), ("3", False), ("dev", True)],
)
def test_releases_are_compared_as_numbers(monkeypatch: pytest.MonkeyPatch, release: str, fits: bool) -> None:
    monkeypatch.setattr("delegatekit_toolkit.installed.version", lambda distribution: release)
    found = installed("json", "JSON", "pip install 'json-tool>=1.10,<3'", oldest="1.10", too_new="3")
    assert found.available is fits
    if not fits:
        assert found.reason.startswith(
            f"JSON {release} is installed: this backend needs 1.10 or later, and before 3: pip"
        )
