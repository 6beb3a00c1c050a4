"""Source lines as people know them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from delegatekit_toolkit.source_paths import short_source


def test_a_path_begins_at_the_nearest_folder_that_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "venv" / "site-packages"
    packages.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(packages)])
    assert short_source(f"{tmp_path}/net/model.py:12: `x = a / b`") == "net/model.py:12: `x = a / b`"
    assert short_source(f"{packages}/timm/layers.py:3") == "timm/layers.py:3"


@pytest.mark.parametrize("source", ["/elsewhere/model.py:12: `x = 1`", "model.py:1", "", "<eval_with_key>.0:3"])
def test_what_is_elsewhere_stays_as_it_is(source: str) -> None:
    assert short_source(source) == source
