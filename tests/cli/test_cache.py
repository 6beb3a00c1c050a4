"""`delegatekit cache`, and the options of `lower` about compilers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from delegatekit.compiling import Compiling
from delegatekit.compiling.cache import Cache
from delegatekit.plugins import COMPILED


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache, in which something is kept."""
    import diskcache

    monkeypatch.setenv("DELEGATEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(COMPILED, "5MB")
    with diskcache.Cache(str(tmp_path / "cache" / "compiled")) as store:
        store["key"] = b"x" * 1000
    return tmp_path / "cache" / "compiled"


def test_the_cache_is_shown_and_cleared(kept: Path, cli: Any) -> None:
    found = json.loads(cli("cache", "info", "--json").stdout)["cache"]
    assert (found["folder"], found["results"], found["limit"]) == (str(kept), 1, 5 << 20)
    assert "1 compiled partitions" in cli("cache", "info").stdout
    assert "deleted 1 compiled partitions" in cli("cache", "clear").stdout
    assert json.loads(cli("cache", "info", "--json").stdout)["cache"]["results"] == 0


def test_a_cache_that_is_off_is_told(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILED, "off")
    result = cli("cache", "info", code=2)
    assert "there is no cache" in result.stderr


def test_what_can_be_done_is_told(cli: Any) -> None:
    assert "neither info nor clear" in cli("cache", "empty", code=2).stderr


def test_a_size_that_is_none_is_told(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILED, "much")
    with pytest.warns(UserWarning, match="much is neither off nor a size"):
        cache = Cache.of_user()
    assert cache is not None and cache.info().limit == 2 << 30


def test_lower_says_how_compilers_run(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import delegatekit

    seen: list[Any] = []
    real = delegatekit.lower
    monkeypatch.setattr(
        delegatekit, "lower", lambda *args, **more: [seen.append(more["compiling"]), real(*args, **more)][1]
    )
    options = ("--isolate", "--jobs", "3", "--no-cache", "--compile-time", "60")
    cli("lower", "models:linear", "-b", "nothing", "-o", "model.pte", *options)
    assert seen == [Compiling(isolate=True, jobs=3, cache=False, seconds=60.0)]
