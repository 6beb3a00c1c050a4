"""MLX that is missing, or of another release, is told before any work."""

from __future__ import annotations

from importlib import util

import pytest

from delegatekit_api import RuntimeUnavailableError
from delegatekit_mlx.blob import library
from delegatekit_toolkit import installed


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    assert library.availability().reason == f"MLX is not installed: {library.INSTALL}"
    with pytest.raises(RuntimeUnavailableError, match="MLX is not installed"):
        library.core()


@pytest.mark.parametrize("release", ["0.31.0", "0.33.0"])
def test_another_release_is_told(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: util.find_spec("json"))
    monkeypatch.setattr(installed, "release_of", lambda name: release)
    assert f"MLX {release} is installed: this backend needs 0.32.4 or later" in library.availability().reason
